// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnknownFilterIsRefused(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.get(t, "machines/", "bogus", "x").refusesField(t, "bogus", "No such constraint.")
		m.get(t, "machines/", "not_system_id", "x").refusesField(t, "not_system_id", "No such constraint.")
	})
}

func TestBadFilterValuesAreRefused(t *testing.T) {
	tests := []struct{ name, filter, value, text string }{
		{"status", "status", "nope", "Select a valid choice. nope is not one of the available choices."},
		{"status as a number", "status", "4", "Select a valid choice. 4 is not one of the available choices."},
		{"status by its long name", "status", "Failed deployment", "Select a valid choice."},
		{"not_status", "not_status", "nope", "Select a valid choice."},
		{"simple_status", "simple_status", "nope", "Select a valid choice."},
		{"power_state", "power_state", "nope", "Select a valid choice."},
		{"zone", "zone", "nosuch-zone", "No such zone(s): nosuch-zone."},
		{"pool", "pool", "nosuch-pool", "No such pool(s): nosuch-pool."},
		{"tags", "tags", "nosuch-tag", "No such tag(s): 'nosuch-tag'."},
		{"owner", "owner", "nosuch-owner", "No such owner: 'nosuch-owner'."},
		{"cpu_count", "cpu_count", "many", "Invalid CPU count: number required."},
		{"mem", "mem", "much", "Invalid memory: number of MiB required."},
		{"arch", "arch", "nosuch", "Architecture not recognised."},
		// An empty value is a value.
		{"no status", "status", "", "Select a valid choice."},
		{"no power_state", "power_state", "", "Select a valid choice."},
		{"no zone", "zone", "", "No such zone(s): ."},
		{"no pool", "pool", "", "No such pool(s): ."},
		{"no owner", "owner", "", "No such owner: ''."},
		{"no arch", "arch", "", "Architecture not recognised."},
		{"no mem", "mem", "", "Invalid memory: number of MiB required."},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			each(t, func(t *testing.T, m *maas) {
				m.get(t, "machines/", test.filter, test.value).refusesField(t, test.filter, test.text)
			})
		})
	}
}

// filterCase is which of the case's two machines a filter finds. Each is also limited to the two by id.
type filterCase struct {
	name    string
	filters []string
	want    []object
}

// checkFilters runs filters over the machines a and b, which differ.
func checkFilters(t *testing.T, m *maas, a, b object, cases []filterCase) {
	t.Helper()
	for _, c := range cases {
		filters := append(slices.Clone(c.filters), "id", a.str("system_id"), "id", b.str("system_id"))
		got, want := systemIDs(m.machines(t, filters...)), systemIDs(c.want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s %v (-want +got):\n%s", c.name, c.filters, diff)
		}
	}
}

func TestMachinesAreFoundByWhatTheyAre(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		a, b := m.newMachine(t), m.newMachine(t)
		both, neither := []object{a, b}, []object{}
		checkFilters(t, m, a, b, []filterCase{
			{"several ids", nil, both},
			{"hostname", []string{"hostname", a.str("hostname")}, []object{a}},
			{"several hostnames", []string{"hostname", a.str("hostname"), "hostname", b.str("hostname")}, both},
			{"not_hostname", []string{"not_hostname", a.str("hostname")}, []object{b}},
			{"not_id", []string{"not_id", a.str("system_id")}, []object{b}},
			{"system_id", []string{"system_id", a.str("system_id")}, []object{a}},
			{"mac_address", []string{"mac_address", a.objects("interface_set")[0].str("mac_address")}, []object{a}},
			{"domain", []string{"domain", a.str("domain", "name")}, both},
			{"not_domain", []string{"not_domain", a.str("domain", "name")}, neither},
			{"zone", []string{"zone", a.str("zone", "name")}, both},
			{"not_in_zone", []string{"not_in_zone", a.str("zone", "name")}, neither},
			{"pool", []string{"pool", a.str("pool", "name")}, both},
			{"not_in_pool", []string{"not_in_pool", a.str("pool", "name")}, neither},
			{"status", []string{"status", "new"}, both},
			{"several statuses", []string{"status", "ready", "status", "new"}, both},
			{"another status", []string{"status", "failed_deployment"}, neither},
			{"not_status", []string{"not_status", "new"}, neither},
			{"power_state", []string{"power_state", a.str("power_state")}, both},
			{"not_power_state", []string{"not_power_state", a.str("power_state")}, neither},
			{"not_arch", []string{"not_arch", a.str("architecture")}, neither},
			{"arch", []string{"arch", a.str("architecture")}, both},
			{"arch without the subarchitecture", []string{"arch", strings.Split(a.str("architecture"), "/")[0]}, both},
		})
	})
}

func TestMachinesAreFoundByZone(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		zone := m.newZone(t).str("name")
		a, b := m.newMachine(t, "zone", zone), m.newMachine(t)
		checkFilters(t, m, a, b, []filterCase{
			{"zone", []string{"zone", zone}, []object{a}},
			{"not_in_zone", []string{"not_in_zone", zone}, []object{b}},
			{"several zones", []string{"zone", zone, "zone", b.str("zone", "name")}, []object{a, b}},
		})
	})
}

func TestMachinesAreFoundByPool(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		pool := m.newPool(t).str("name")
		a, b := m.newMachine(t, "pool", pool), m.newMachine(t)
		checkFilters(t, m, a, b, []filterCase{
			{"pool", []string{"pool", pool}, []object{a}},
			{"not_in_pool", []string{"not_in_pool", pool}, []object{b}},
		})
	})
}

func TestMachinesAreFoundByAllTheirTags(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		a, b := m.newMachine(t), m.newMachine(t)
		common, only := m.newTag(t, a, b), m.newTag(t, a)
		checkFilters(t, m, a, b, []filterCase{
			{"one tag", []string{"tags", common}, []object{a, b}},
			{"both tags", []string{"tags", common, "tags", only}, []object{a}},
			{"both tags, with a comma", []string{"tags", common + "," + only}, []object{a}},
			{"not_tags", []string{"not_tags", only}, []object{b}},
		})
	})
}

func TestMachinesAreFoundByOwner(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		a, b := m.newDeployedMachine(t), m.newMachine(t)
		checkFilters(t, m, a, b, []filterCase{
			{"owner", []string{"owner", m.me(t)}, []object{a}},
			{"not_owner", []string{"not_owner", m.me(t)}, []object{b}},
			{"status", []string{"status", "deployed"}, []object{a}},
			{"not_status", []string{"not_status", "deployed"}, []object{b}},
		})
	})
}

func TestMachinesAreFoundByAgentName(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		agent := uniqueName()
		a, b := m.allocatedVM(t, "agent_name", agent), m.newMachine(t)
		checkFilters(t, m, a, b, []filterCase{
			{"agent_name", []string{"agent_name", agent}, []object{a}},
			{"several agent names", []string{"agent_name", "nobody", "agent_name", agent}, []object{a}},
			{"part of an agent name", []string{"agent_name", agent[:len(agent)-1]}, nil},
			{"not_agent_name", []string{"not_agent_name", agent}, []object{b}},
			{"not_agent_name of nobody", []string{"not_agent_name", uniqueName()}, []object{a, b}},
			{"several not_agent_names", []string{"not_agent_name", "nobody", "not_agent_name", agent}, []object{b}},
		})
	})
}

func TestMachinesAreFoundBySize(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		a, b := m.vm(t, "cores", "2", "memory", "4096"), m.newMachine(t)
		checkFilters(t, m, a, b, []filterCase{
			{"cpu_count is a minimum", []string{"cpu_count", "1"}, []object{a}},
			{"cpu_count as it is", []string{"cpu_count", "2"}, []object{a}},
			{"more cpu_count", []string{"cpu_count", "3"}, nil},
			{"mem is a minimum", []string{"mem", "1024"}, []object{a}},
			{"mem as it is", []string{"mem", "4096"}, []object{a}},
			{"more mem", []string{"mem", "4097"}, nil},
			{"storage", []string{"storage", "root:4"}, []object{a}},
			{"more storage", []string{"storage", "root:100000"}, nil},
		})
	})
}

func TestMachinesAreFoundByVMHost(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		a, b := m.vm(t), m.newMachine(t)
		host := a.str("pod", "name")
		checkFilters(t, m, a, b, []filterCase{
			{"pod", []string{"pod", host}, []object{a}},
			{"not_pod", []string{"not_pod", host}, []object{b}},
			{"pod_type", []string{"pod_type", "lxd"}, []object{a}},
			{"not_pod_type", []string{"not_pod_type", "lxd"}, []object{b}},
		})
	})
}

func TestMachinesAreFoundByNetwork(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnet := m.subnetWithRoom(t)
		a, b := m.newMachine(t), m.newMachine(t)
		m.link(t, a, "mode", "STATIC", "subnet", subnet.id("id"), "ip_address", m.freeAddress(t, subnet), "force", "true").
			object(t)
		fabric, vlan := subnet.str("vlan", "fabric"), "id:"+subnet.id("vlan", "id")
		checkFilters(t, m, a, a, []filterCase{
			{"fabrics", []string{"fabrics", fabric}, []object{a}},
			{"not_fabrics", []string{"not_fabrics", fabric}, nil},
			{"vlans", []string{"vlans", vlan}, []object{a}},
			{"not_vlans", []string{"not_vlans", vlan}, nil},
		})
		checkFilters(t, m, a, b, []filterCase{
			{"subnets by id", []string{"subnets", subnet.id("id")}, []object{a}},
			{"subnets by CIDR", []string{"subnets", "cidr:" + subnet.str("cidr")}, []object{a}},
			{"not_subnets", []string{"not_subnets", subnet.id("id")}, []object{b}},
		})
	})
}

func TestMachinesAreFoundByDeploymentTarget(t *testing.T) {
	eachThat(t, func(f facts) bool { return f.vmHosts && f.deploymentTarget }, func(t *testing.T, m *maas) {
		a, b := m.newMachine(t), m.newMachine(t)
		checkFilters(t, m, a, b, []filterCase{
			{"deployment_target", []string{"deployment_target", "disk"}, []object{a, b}},
		})
	})
}

func TestDeploymentTargetIsNoFilterBefore35(t *testing.T) {
	eachThat(t, func(f facts) bool { return !f.deploymentTarget }, func(t *testing.T, m *maas) {
		m.get(t, "machines/", "deployment_target", "disk").refusesField(t, "deployment_target", "No such constraint.")
	})
}

func TestMachinesThatDoNotExistAreNotListed(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		a := m.newMachine(t)
		got := m.machines(t, "id", a.str("system_id"), "id", "nosuch")
		if diff := cmp.Diff(systemIDs([]object{a}), systemIDs(got)); diff != "" {
			t.Errorf("machines of two ids, one unknown (-want +got):\n%s", diff)
		}
	})
}

// maasserver/node_constraint_filter_forms.py treats empty values as values.
func TestEmptyFilterValues(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.newMachine(t)
		for _, filter := range []string{"id", "system_id", "hostname", "domain", "pod"} {
			if got := m.machines(t, filter, ""); len(got) != 0 {
				t.Errorf("%s=: %d machines, want none", filter, len(got))
			}
		}
		for _, filter := range []string{"agent_name", "not_id", "not_hostname", "tags", "storage", "interfaces", "devices"} {
			if got := m.machines(t, "id", machine.str("system_id"), filter, ""); len(got) != 1 {
				t.Errorf("%s=: %d machines, want the one", filter, len(got))
			}
		}
	})
}

// An empty agent name is a value: a machine that has one is left out until it is released.
func TestEmptyAgentName(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		vm := m.allocatedVM(t, "agent_name", uniqueName())
		id := vm.str("system_id")
		if got := m.machines(t, "id", id, "agent_name", ""); len(got) != 0 {
			t.Errorf("%d machines while it has an agent name, want none", len(got))
		}
		m.release(t, vm).object(t)
		if got := m.machines(t, "id", id, "agent_name", ""); len(got) != 1 {
			t.Errorf("%d machines after the release, want the one", len(got))
		}
	})
}

// The filter names a field that no database of MAAS has.
func TestSimpleStatusIsAnInternalError(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		for _, filter := range []string{"simple_status", "not_simple_status"} {
			m.get(t, "machines/", filter, "ready").refuses(t, http.StatusInternalServerError, "Cannot resolve keyword 'simple_status' into field")
		}
	})
}

// Only arch= expands its value, and only the other filters check it.
func TestNotArchAndNotOwnerTakeAnything(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.newMachine(t)
		id, arch := machine.str("system_id"), machine.str("architecture")
		for _, filters := range [][]string{{"not_arch", strings.Split(arch, "/")[0]}, {"not_arch", "nosuch"}, {"not_owner", "nosuch"}} {
			if got := m.machines(t, append(filters, "id", id)...); len(got) != 1 {
				t.Errorf("%v: %d machines, want the one", filters, len(got))
			}
		}
		if got := m.machines(t, "not_arch", arch, "id", id); len(got) != 0 {
			t.Errorf("not_arch=%s: %v, want none", arch, systemIDs(got))
		}
	})
}

// _match_gte compares with the least of several values.
func TestTheSmallestOfSeveralNumbersCounts(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		vm := m.vm(t)
		if got := m.machines(t, "id", vm.str("system_id"), "mem", "1024", "mem", "100000"); len(got) != 1 {
			t.Errorf("%d machines, want the one", len(got))
		}
	})
}
