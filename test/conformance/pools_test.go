// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"testing"
)

func TestPoolsAreListedAndReadByNumber(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		pool := m.newPool(t)
		checkShape(t, "pool", pool, shapes["pool"])
		checkNoOtherKeys(t, "pool", pool, shapes["pool"])
		if want := "/MAAS/api/2.0/resourcepool/" + pool.id("id") + "/"; pool.str("resource_uri") != want {
			t.Errorf("resource_uri %q, want %q", pool.str("resource_uri"), want)
		}
		if !has(m.get(t, "resourcepools/").list(t), "name", pool.str("name")) {
			t.Errorf("resourcepools/ does not list %s", pool.str("name"))
		}
		if alone := m.get(t, "resourcepool/"+pool.id("id")+"/").object(t); alone.str("name") != pool.str("name") {
			t.Errorf("pool %q, want %q", alone.str("name"), pool.str("name"))
		}
	})
}

func TestDuplicatePoolIsRefused(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.create(t, "resourcepools/", "name", m.newPool(t).str("name")).refusesField(t, "name", "already exists.")
	})
}

func TestPoolIsUpdated(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		pool := m.newPool(t)
		got := m.put(t, "resourcepool/"+pool.id("id")+"/", "description", "changed").object(t)
		if got.str("description") != "changed" || got.str("name") != pool.str("name") {
			t.Errorf("%v, want the description changed and nothing else", got)
		}
	})
}

func TestPoolWithMachinesCannotBeDeleted(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		pool := m.newPool(t)
		m.newMachine(t, "pool", pool.str("name"))
		m.delete(t, "resourcepool/"+pool.id("id")+"/").
			refuses(t, http.StatusBadRequest, "Pool has machines in it, it cannot be deleted.")
	})
}

func TestDefaultPoolCannotBeDeleted(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.delete(t, "resourcepool/"+m.newMachine(t).id("pool", "id")+"/").
			refuses(t, http.StatusBadRequest, "This is the default pool, it cannot be deleted.")
	})
}
