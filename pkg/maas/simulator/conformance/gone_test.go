// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"testing"
)

// From 3.8 on, all calls of VM hosts return Gone.
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
		{"remove_tag", func(t *testing.T, m *maas, c string) *answer { return m.op(t, c+"1/", "remove_tag", "tag", "x") }},
	}
	for _, collection := range []string{"vm-hosts/", "pods/"} {
		for _, test := range tests {
			t.Run(collection+test.name, func(t *testing.T) {
				eachThat(t, withoutVMHosts, func(t *testing.T, m *maas) {
					test.call(t, m, collection).refuses(t, http.StatusGone, text)
				})
			})
		}
	}
}

func TestGoneVMHostsStillNeedCredentials(t *testing.T) {
	eachThat(t, withoutVMHosts, func(t *testing.T, m *maas) {
		m.do(t, request{method: http.MethodGet, path: "vm-hosts/", anonymous: true}).wants(t, http.StatusUnauthorized)
	})
}

func TestDeployAsVMHostIsRefused(t *testing.T) {
	for _, parameter := range []string{"install_kvm", "register_vmhost"} {
		t.Run(parameter, func(t *testing.T) {
			eachThat(t, withoutVMHosts, func(t *testing.T, m *maas) {
				m.deploy(t, m.newMachine(t), parameter, "true").refuses(t, http.StatusBadRequest,
					"Support for "+parameter+" allocation parameter has been removed.")
			})
		})
	}
}

// Without VM hosts a VM is a machine with the lxd power driver.
func TestMachineWithTheLXDDriverWithoutVMHosts(t *testing.T) {
	eachThat(t, withoutVMHosts, func(t *testing.T, m *maas) {
		name := uniqueName()
		got := m.newMachine(t, "hostname", name, "power_type", "lxd",
			"power_parameters_power_address", "https://192.0.2.99:8443", "power_parameters_instance_name", name,
			"power_parameters_project", name)
		if got.str("status_name") != "New" || got.str("power_type") != "lxd" {
			t.Errorf("%s machine with the driver %s, want New with lxd", got.str("status_name"), got.str("power_type"))
		}
	})
}

func withoutVMHosts(f facts) bool { return !f.vmHosts }
