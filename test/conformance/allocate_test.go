// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// noComposing keeps MAAS from composing a VM when no machine fits an allocation: both kinds of VM host are excluded. A
// MAAS without VM hosts does not know the constraint.
func (m *maas) noComposing() []string {
	if !m.facts.vmHosts {
		return nil
	}
	return []string{"not_pod_type", "lxd", "not_pod_type", "virsh"}
}

func (m *maas) allocate(t *testing.T, pairs ...string) *answer {
	t.Helper()
	return m.op(t, "machines/", "allocate", pairs...)
}

func TestAllocateTakesTheMachineForTheCaller(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.spare(t)
		got := m.allocate(t, "system_id", spare.str("system_id"), "comment", "conformance").object(t)
		checkShape(t, "allocated machine", got, m.machineShape())
		if got.str("system_id") != spare.str("system_id") || got.str("status_name") != "Allocated" || got.int("status") != 10 {
			t.Errorf("allocated %s: %s (%d), want %s: Allocated (10)",
				got.str("system_id"), got.str("status_name"), got.int("status"), spare.str("system_id"))
		}
		if got.str("owner") != m.me(t) {
			t.Errorf("owner %v, want %s", got["owner"], m.me(t))
		}
	})
}

func TestAllocateSetsTheAgentName(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		agent := uniqueName()
		spare := m.allocated(t, "agent_name", agent)
		if got := systemIDs(m.machines(t, "agent_name", agent)); !cmp.Equal(got, systemIDs([]object{spare})) {
			t.Errorf("machines of %s: %v, want %s alone", agent, got, spare.str("system_id"))
		}
	})
}

func TestAllocateBareMetalAndRelease(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		agent := uniqueName()
		machine := m.borrow(t, "agent_name", agent)
		systemID := machine.str("system_id")
		if machine.str("status_name") != "Allocated" || machine.str("owner") != m.me(t) {
			t.Errorf("%s of %v, want Allocated and mine", machine.str("status_name"), machine["owner"])
		}
		released := m.op(t, machinePath(systemID), "release").object(t)
		if released.str("system_id") != systemID {
			t.Errorf("released %s, want %s", released.str("system_id"), systemID)
		}
		ready := m.awaitStatus(t, systemID, "Ready")
		if ready.at("owner") != nil {
			t.Errorf("the owner of a Ready machine is %v", ready["owner"])
		}
		if found := m.machines(t, "agent_name", agent); len(found) != 0 {
			t.Errorf("after the release %v still carry the agent name", systemIDs(found))
		}
	})
}

func TestAllocateDryRunTakesNothing(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare, agent := m.spare(t), uniqueName()
		got := m.allocate(t, "system_id", spare.str("system_id"), "dry_run", "true", "agent_name", agent).object(t)
		if got.str("system_id") != spare.str("system_id") {
			t.Errorf("picked %s, want %s", got.str("system_id"), spare.str("system_id"))
		}
		after := m.machine(t, spare.str("system_id"))
		if after.str("status_name") != "Ready" || after.at("owner") != nil {
			t.Errorf("%s of %v after a dry run, want Ready and nobody's", after.str("status_name"), after["owner"])
		}
		if found := m.machines(t, "agent_name", agent); len(found) != 0 {
			t.Errorf("a dry run gave %v the agent name", systemIDs(found))
		}
	})
}

func TestAllocateUnavailableSystemIDConflicts(t *testing.T) {
	tests := []struct {
		name     string
		systemID func(t *testing.T, m *maas) string
	}{
		{"unknown", func(*testing.T, *maas) string { return "nosuch" }},
		{"New", func(t *testing.T, m *maas) string { return m.newMachine(t).str("system_id") }},
		{"Deployed", func(t *testing.T, m *maas) string { return m.newDeployedMachine(t).str("system_id") }},
		{"Allocated", func(t *testing.T, m *maas) string { return m.allocated(t).str("system_id") }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			each(t, func(t *testing.T, m *maas) {
				systemID := test.systemID(t, m)
				m.allocate(t, "system_id", systemID).
					refuses(t, http.StatusConflict, "No machine with system ID "+systemID+" available.")
			})
		})
	}
}

func TestAllocateWithoutMatchNamesTheConstraints(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		zone := m.newZone(t).str("name")
		pairs := append([]string{"zone", zone, "cpu_count", "64"}, m.noComposing()...)
		m.allocate(t, pairs...).refuses(t, http.StatusConflict,
			"No available machine matches constraints: [(", "('zone', ['"+zone+"'])", "('cpu_count', ['64'])",
			`(resolved to "cpu_count=64.0 `, "zone="+zone)
	})
}

func TestAllocateRefusesBadConstraints(t *testing.T) {
	tests := []struct{ name, constraint, value, text string }{
		{"unknown constraint", "bogus", "x", "No such constraint."},
		{"unknown zone", "zone", "nosuch", "No such zone(s): nosuch."},
		{"unknown pool", "pool", "nosuch", "No such pool(s): nosuch."},
		{"unknown tag", "tags", "nosuch", "No such tag(s): 'nosuch'."},
		{"memory that is no number", "mem", "much", "Invalid memory: number of MiB required."},
		{"cores that are no number", "cpu_count", "many", "Invalid CPU count: number required."},
		{"unknown architecture", "arch", "nosuch", "Architecture not recognised."},
		{"malformed storage", "storage", "garbage", `Malformed storage constraint, "garbage".`},
		{"a filter of the list", "hostname", "x", "No such constraint."},
		{"an opposite that MAAS lacks", "not_system_id", "x", "No such constraint."},
		{"unknown interface key", "interfaces", "x:bogus=1", "Unknown interfaces constraint: 'bogus"},
		{"an interface without its key", "interfaces", "eth0", "Malformed constraint: 'eth0' (required format: "},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			each(t, func(t *testing.T, m *maas) {
				// The id keeps a MAAS that accepts the constraint from allocating a machine.
				m.allocate(t, test.constraint, test.value, "system_id", "nosuch").
					refusesField(t, test.constraint, test.text)
			})
		})
	}
}

// TestAllocateConstraints tries each constraint on one VM, with values that it meets and values that it does not.
func TestAllocateConstraints(t *testing.T) {
	type attempt struct {
		name  string
		pairs []string
		fits  bool
	}
	each(t, func(t *testing.T, m *maas) {
		zone, pool := m.newZone(t), m.newPool(t)
		spare := m.spare(t, "zone", zone.id("id"), "pool", pool.id("id"), "cores", "2")
		tagged, untagged := m.newTag(t, spare), m.newTag(t)
		host, arch, elsewhere := spare.str("pod", "name"), spare.str("architecture"), m.newMachine(t)
		attempts := []attempt{
			{"no constraint", nil, true},
			{"zone", []string{"zone", zone.str("name")}, true},
			{"another zone", []string{"zone", elsewhere.str("zone", "name")}, false},
			{"pool", []string{"pool", pool.str("name")}, true},
			{"another pool", []string{"pool", elsewhere.str("pool", "name")}, false},
			{"tag", []string{"tags", tagged}, true},
			{"tag that it lacks", []string{"tags", untagged}, false},
			{"all tags", []string{"tags", tagged, "tags", untagged}, false},
			{"not_tags", []string{"not_tags", tagged}, false},
			{"not_tags of a tag that it lacks", []string{"not_tags", untagged}, true},
			{"cpu_count", []string{"cpu_count", "2"}, true},
			{"too much cpu_count", []string{"cpu_count", "3"}, false},
			{"mem", []string{"mem", spare.id("memory")}, true},
			{"too much mem", []string{"mem", "100000"}, false},
			{"arch", []string{"arch", arch}, true},
			{"primary arch", []string{"arch", strings.Split(arch, "/")[0]}, true},
			{"pod", []string{"pod", host}, true},
			{"not_pod", []string{"not_pod", host}, false},
			{"not_pod_type", []string{"not_pod_type", "lxd"}, false},
			{"not_hostname", []string{"interfaces", "other:not_hostname=" + spare.str("hostname")}, false},
			{"not_hostname of several", []string{"interfaces", "other:not_hostname=nosuch,not_hostname=" + spare.str("hostname")}, false},
			{"not_hostname of others", []string{"interfaces", "other:not_hostname=nosuch,not_hostname=neither"}, true},
			{"storage", []string{"storage", "root:4"}, true},
			{"too much storage", []string{"storage", "root:100000"}, false},
			{"all at once", []string{"zone", zone.str("name"), "pool", pool.str("name"), "tags", tagged, "cpu_count", "1"}, true},
			{"all but one", []string{"zone", zone.str("name"), "pool", pool.str("name"), "tags", untagged}, false},
		}
		for _, a := range attempts {
			pairs := append([]string{"system_id", spare.str("system_id"), "dry_run", "true"}, a.pairs...)
			got, want := m.allocate(t, pairs...), http.StatusOK
			if !a.fits {
				want = http.StatusConflict
			}
			if got.status != want {
				t.Errorf("%s: %d %s, want %d", a.name, got.status, got.excerpt(), want)
			}
		}
	})
}

// Tags that stand in one value, separated by commas or blanks, are an old form of the same.
func TestAllocateTakesTagsInOneValue(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.spare(t)
		tagged, untagged := m.newTag(t, spare), m.newTag(t)
		for _, separator := range []string{",", " ", ", "} {
			m.allocate(t, "system_id", spare.str("system_id"), "dry_run", "true", "tags", tagged+separator+untagged).
				refuses(t, http.StatusConflict)
		}
	})
}

func TestAllocateByPlainUserIsTheirs(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		plain := m.asPlainUser(t)
		spare := m.spare(t)
		got := plain.allocate(t, "system_id", spare.str("system_id")).object(t)
		if got.str("owner") != plain.me(t) {
			t.Errorf("owner %v, want %s", got["owner"], plain.me(t))
		}
	})
}

// If no machine fits and no system_id is named, MAAS composes a VM on a host that fits and allocates it to any caller
// (get_pods in maasserver/models/bmc.py); releasing that VM deletes it.
func TestAllocateComposesAndReleaseDeletes(t *testing.T) {
	for name, as := range map[string]func(t *testing.T, m *maas) *maas{
		"administrator": func(_ *testing.T, m *maas) *maas { return m },
		"plain user":    func(t *testing.T, m *maas) *maas { return m.asPlainUser(t) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, m *maas) {
				host, user := m.vmHostWithRoom(t), as(t, m)
				if has(m.machines(t, "pod", host.str("name"), "status", "ready", "cpu_count", "2"), "status_name", "Ready") {
					lacks(t, "VM host %s has a Ready VM, which would be taken instead", host.str("name"))
				}
				agent := uniqueName()
				t.Cleanup(func() {
					for _, machine := range m.machines(t, "agent_name", agent) {
						m.removeMachine(t, machine)
					}
				})
				got := user.allocate(t, "pod", host.str("name"), "cpu_count", "2", "agent_name", agent).object(t)
				if got.str("status_name") != "Allocated" || got.str("owner") != user.me(t) || got.str("pod", "name") != host.str("name") {
					t.Errorf("%s, owner %v, on %s; want Allocated, mine, on %s",
						got.str("status_name"), got["owner"], got.str("pod", "name"), host.str("name"))
				}
				if got.int("cpu_count") != 2 {
					t.Errorf("cpu_count %d, want 2", got.int("cpu_count"))
				}
				user.op(t, machinePath(got.str("system_id")), "release").object(t)
				m.awaitNoMachine(t, got.str("system_id"))
			})
		})
	}
}

func TestAllocateDoesNotComposeWhenExcluded(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		zone := m.newZone(t).str("name")
		before := len(m.machines(t))
		m.allocate(t, append([]string{"zone", zone}, m.noComposing()...)...).refuses(t, http.StatusConflict)
		if after := len(m.machines(t)); !m.real && after != before {
			t.Errorf("%d machines before, %d after", before, after)
		}
	})
}

// Only saving the machine shows that the name is too long (acquire in maasserver/models/node.py): a dry run does not,
// and errors of the constraints come first.
func TestAllocateWithATooLongAgentName(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare, agent := m.spare(t), strings.Repeat("x", 300)
		pairs := []string{"system_id", spare.str("system_id"), "agent_name", agent}
		m.allocate(t, append(pairs, "zone", "nosuch")...).refusesField(t, "zone", "No such zone(s): nosuch.")
		m.allocate(t, append(pairs, "dry_run", "true")...).object(t)
		const text = "Ensure this value has at most 255 characters (it has 300)."
		m.allocate(t, pairs...).refusesField(t, "agent_name", text)
		m.deploy(t, spare, "agent_name", agent).refusesField(t, "agent_name", text)
		if after := m.machine(t, spare.str("system_id")); after.str("status_name") != "Ready" || after.at("owner") != nil {
			t.Errorf("%s of %v after the refusals, want Ready and nobody's", after.str("status_name"), after["owner"])
		}
	})
}
