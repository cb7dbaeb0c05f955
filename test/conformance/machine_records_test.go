// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"testing"
)

func TestCreatedMachineIsNew(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		hostname, mac, arch := uniqueName(), newMAC(), m.architecture(t)
		got := m.newMachine(t, "hostname", hostname, "mac_addresses", mac, "architecture", arch, "description", "a b")
		checkShape(t, "created machine", got, m.machineShape())
		tests := []struct{ what, got, want string }{
			{"hostname", got.str("hostname"), hostname},
			{"architecture", got.str("architecture"), arch},
			{"description", got.str("description"), "a b"},
			{"power_type", got.str("power_type"), "manual"},
			{"power_state", got.str("power_state"), "unknown"},
			{"status_name", got.str("status_name"), "New"},
			{"status", got.id("status"), "0"},
			{"node_type_name", got.str("node_type_name"), "Machine"},
		}
		for _, test := range tests {
			if test.got != test.want {
				t.Errorf("%s %q, want %q", test.what, test.got, test.want)
			}
		}
		if got.at("owner") != nil || got.at("pod") != nil {
			t.Errorf("owner %v and pod %v, want none", got["owner"], got["pod"])
		}
		if nics := got.objects("interface_set"); len(nics) != 1 || nics[0].str("mac_address") != mac {
			t.Errorf("interfaces %v, want one with %s", nics, mac)
		}
	})
}

func TestCreateMachineDeployed(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		got := m.newDeployedMachine(t)
		if got.str("status_name") != "Deployed" || got.str("owner") != m.me(t) {
			t.Errorf("%s of %v, want Deployed and mine", got.str("status_name"), got["owner"])
		}
	})
}

// A machine with the lxd power driver is no VM of a VM host: MAAS knows nothing of it until it commissions it.
func TestCreateMachineWithTheLXDDriver(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		name := uniqueName()
		got := m.newMachine(t, "hostname", name, "power_type", "lxd",
			"power_parameters_power_address", "https://192.0.2.99:8443", "power_parameters_instance_name", name,
			"power_parameters_project", name)
		if got.str("status_name") != "New" || got.at("pod") != nil || got.num("cpu_count") != 0 {
			t.Errorf("%s, pod %v, cpu_count %v; want New, none, 0", got.str("status_name"), got["pod"], got["cpu_count"])
		}
		m.deploy(t, got).refuses(t, http.StatusConflict, "Can't deploy a machine that is in the 'New' state")
		parameters := m.get(t, machinePath(got.str("system_id")), "op", "power_parameters").object(t)
		if parameters.str("instance_name") != name || parameters.str("project") != name {
			t.Errorf("power parameters %v, want instance and project %s", parameters, name)
		}
	})
}

func TestUpdateMachine(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		zone, pool := m.newZone(t).str("name"), m.newPool(t).str("name")
		machine, hostname := m.newMachine(t), uniqueName()
		m.removeMachineAfter(t, hostname)
		path := machinePath(machine.str("system_id"))
		m.put(t, path, "description", "changed").object(t)
		m.put(t, path, "zone", zone, "pool", pool).object(t)
		got := m.put(t, path, "hostname", hostname).object(t)
		tests := []struct{ what, got, want string }{
			{"description", got.str("description"), "changed"},
			{"zone", got.str("zone", "name"), zone},
			{"pool", got.str("pool", "name"), pool},
			{"hostname", got.str("hostname"), hostname},
			{"architecture", got.str("architecture"), machine.str("architecture")},
			{"power_type", got.str("power_type"), machine.str("power_type")},
		}
		for _, test := range tests {
			if test.got != test.want {
				t.Errorf("%s %q, want %q", test.what, test.got, test.want)
			}
		}
		if got, read := got.str("fqdn"), m.machine(t, machine.str("system_id")).str("fqdn"); got != read {
			t.Errorf("fqdn %q in the reply, %q when read", got, read)
		}
	})
}

func TestDeletedMachineIsGone(t *testing.T) {
	tests := map[string]func(t *testing.T, m *maas) object{
		"New":      func(t *testing.T, m *maas) object { return m.newMachine(t) },
		"Deployed": func(t *testing.T, m *maas) object { return m.newDeployedMachine(t) },
	}
	for name, machine := range tests {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, m *maas) {
				systemID := machine(t, m).str("system_id")
				m.delete(t, machinePath(systemID)).gone(t)
				m.get(t, machinePath(systemID)).refuses(t, http.StatusNotFound, "No Machine matches the given query.")
				m.delete(t, machinePath(systemID)).refuses(t, http.StatusNotFound, "No Machine matches the given query.")
			})
		})
	}
}

func TestDeletionByPlainUserIsForbidden(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		plain := m.asPlainUser(t)
		plain.delete(t, machinePath(m.newMachine(t).str("system_id"))).refusesSilently(t, http.StatusForbidden)
	})
}
