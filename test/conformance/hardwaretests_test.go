// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// script uploads a testing script that returns a number, with a tag, until the case ends.
func (m *maas) script(t *testing.T, returns, tag string) string {
	t.Helper()
	name := uniqueName()
	t.Cleanup(func() { m.delete(t, "scripts/"+name).wants(t, http.StatusNoContent) })
	m.create(t, "scripts/", "name", name, "type", "testing", "tags", tag, "timeout", "60",
		"script", "#!/bin/sh\nexit "+returns+"\n").object(t)
	return name
}

// testSet returns the results of the machine's last tests by their scripts, and the set.
func (m *maas) testSet(t *testing.T, systemID string) (results map[string]object, set object) {
	t.Helper()
	id := m.machine(t, systemID).id("current_testing_result_id")
	results = map[string]object{}
	for _, one := range m.get(t, "nodes/"+systemID+"/results/", "type", "testing").list(t) {
		if one.id("id") == id {
			set = one
		}
	}
	for _, result := range set.objects("results") {
		results[result.str("name")] = result
	}
	return results, set
}

func TestScriptsThatComeWithMAAS(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		found := map[string]object{}
		for _, one := range m.get(t, "scripts/", "type", "testing").list(t) {
			checkShape(t, one.str("name"), one, shapes["script"])
			found[one.str("name")] = one
		}
		for name, timeout := range map[string]string{
			"smartctl-validate": "0:05:00", "smartctl-short": "0:10:00", "smartctl-long": "0:00:00", "smartctl-conveyance": "0:00:00",
			"memtester": "0:00:00", "stress-ng-cpu-long": "14:00:00", "stress-ng-cpu-short": "0:05:00", "stress-ng-memory-long": "14:00:00",
			"stress-ng-memory-short": "0:05:00", "ntp": "0:01:00", "badblocks": "0:00:00", "badblocks-destructive": "0:00:00", "7z": "0:05:00",
			"fio": "0:00:00", "internet-connectivity": "0:05:00", "gateway-connectivity": "0:05:00", "rack-controller-connectivity": "0:05:00",
		} {
			one := found[name]
			if one == nil || !one.flag("default") || one.str("timeout") != timeout {
				t.Errorf("%s: default %v, timeout %v, want %s", name, one.at("default"), one.at("timeout"), timeout)
			}
		}
		if tags := found["smartctl-validate"].strings("tags"); !slices.Contains(tags, "commissioning") || !slices.Contains(tags, "storage") {
			t.Errorf("smartctl-validate has the tags %v", tags)
		}
		if fio := found["fio"]; !fio.flag("destructive") || !slices.Contains(fio.strings("tags"), "destructive") || fio.str("parameters", "storage", "type") != "storage" {
			t.Errorf("fio is %v", fio)
		}
		m.delete(t, "scripts/fio").refuses(t, http.StatusBadRequest, "Unable to delete default script")
	})
}

func TestTestsThatAreRefused(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		fresh := m.newMachine(t)
		m.machineOp(t, fresh, "test").refuses(t, http.StatusBadRequest, "this node has never been commissioned")
		deployed := m.newDeployedMachine(t)
		m.machineOp(t, deployed, "test", "testing_scripts", "fio").refusesField(t, "testing_scripts",
			"Destructive tests may only be run on undeployed machines.")
		m.machineOp(t, deployed, "test", "testing_scripts", "memtester,no-such-script").refusesField(t, "testing_scripts",
			"Select a valid choice. no-such-script is not one of the available choices.")
		m.machineOp(t, deployed, "test", "testing_scripts", "smartctl-validate", "storage", "no-such-disk").refusesField(t, "storage",
			"Select a valid choice. no-such-disk is not one of the available choices.")
		m.machineOp(t, deployed, "override_failed_testing").refuses(t, http.StatusConflict,
			"Unable to override node status. Node is not in 'Failed testing' status.")
		m.machineOp(t, deployed, "lock").object(t)
		m.machineOp(t, deployed, "test").refusesSilently(t, http.StatusForbidden)
		m.get(t, "nodes/nosuch/results/", "type", "testing").refuses(t, http.StatusNotFound, "No Node matches the given query.")
	})
}

func TestTestsAreForAdministrators(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		id := m.newMachine(t).str("system_id")
		plain := m.asPlainUser(t)
		plain.op(t, machinePath(id), "test").refusesSilently(t, http.StatusForbidden)
		plain.op(t, machinePath(id), "override_failed_testing").refusesSilently(t, http.StatusForbidden)
		plain.create(t, "scripts/", "name", uniqueName(), "script", "#!/bin/sh\n").wants(t, http.StatusForbidden)
		if scripts := plain.get(t, "scripts/", "type", "testing").list(t); len(scripts) == 0 {
			t.Error("a plain user sees no scripts")
		}
	})
}

// The owner keeps the machine, which is switched off afterwards.
func TestAnAcquiredMachineIsTested(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		agent, tag := uniqueName(), uniqueName()
		one, two := m.script(t, "0", tag), m.script(t, "0", tag)
		machine := m.allocated(t, "agent_name", agent)
		id, before := machine.str("system_id"), machine.int("current_testing_result_id")
		began := m.machineOp(t, machine, "test", "testing_scripts", tag).object(t)
		if began.str("status_name") != "Testing" || began.str("owner") != m.me(t) || began.int("current_testing_result_id") <= before {
			t.Errorf("%s, owner %v, set %v after %d", began.str("status_name"), began["owner"], began["current_testing_result_id"], before)
		}
		m.machineOp(t, machine, "test").refusesField(t, "__all__", "Test is not available because of the current state of the node.")
		m.awaitStatus(t, id, "Allocated")
		tested := m.awaitMachine(t, id, "off", func(o object) bool { return o.str("power_state") == "off" })
		if tested.str("status_name") != "Allocated" || tested.str("owner") != m.me(t) {
			t.Errorf("%s, owner %v", tested.str("status_name"), tested["owner"])
		}
		if found := systemIDs(m.machines(t, "agent_name", agent)); !cmp.Equal(found, []string{id}) {
			t.Errorf("machines of the agent name: %v", found)
		}
		results, set := m.testSet(t, id)
		checkShape(t, "script set", set, shapes["script set"])
		for _, name := range []string{one, two} {
			result := results[name]
			checkShape(t, "test result", result, shapes["test result"])
			if result.str("status_name") != "Passed" || result.id("exit_status") != "0" || result.at("output") != nil {
				t.Errorf("the result of %s is %v", name, result)
			}
			for _, key := range []string{"started", "ended"} {
				if _, err := time.Parse(time.RFC1123Z, result.str(key)); err != nil {
					t.Errorf("%s: %v", key, err)
				}
			}
		}
		with := m.get(t, "nodes/"+id+"/results/"+set.id("id")+"/", "include_output", "true", "filters", results[one].id("id")).object(t)
		if shown := with.objects("results"); len(shown) != 1 || jsonType(shown[0].at("output")) != "s" {
			t.Errorf("with its output: %v", shown)
		}
	})
}

// All scripts run. The machine can't be released: it is nobody's once the failure is overridden, and still marked.
func TestATestThatFailsAndIsOverridden(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		agent, tag := uniqueName(), uniqueName()
		good, bad := m.script(t, "0", tag), m.script(t, "3", tag)
		machine := m.allocated(t, "agent_name", agent)
		id := machine.str("system_id")
		m.machineOp(t, machine, "test", "testing_scripts", good+","+bad).object(t)
		failed := m.awaitStatus(t, id, "Failed testing")
		if failed.str("owner") != m.me(t) || failed.str("testing_status_name") != "Failed" || failed.str("other_test_status_name") != "Failed" {
			t.Errorf("owner %v, tests %v, of the node %v", failed["owner"], failed["testing_status_name"], failed["other_test_status_name"])
		}
		results, _ := m.testSet(t, id)
		if results[good].str("status_name") != "Passed" || results[bad].str("status_name") != "Failed" || results[bad].id("exit_status") != "3" {
			t.Errorf("the results are %v", results)
		}
		m.release(t, machine).refuses(t, http.StatusConflict, "Machine cannot be released in its current state ('Failed testing').")
		over := m.machineOp(t, machine, "override_failed_testing", "comment", "conformance").object(t)
		if over.str("status_name") != "Ready" || over.at("owner") != nil || over.str("testing_status_name") != "Failed" {
			t.Errorf("%s, owner %v, tests %v", over.str("status_name"), over["owner"], over["testing_status_name"])
		}
		if found := systemIDs(m.machines(t, "agent_name", agent)); !cmp.Equal(found, []string{id}) {
			t.Errorf("machines of the agent name: %v", found)
		}
	})
}

// Its owner can release a machine that failed its tests once it is broken: then nothing marks it.
func TestABrokenMachineThatFailedItsTestsIsReleased(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		agent := uniqueName()
		bad := m.script(t, "1", uniqueName())
		machine := m.allocated(t, "agent_name", agent)
		id := machine.str("system_id")
		m.machineOp(t, machine, "test", "testing_scripts", bad).object(t)
		m.awaitStatus(t, id, "Failed testing")
		if broken := m.machineOp(t, machine, "mark_broken").object(t); broken.str("status_name") != "Broken" || broken.str("owner") != m.me(t) {
			t.Errorf("%s, owner %v", broken.str("status_name"), broken["owner"])
		}
		m.release(t, machine).object(t)
		m.awaitMachine(t, id, "nobody's", func(o object) bool { return o.at("owner") == nil })
		if found := m.machines(t, "agent_name", agent); len(found) > 0 {
			t.Errorf("machines of the agent name: %v", systemIDs(found))
		}
	})
}

// What was aborted is no result: neither it nor the one before counts.
func TestATestThatIsAborted(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		name := m.script(t, "0", uniqueName())
		machine := m.allocated(t)
		id := machine.str("system_id")
		before := m.machine(t, id).str("other_test_status_name")
		m.machineOp(t, machine, "test", "testing_scripts", name).object(t)
		if got := m.machineOp(t, machine, "abort"); got.status == http.StatusConflict {
			lacks(t, "this MAAS tests faster than it can be stopped")
		}
		m.awaitStatus(t, id, "Allocated")
		results, _ := m.testSet(t, id)
		if after := m.machine(t, id); results[name].str("status_name") != "Aborted" || after.str("other_test_status_name") != before {
			t.Errorf("the result is %v; of the node %v, want %v", results[name], after["other_test_status_name"], before)
		}
	})
}

// Of a repeated field, the last value counts; parameters that no script has don't.
func TestFieldsOfTests(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.allocated(t)
		id := machine.str("system_id")
		m.machineOp(t, machine, "test", "testing_scripts", "memtester", "testing_scripts", "badblocks,smartctl-validate",
			"badblocks_storage", machine.str("boot_disk", "name"), "no-such-parameter", "x").object(t)
		results, set := m.testSet(t, id)
		m.machineOp(t, machine, "abort")
		if results["memtester"] != nil || results["smartctl-validate"] == nil {
			t.Errorf("the results are %v", results)
		}
		if disk := results["badblocks"].str("parameters", "storage", "value", "name"); disk != machine.str("boot_disk", "name") {
			t.Errorf("badblocks is for %q: %v", disk, set)
		}
		m.awaitStatus(t, id, "Allocated")
	})
}
