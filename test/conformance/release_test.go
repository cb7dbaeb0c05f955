// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func (m *maas) release(t *testing.T, machine object, pairs ...string) *answer {
	t.Helper()
	return m.op(t, machinePath(machine.str("system_id")), "release", pairs...)
}

func TestReleaseOfReadyMachineChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.spare(t)
		got := m.release(t, spare, "comment", "conformance").object(t)
		if got.str("status_name") != "Ready" {
			t.Errorf("%s after the release of a Ready machine, want Ready", got.str("status_name"))
		}
	})
}

func TestReleaseInWrongStateConflicts(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.release(t, m.newMachine(t)).refuses(t, http.StatusConflict,
			"Machine cannot be released in its current state ('New').")
	})
}

// What a machine does at a user's request must end before it can be released.
func TestReleaseInRescueModeConflicts(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.spare(t)
		id := spare.str("system_id")
		m.machineOp(t, spare, "rescue_mode").object(t)
		m.awaitStatus(t, id, "Rescue mode")
		m.release(t, spare).refuses(t, http.StatusConflict, "Machine cannot be released in its current state ('Rescue mode').")
		exiting := m.machineOp(t, spare, "exit_rescue_mode").object(t)
		if status := exiting.str("status_name"); status != "Exiting rescue mode" && status != "Ready" {
			t.Errorf("%s, want Exiting rescue mode", status)
		}
		if ready := m.awaitStatus(t, id, "Ready"); ready.at("owner") != nil {
			t.Errorf("owner %v, want nobody", ready["owner"])
		}
		m.machineOp(t, spare, "exit_rescue_mode").refuses(t, http.StatusConflict)
	})
}

// An aborted test leaves the machine to its owner, who can then release it.
func TestReleaseWhileTestedConflictsUntilTheTestIsAborted(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		agent := uniqueName()
		spare := m.deployed(t, "agent_name", agent)
		m.machineOp(t, spare, "test").object(t)
		refused := m.release(t, spare)
		if refused.status == http.StatusOK {
			lacks(t, "this MAAS tests faster than it can be stopped")
		}
		refused.refuses(t, http.StatusConflict, "Machine cannot be released in its current state ('Testing').")
		m.machineOp(t, spare, "abort", "comment", "conformance").object(t)
		aborted := m.awaitStatus(t, spare.str("system_id"), "Deployed")
		if aborted.str("owner") != m.me(t) {
			t.Errorf("owner %v, want %s still", aborted["owner"], m.me(t))
		}
		if found := systemIDs(m.machines(t, "agent_name", agent)); !cmp.Equal(found, systemIDs([]object{spare})) {
			t.Errorf("machines of the agent name after the test: %v, want %s", found, spare.str("system_id"))
		}
		m.release(t, spare).object(t)
	})
}

// A machine that is off, or that MAAS cannot switch, does not wait for anything.
func TestReleaseOfAMachineThatIsOffIsDoneAtOnce(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		got := m.release(t, m.newDeployedMachine(t)).object(t)
		if got.at("owner") != nil {
			t.Errorf("owner %v, want nobody", got["owner"])
		}
	})
}

// MAAS makes only machines Ready that passed commissioning; others become New.
func TestReleaseOfAnUncommissionedMachineEndsNew(t *testing.T) {
	eachWith(t, []need{vmHosts}, func(t *testing.T, m *maas) { // A VM is Ready without that.
		spare := m.allocated(t)
		m.release(t, spare).object(t)
		m.awaitStatus(t, spare.str("system_id"), "New")
	})
}

func TestReleaseClearsTheAgentName(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		agent := uniqueName()
		spare := m.deployed(t, "agent_name", agent)
		if len(m.machines(t, "agent_name", agent)) != 1 {
			t.Fatalf("the deployed machine does not carry the agent name")
		}
		m.release(t, spare).object(t)
		if found := m.machines(t, "agent_name", agent); len(found) != 0 {
			t.Errorf("%v still carry the agent name right after the release", systemIDs(found))
		}
	})
}

// MAAS puts the status back when it can't switch the machine off; whose it is stays. (That its agent name does not
// can't be shown without spoiling the power driver of a machine that was allocated.) Nothing responds at an address of
// TEST-NET-1.
func TestReleaseOfAMachineThatCannotBeSwitchedOffLeavesItToItsOwner(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		name := uniqueName()
		machine := m.newDeployedMachine(t, "hostname", name, "power_type", "lxd",
			"power_parameters_power_address", "https://192.0.2.99:8443", "power_parameters_instance_name", name)
		id, agent := machine.str("system_id"), uniqueName()
		if machine.str("power_state") == "off" {
			lacks(t, "this MAAS takes for off what it cannot ask")
		}
		m.machineOp(t, machine, "set_workload_annotations", "owner", agent).object(t)
		if got := m.release(t, machine); got.status < http.StatusInternalServerError {
			t.Fatalf("%d %s, want an error of MAAS's", got.status, got.body)
		}
		kept := m.awaitStatus(t, id, "Deployed")
		if kept.str("owner") != m.me(t) || kept.str("workload_annotations", "owner") != agent {
			t.Errorf("owner %v, annotations %v; want %s, and what they were", kept["owner"], kept["workload_annotations"], m.me(t))
		}
	})
}

func TestReleaseGivesBackAutoAddresses(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.deployed(t)
		m.release(t, spare).object(t)
		released := m.awaitMachine(t, spare.str("system_id"), "released", func(o object) bool { return o.at("owner") == nil })
		if got := released.strings("ip_addresses"); len(got) != 0 {
			t.Errorf("addresses %v after the release, had %v", got, spare.strings("ip_addresses"))
		}
		if power := released.str("power_state"); power != "off" {
			t.Errorf("power %s after the release, want off", power)
		}
	})
}

func TestReleaseKeepsStaticAddresses(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.spare(t)
		address := m.giveStaticAddress(t, spare)
		m.allocate(t, "system_id", spare.str("system_id")).object(t)
		m.release(t, spare).object(t)
		released := m.awaitMachine(t, spare.str("system_id"), "released", func(o object) bool { return o.at("owner") == nil })
		if got := released.strings("ip_addresses"); !cmp.Equal(got, []string{address}) {
			t.Errorf("addresses %v after the release, want %s", got, address)
		}
	})
}

// skipWhereAllIsErased skips if MAAS's own settings require erasing: a release's parameters have no effect then, or are
// shown in another way.
func (m *maas) skipWhereAllIsErased(t *testing.T) {
	t.Helper()
	var always bool
	m.get(t, "maas/?op=get_config&name=enable_disk_erasing_on_release").ok(t).into(t, &always)
	if always {
		lacks(t, "the settings of this MAAS have all disks erased")
	}
}

func TestReleaseWithEraseIsDiskErasingFirst(t *testing.T) {
	for kind, flags := range map[string][]string{
		"quick":  {"quick_erase", "true", "secure_erase", "false"},
		"secure": {"quick_erase", "false", "secure_erase", "true"},
	} {
		t.Run(kind, func(t *testing.T) {
			each(t, func(t *testing.T, m *maas) {
				m.skipWhereAllIsErased(t)
				agent := uniqueName()
				spare := m.deployed(t, "agent_name", agent)
				erasing := m.release(t, spare, append(flags, "erase", "true", "comment", "conformance")...).object(t)
				if erasing.str("status_name") != "Disk erasing" || erasing.int("status") != 14 || erasing.str("owner") != m.me(t) {
					t.Errorf("%s (%d) of %v, want Disk erasing (14), mine still",
						erasing.str("status_name"), erasing.int("status"), erasing["owner"])
				}
				if found := systemIDs(m.machines(t, "agent_name", agent)); !cmp.Equal(found, systemIDs([]object{spare})) {
					t.Errorf("machines of the agent name while disks are erased: %v, want %s", found, spare.str("system_id"))
				}
				released := m.awaitMachine(t, spare.str("system_id"), "erased and released", func(o object) bool { return o.at("owner") == nil })
				if power := released.str("power_state"); power != "off" {
					t.Errorf("power %s after the release, want off", power)
				}
			})
		})
	}
}

func TestReleaseWithoutEraseDoesNotErase(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.skipWhereAllIsErased(t)
		spare := m.deployed(t)
		if got := m.release(t, spare, "erase", "false", "quick_erase", "false", "secure_erase", "false").object(t); got.str("status_name") == "Disk erasing" {
			t.Error("Disk erasing after a release that does not ask for it")
		}
	})
}

func TestReleaseWhileDisksAreErasedConflicts(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.skipWhereAllIsErased(t)
		spare := m.deployed(t)
		m.release(t, spare, "erase", "true", "quick_erase", "false", "secure_erase", "false").object(t)
		m.release(t, spare).refuses(t, http.StatusConflict, "Machine cannot be released in its current state ('Disk erasing').")
	})
}

// Erasing that failed, here by an abort, leaves the machine with its owner and agent name; it can be released again,
// also without erasing.
func TestReleaseAfterErasingFailed(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.skipWhereAllIsErased(t)
		agent := uniqueName()
		spare := m.deployed(t, "agent_name", agent)
		m.release(t, spare, "erase", "true", "quick_erase", "false", "secure_erase", "false").object(t)
		m.machineOp(t, spare, "abort").object(t)
		failed := m.awaitStatus(t, spare.str("system_id"), "Failed disk erasing")
		if failed.int("status") != 15 || failed.str("owner") != m.me(t) {
			t.Errorf("status %d of %v, want 15, mine still", failed.int("status"), failed["owner"])
		}
		if found := systemIDs(m.machines(t, "agent_name", agent)); !cmp.Equal(found, systemIDs([]object{spare})) {
			t.Errorf("machines of the agent name after erasing failed: %v, want %s", found, spare.str("system_id"))
		}
		m.release(t, spare).object(t)
		m.awaitMachine(t, spare.str("system_id"), "released", func(o object) bool { return o.at("owner") == nil })
	})
}

func TestReleaseOfAnotherUsersMachineIsForbidden(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		plain := m.asPlainUser(t)
		plain.release(t, m.allocated(t)).refusesSilently(t, http.StatusForbidden)
	})
}
