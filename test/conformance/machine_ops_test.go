// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"slices"
	"testing"
)

// machineOp asks for an operation on a machine.
func (m *maas) machineOp(t *testing.T, machine object, op string, pairs ...string) *answer {
	t.Helper()
	return m.op(t, machinePath(machine.str("system_id")), op, pairs...)
}

func TestPowerStateIsQueriedByGET(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.spare(t)
		got := m.get(t, machinePath(spare.str("system_id")), "op", "query_power_state").object(t)
		if len(got) != 1 || got.str("state") != "off" {
			t.Errorf("power state of a new VM: %v, want {state: off}", got)
		}
	})
}

func TestPowerOnOfUnallocatedMachineConflicts(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.machineOp(t, m.spare(t), "power_on").refuses(t, http.StatusConflict, "Can't start node: it hasn't been allocated.")
	})
}

func TestPowerOffAndOn(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.deployed(t)
		for _, state := range []string{"off", "on"} {
			got := m.machineOp(t, spare, "power_"+state).object(t)
			if got.str("system_id") != spare.str("system_id") {
				t.Errorf("power_%s responds %s, want %s", state, got.str("system_id"), spare.str("system_id"))
			}
			after := m.awaitMachine(t, spare.str("system_id"), state, func(o object) bool {
				return o.str("power_state") == state
			})
			if after.str("status_name") != "Deployed" {
				t.Errorf("%s when the power is %s, want Deployed", after.str("status_name"), state)
			}
			if got := m.get(t, machinePath(spare.str("system_id")), "op", "query_power_state").object(t).str("state"); got != state {
				t.Errorf("the power that is queried is %s, want %s", got, state)
			}
		}
	})
}

// A Deployed machine that is off keeps its addresses: only a machine that is being given back loses them.
func TestPoweredOffDeployedMachineKeepsItsAddresses(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.deployed(t)
		m.machineOp(t, spare, "power_off", "stop_mode", "soft").object(t)
		off := m.awaitMachine(t, spare.str("system_id"), "off", func(o object) bool { return o.str("power_state") == "off" })
		if !slices.Equal(off.strings("ip_addresses"), spare.strings("ip_addresses")) {
			t.Errorf("addresses %v when off, %v before", off.strings("ip_addresses"), spare.strings("ip_addresses"))
		}
	})
}

func TestAbortOfADeploymentEndsAllocated(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.spare(t)
		m.deploy(t, spare).object(t)
		aborted := m.machineOp(t, spare, "abort", "comment", "conformance")
		if aborted.status == http.StatusConflict && m.machine(t, spare.str("system_id")).str("status_name") == "Deployed" {
			lacks(t, "this MAAS deploys faster than it can be stopped")
		}
		aborted.object(t)
		allocated := m.awaitStatus(t, spare.str("system_id"), "Allocated")
		if allocated.str("owner") != m.me(t) {
			t.Errorf("owner %v, want %s still", allocated["owner"], m.me(t))
		}
	})
}

func TestAbortInWrongStateConflicts(t *testing.T) {
	tests := []struct {
		state   string
		machine func(t *testing.T, m *maas) object
	}{
		{"Ready", func(t *testing.T, m *maas) object { return m.spare(t) }},
		{"Allocated", func(t *testing.T, m *maas) object { return m.allocated(t) }},
		{"Deployed", func(t *testing.T, m *maas) object { return m.newDeployedMachine(t) }},
	}
	for _, test := range tests {
		t.Run(test.state, func(t *testing.T) {
			each(t, func(t *testing.T, m *maas) {
				machine := test.machine(t, m)
				m.machineOp(t, machine, "abort").refuses(t, http.StatusConflict, "Cannot abort in current state: node "+
					machine.str("system_id")+" is in state "+test.state+".")
			})
		})
	}
}

// brokenVM is a VM of ours that was taken and then marked broken.
func (m *maas) broken(t *testing.T) object {
	t.Helper()
	return m.machineOp(t, m.allocated(t), "mark_broken", "comment", "conformance").object(t)
}

func TestMarkBrokenReleasesTheMachine(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		agent := uniqueName()
		spare := m.allocated(t, "agent_name", agent)
		got := m.machineOp(t, spare, "mark_broken", "comment", "conformance").object(t)
		if got.str("status_name") != "Broken" || got.int("status") != 8 {
			t.Errorf("%s (%d), want Broken (8)", got.str("status_name"), got.int("status"))
		}
		after := m.machine(t, spare.str("system_id"))
		if after.at("owner") != nil || after.str("status_name") != "Broken" {
			t.Errorf("%s of %v, want Broken and nobody's", after.str("status_name"), after["owner"])
		}
		if found := m.machines(t, "agent_name", agent); len(found) != 0 {
			t.Errorf("%v still carry the agent name", systemIDs(found))
		}
	})
}

func TestBrokenMachineIsNotAllocated(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.allocate(t, "system_id", m.broken(t).str("system_id")).refuses(t, http.StatusConflict)
	})
}

func TestLockForbidsChanges(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.newDeployedMachine(t)
		path := machinePath(machine.str("system_id"))
		if locked := m.machineOp(t, machine, "lock", "comment", "conformance").object(t); !locked.flag("locked") {
			t.Errorf("locked %v after lock", locked["locked"])
		}
		m.release(t, machine).refusesSilently(t, http.StatusForbidden)
		m.delete(t, path).refusesSilently(t, http.StatusForbidden)
		m.put(t, path, "description", "x").refusesSilently(t, http.StatusForbidden)
		m.machineOp(t, machine, "power_off").refusesSilently(t, http.StatusForbidden)
		m.machineOp(t, machine, "power_on").refusesSilently(t, http.StatusForbidden)
		m.machineOp(t, machine, "set_workload_annotations", "a", "b").refusesSilently(t, http.StatusForbidden)
		m.machineOp(t, machine, "lock").refuses(t, http.StatusConflict, "Machine is already locked")
	})
}

func TestUnlockAllowsChangesAgain(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.newDeployedMachine(t)
		m.machineOp(t, machine, "unlock").refuses(t, http.StatusConflict, "Machine is not locked")
		m.machineOp(t, machine, "lock").object(t)
		if unlocked := m.machineOp(t, machine, "unlock").object(t); unlocked.flag("locked") {
			t.Error("locked after unlock")
		}
		m.release(t, machine).object(t)
	})
}

func TestPowerParametersAreForAdministrators(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		path := machinePath(m.newMachine(t).str("system_id"))
		m.get(t, path, "op", "power_parameters").object(t)
		m.asPlainUser(t).get(t, path, "op", "power_parameters").refusesSilently(t, http.StatusForbidden)
	})
}
