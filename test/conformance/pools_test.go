// SPDX-License-Identifier: Apache-2.0

package conformance

import "testing"

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
