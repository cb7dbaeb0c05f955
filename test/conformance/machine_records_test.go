// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func TestCreatedMachineIsWhereItWasPut(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		zone, pool := m.newZone(t).str("name"), m.newPool(t).str("name")
		got := m.newMachine(t, "zone", zone, "pool", pool)
		if got.str("zone", "name") != zone || got.str("pool", "name") != pool {
			t.Errorf("in zone %s and pool %s, want %s and %s", got.str("zone", "name"), got.str("pool", "name"), zone, pool)
		}
	})
}

func TestMachineIsCreatedWithSeveralInterfaces(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		got := m.newMachine(t, "mac_addresses", newMAC(), "mac_addresses", newMAC())
		if nics := got.objects("interface_set"); len(nics) != 2 {
			t.Errorf("%d interfaces, want 2", len(nics))
		}
	})
}

func TestArchitectureWithoutPartIsGeneric(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		if m.architecture(t) != "amd64/generic" {
			t.Skip("no image for amd64 is imported")
		}
		if got := m.newMachine(t, "architecture", "amd64").str("architecture"); got != "amd64/generic" {
			t.Errorf("architecture %q, want amd64/generic", got)
		}
	})
}

func TestCreateMachineRefusals(t *testing.T) {
	tests := []struct {
		name  string
		field string
		pairs func(t *testing.T, m *maas) []string
		text  string
	}{
		{"no MAC address", "mac_addresses", func(t *testing.T, m *maas) []string {
			return []string{"architecture", m.architecture(t)}
		}, ""},
		{"bad MAC address", "mac_addresses", func(t *testing.T, m *maas) []string {
			return []string{"architecture", m.architecture(t), "mac_addresses", "nonsense"}
		}, ""},
		{"MAC address in use", "mac_addresses", func(t *testing.T, m *maas) []string {
			other := m.newMachine(t).objects("interface_set")[0].str("mac_address")
			return []string{"architecture", m.architecture(t), "mac_addresses", other}
		}, "already in use"},
		{"no architecture", "architecture", func(*testing.T, *maas) []string {
			return []string{"mac_addresses", newMAC()}
		}, "This field is required."},
		{"unknown architecture", "architecture", func(*testing.T, *maas) []string {
			return []string{"architecture", "nosuch/generic", "mac_addresses", newMAC()}
		}, "'nosuch/generic' is not a valid architecture."},
		{"unknown zone", "zone", func(t *testing.T, m *maas) []string {
			return []string{"architecture", m.architecture(t), "mac_addresses", newMAC(), "zone", "nosuch"}
		}, "Select a valid choice."},
		{"hostname in use", "hostname", func(t *testing.T, m *maas) []string {
			taken := m.newMachine(t).str("hostname")
			return []string{"architecture", m.architecture(t), "mac_addresses", newMAC(), "hostname", taken}
		}, "already exists"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			each(t, func(t *testing.T, m *maas) {
				pairs := withDefaults(test.pairs(t, m), "hostname", uniqueName(), "power_type", "manual", "commission", "false")
				m.removeMachineAfter(t, form(pairs...).Get("hostname"))
				m.create(t, "machines/", pairs...).refusesField(t, test.field, test.text)
			})
		})
	}
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
	eachThat(t, anyVersion, func(t *testing.T, m *maas) {
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

func TestUpdateReadyVM(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		vm := m.vm(t)
		got := m.put(t, machinePath(vm.str("system_id")), "description", "owned by capmaas").object(t)
		if got.str("description") != "owned by capmaas" || got.str("status_name") != "Ready" {
			t.Errorf("description %q of a %s machine", got.str("description"), got.str("status_name"))
		}
	})
}

func TestUpdateMachineRefusals(t *testing.T) {
	tests := []struct{ name, field, value, text string }{
		{"unknown zone", "zone", "nosuch", "Select a valid choice."},
		{"zone by id", "zone", "999999", "Select a valid choice."},
		{"unknown pool", "pool", "nosuch", "Select a valid choice."},
		{"unknown domain", "domain", "nosuch.test", "Unable to find domain nosuch.test"},
		{"bad hostname", "hostname", "bad_name", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			each(t, func(t *testing.T, m *maas) {
				m.put(t, machinePath(m.newMachine(t).str("system_id")), test.field, test.value).
					refusesField(t, test.field, test.text)
			})
		})
	}
}

func TestUpdateCannotChangeTags(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.newMachine(t)
		tag, other := m.newTag(t, machine), m.newTag(t)
		m.put(t, machinePath(machine.str("system_id")), "tag_names", other, "tags", other).object(t)
		if got := m.machine(t, machine.str("system_id")).strings("tag_names"); !cmp.Equal(got, []string{tag}) {
			t.Errorf("tags %v, want %s alone", got, tag)
		}
	})
}

func TestUpdateByPlainUserIsForbidden(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		plain := m.asPlainUser(t)
		plain.put(t, machinePath(m.newMachine(t).str("system_id")), "description", "x").
			refusesSilently(t, http.StatusForbidden)
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
