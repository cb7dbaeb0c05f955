// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"testing"
)

func TestZonesAreListedAndRead(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		zone := m.newZone(t)
		checkShape(t, "zone", zone, shapes["zone"])
		checkNoOtherKeys(t, "zone", zone, shapes["zone"])
		if !has(m.get(t, "zones/").list(t), "name", zone.str("name")) {
			t.Errorf("zones/ does not list %s", zone.str("name"))
		}
		if alone := m.get(t, "zones/"+zone.str("name")+"/").object(t); alone.id("id") != zone.id("id") {
			t.Errorf("zone %s, want %s", alone.id("id"), zone.id("id"))
		}
	})
}

func TestDuplicateZoneIsRefused(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.create(t, "zones/", "name", m.newZone(t).str("name")).
			refusesField(t, "name", "Physical zone with this Name already exists.")
	})
}

func TestZoneWithoutNameIsRefused(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.create(t, "zones/", "description", "x").refusesField(t, "name", "This field is required.")
	})
}

func TestDeletedZoneIsGone(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		path := "zones/" + m.newZone(t).str("name") + "/"
		m.delete(t, path).gone(t)
		m.get(t, path).refuses(t, http.StatusNotFound, "No Zone matches the given query.")
	})
}

// Only the deletion of a zone does not report that there was nothing to delete.
func TestDeletionOfAnUnknownZoneSucceeds(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.delete(t, "zones/nosuch-zone/").gone(t)
	})
}

func TestDefaultZoneCannotBeDeleted(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.delete(t, "zones/"+m.defaultZone(t).str("name")+"/").
			refuses(t, http.StatusBadRequest, "This zone is the default zone, it cannot be deleted.")
	})
}

func TestMachinesOfADeletedZoneMoveToTheDefaultZone(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		zone, elsewhere := m.newZone(t).str("name"), m.defaultZone(t).str("name")
		machine := m.newMachine(t, "zone", zone)
		m.delete(t, "zones/"+zone+"/").gone(t)
		if got := m.machine(t, machine.str("system_id")).str("zone", "name"); got != elsewhere {
			t.Errorf("in zone %s, want %s", got, elsewhere)
		}
	})
}

func TestZoneIsRenamed(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		zone, name := m.newZone(t), uniqueName()
		got := m.put(t, "zones/"+zone.str("name")+"/", "name", name).object(t)
		m.deleteAfter(t, "zones/"+name+"/")
		if got.str("name") != name || got.id("id") != zone.id("id") || got.str("description") != zone.str("description") {
			t.Errorf("renamed to %v, want %v with the name %s", got, zone, name)
		}
	})
}
