// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"testing"
)

// Without VM hosts, all calls of them return Gone (maasserver/api/gone.py).
func TestVMHostsAreGone(t *testing.T) {
	const text = "VM host (KVM) support has been removed from MAAS."
	tests := []struct {
		name string
		call func(t *testing.T, m *maas, collection string) *answer
	}{
		{"list", func(t *testing.T, m *maas, c string) *answer { return m.get(t, c) }},
		{"read", func(t *testing.T, m *maas, c string) *answer { return m.get(t, c+"1/") }},
		{"create", func(t *testing.T, m *maas, c string) *answer {
			return m.create(t, c, "type", "lxd", "power_address", unreachable)
		}},
		{"update", func(t *testing.T, m *maas, c string) *answer { return m.put(t, c+"1/", "name", "x") }},
		{"delete", func(t *testing.T, m *maas, c string) *answer { return m.delete(t, c+"1/") }},
		{"refresh", func(t *testing.T, m *maas, c string) *answer { return m.op(t, c+"1/", "refresh") }},
		{"compose", func(t *testing.T, m *maas, c string) *answer { return m.op(t, c+"1/", "compose") }},
		{"parameters", func(t *testing.T, m *maas, c string) *answer { return m.get(t, c+"1/", "op", "parameters") }},
		{"add_tag", func(t *testing.T, m *maas, c string) *answer { return m.op(t, c+"1/", "add_tag", "tag", "x") }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			eachWith(t, []need{noVMHosts}, func(t *testing.T, m *maas) {
				test.call(t, m, "vm-hosts/").refuses(t, http.StatusGone, text)
			})
		})
	}
}

func TestGoneVMHostsStillNeedCredentials(t *testing.T) {
	eachWith(t, []need{noVMHosts}, func(t *testing.T, m *maas) {
		m.do(t, request{method: http.MethodGet, path: "vm-hosts/", anonymous: true}).wants(t, http.StatusUnauthorized)
	})
}

// Without VM hosts their constraints are unknown ones (FilterNodeForm in maasserver/node_constraint_filter_forms.py).
func TestConstraintsOfVMHostsAreUnknown(t *testing.T) {
	for _, constraint := range []string{"pod", "not_pod"} {
		t.Run(constraint, func(t *testing.T) {
			eachWith(t, []need{noVMHosts}, func(t *testing.T, m *maas) {
				m.get(t, "machines/", constraint, "x").refusesField(t, constraint, "No such constraint.")
				m.allocate(t, constraint, "x", "dry_run", "true").refusesField(t, constraint, "No such constraint.")
			})
		})
	}
}

// Where there are no VM hosts to compose on, an allocation that nothing fits ends with a conflict.
func TestAllocateComposesNothingWithoutVMHosts(t *testing.T) {
	eachWith(t, []need{noVMHosts}, func(t *testing.T, m *maas) {
		before := len(m.machines(t))
		m.allocate(t, "zone", m.newZone(t).str("name"), "cpu_count", "1").refuses(t, http.StatusConflict)
		if after := len(m.machines(t)); after != before {
			t.Errorf("%d machines, and %d before", after, before)
		}
	})
}
