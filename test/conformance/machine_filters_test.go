// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
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
		{"pool", "pool", "nosuch-pool", "No such pool(s): nosuch-pool."},
		// An empty value is a value.
		{"no status", "status", "", "Select a valid choice."},
		{"no pool", "pool", "", "No such pool(s): ."},
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
			{"system_id", []string{"system_id", a.str("system_id")}, []object{a}},
			{"mac_address", []string{"mac_address", a.objects("interface_set")[0].str("mac_address")}, []object{a}},
			{"pool", []string{"pool", a.str("pool", "name")}, both},
			{"status", []string{"status", "new"}, both},
			{"several statuses", []string{"status", "ready", "status", "new"}, both},
			{"another status", []string{"status", "failed_deployment"}, neither},
		})
	})
}

func TestMachinesAreFoundByPool(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		pool := m.newPool(t).str("name")
		a, b := m.newMachine(t, "pool", pool), m.newMachine(t)
		checkFilters(t, m, a, b, []filterCase{
			{"pool", []string{"pool", pool}, []object{a}},
		})
	})
}

func TestMachinesAreFoundByAgentName(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		agent := uniqueName()
		a, b := m.allocated(t, "agent_name", agent), m.newMachine(t)
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

func TestMachinesAreFoundByVMHost(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) {
		a, b := m.spare(t), m.newMachine(t)
		host := a.str("pod", "name")
		checkFilters(t, m, a, b, []filterCase{
			{"pod", []string{"pod", host}, []object{a}},
			{"not_pod", []string{"not_pod", host}, []object{b}},
		})
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
		filters := []string{"id", "hostname"}
		if m.facts.vmHosts {
			filters = append(filters, "pod")
		}
		for _, filter := range filters {
			if got := m.machines(t, filter, ""); len(got) != 0 {
				t.Errorf("%s=: %d machines, want none", filter, len(got))
			}
		}
		if got := m.machines(t, "id", machine.str("system_id"), "agent_name", ""); len(got) != 1 {
			t.Errorf("agent_name=: %d machines, want the one", len(got))
		}
	})
}

// An empty agent name is a value: a machine that has one is left out until it is released.
func TestEmptyAgentName(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.allocated(t, "agent_name", uniqueName())
		id := spare.str("system_id")
		if got := m.machines(t, "id", id, "agent_name", ""); len(got) != 0 {
			t.Errorf("%d machines while it has an agent name, want none", len(got))
		}
		m.release(t, spare).object(t)
		if got := m.machines(t, "id", id, "agent_name", ""); len(got) != 1 {
			t.Errorf("%d machines after the release, want the one", len(got))
		}
	})
}
