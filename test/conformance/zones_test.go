// SPDX-License-Identifier: Apache-2.0

package conformance

import "testing"

func TestZonesAreListed(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		zone := m.newZone(t)
		checkShape(t, "zone", zone, shapes["zone"])
		checkNoOtherKeys(t, "zone", zone, shapes["zone"])
		if !has(m.get(t, "zones/").list(t), "name", zone.str("name")) {
			t.Errorf("zones/ does not list %s", zone.str("name"))
		}
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
