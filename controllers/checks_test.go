// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/internal/states"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// shortTest is a script whose results MAAS has of each machine, from its commissioning; burnIn is one that has none.
const shortTest, burnIn = "smartctl-validate", "memtester"

func checked(checks infrav1.MachineChecks) infrav1.MaasMachineSpec {
	return infrav1.MaasMachineSpec{Checks: &checks}
}

// ofTemplate is a machine of the template metal.
func ofTemplate(m *metav1.ObjectMeta) {
	m.Annotations = map[string]string{clusterv1.TemplateClonedFromNameAnnotation: "metal"}
}

// proves waits until a MaasMachine and its Machine say what became of the checks.
func (w *world) proves(m *infrav1.MaasMachine, status metav1.ConditionStatus, reason string) (message string) {
	w.t.Helper()
	w.await(m.Name+"'s checks are "+reason, m, func(ctx context.Context) bool {
		machine := &clusterv1.Machine{}
		for _, object := range []client.Object{m, machine} {
			if err := w.client.Get(ctx, client.ObjectKeyFromObject(m), object); err != nil {
				return false
			}
			c := conditions.Get(object.(conditions.Getter), infrav1.HardwareProvenCondition)
			if c == nil || c.Status != status || c.Reason != reason {
				return false
			}
			message = c.Message
		}
		return true
	})
	return message
}

// ops are the calls that changed machines, in their order: one word each.
func (w *world) ops() (ops []string) {
	calls := w.maas.Calls().Log
	slices.SortFunc(calls, func(a, b simulator.Call) int { return a.Number - b.Number })
	for _, call := range calls {
		if call.Endpoint == "machines/{id}/" && call.Method == http.MethodPost {
			ops = append(ops, call.Op)
		}
	}
	return ops
}

// failing makes a script end badly on a machine.
func (w *world) failing(systemID, result, output string) {
	w.t.Helper()
	w.must(w.maas.SetTestOutcome(systemID, burnIn, simulator.TestOutcome{Result: result, Output: output}))
}

// everywhere is failing on all servers.
func (w *world) everywhere(result string) {
	w.t.Helper()
	for _, name := range []string{"metal-a", "metal-b"} {
		w.failing(w.named(name), result, "")
	}
}

func TestAServerIsTestedBeforeItIsDeployed(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	m := w.deployedMachine("metal", false, checked(infrav1.MachineChecks{Scripts: []string{burnIn, "cpu"}, Parameters: map[string]infrav1.CheckParameter{"runtime": "60"}}))
	if message := w.proves(m, metav1.ConditionTrue, infrav1.ChecksPassedReason); !strings.Contains(message, burnIn) || !strings.Contains(message, "/r/machine/"+m.Spec.SystemID+"/testing") {
		t.Errorf("it says %q", message)
	}
	ops := w.ops()
	if test, deploy := slices.Index(ops, "test"), slices.Index(ops, "deploy"); test < 0 || deploy < test || w.asked("machines/{id}/", "test") != 1 {
		t.Errorf("MAAS was asked for %v", ops)
	}
	if w.inQuarantine(m.Spec.SystemID) {
		t.Error("it is in quarantine")
	}
	w.delete(m)
	w.isBack(m.Spec.SystemID)
}

// isBack checks that nothing of ours is left on a server but the results of its tests.
func (w *world) isBack(systemID string) {
	w.t.Helper()
	m, _ := w.maas.Machine(systemID)
	if m.Status != "Ready" || m.AgentName != "" || m.Owner != "" {
		w.t.Errorf("MAAS has it as %s, of %q, with %q", m.Status, m.Owner, m.AgentName)
	}
}

// A server of choice is tested as any other.
func TestAServerOfChoiceIsTested(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	spec := checked(infrav1.MachineChecks{Scripts: []string{burnIn}})
	spec.SystemID = w.named("metal-b")
	m := w.deployedMachine("metal", false, spec)
	w.proves(m, metav1.ConditionTrue, infrav1.ChecksPassedReason)
	if w.asked("machines/{id}/", "test") != 1 {
		t.Errorf("MAAS was asked for %v", w.ops())
	}
}

func TestAYoungResultCostsNoTest(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	spec := checked(infrav1.MachineChecks{Scripts: []string{shortTest}, ValidForSeconds: 3600})
	m := w.deployedMachine("young", false, spec)
	w.proves(m, metav1.ConditionTrue, infrav1.ChecksPassedReason)
	if w.asked("machines/{id}/", "test") != 0 {
		t.Errorf("MAAS was asked for %v", w.ops())
	}
	other := w.named("metal-a")
	if m.Spec.SystemID == other {
		other = w.named("metal-b")
	}
	w.maas.AgeTests(other, 2*time.Hour)
	m = w.deployedMachine("old", false, spec)
	w.proves(m, metav1.ConditionTrue, infrav1.ChecksPassedReason)
	if m.Spec.SystemID != other || w.asked("machines/{id}/", "test") != 1 {
		t.Errorf("it is on %s, and MAAS was asked for %v", m.Spec.SystemID, w.ops())
	}
}

// A server that fails is never deployed: it is in quarantine before anybody may have it, and goes back to the pool
// without our mark; the next Machine gets another one.
func TestAServerThatFailsItsChecksGetsNoNode(t *testing.T) {
	t.Parallel()
	for _, result := range []string{"failed", "degraded", "dies"} {
		t.Run(result, func(t *testing.T) {
			t.Parallel()
			w, cluster := clusterWorld(t)
			bad := w.named("metal-a")
			w.failing(bad, result, "testing\npassword=hunter2\nFAILURE: 0x00 at 0x12\n")
			spec := checked(infrav1.MachineChecks{Scripts: []string{burnIn}})
			first := w.newMachine("first", false, infrav1.MaasMachineSpec{SystemID: bad, Checks: spec.Checks}, ofTemplate)
			w.assessed(first, states.Assessment{Reason: infrav1.ChecksFailedReason, Then: states.Replace})
			message := w.proves(first, metav1.ConditionFalse, infrav1.ChecksFailedReason)
			if strings.Contains(message, "hunter2") || (result != "dies" && !strings.Contains(message, "FAILURE: 0x00")) || !strings.Contains(message, burnIn) {
				t.Errorf("it says %q", message)
			}
			w.await("it is in quarantine", first, func(context.Context) bool { return w.inQuarantine(bad) })
			service, clock := w.machineService(cluster)
			clock.pass(48 * time.Hour) // No time ends it.
			list, err := service.Quarantine.List(t.Context(), 0)
			if err != nil || len(list) != 1 || !strings.Contains(list[0].Why, burnIn) || list[0].Checks != "metal" || !list[0].Until.IsZero() {
				t.Errorf("in quarantine are %+v: %v", list, err)
			}
			w.delete(first)
			if w.isBack(bad); !w.inQuarantine(bad) {
				t.Error("it is in the pool, and not in quarantine")
			}
			w.restart()
			second := w.deployedMachine("second", false, spec, ofTemplate)
			if second.Spec.SystemID == bad {
				t.Error("the next Machine has the server that failed")
			}
			if slices.ContainsFunc(w.maas.Calls().Log, func(c simulator.Call) bool { return c.Op == "deploy" && strings.Contains(c.Path, bad) }) {
				t.Error("it was deployed")
			}
		})
	}
}

// A failed server leaves quarantine when a later test of a person has passed, and not before.
func TestALaterTestEndsTheQuarantineOfAFailedCheck(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	bad := w.named("metal-a")
	w.failing(bad, "failed", "")
	m := w.newMachine("first", false, infrav1.MaasMachineSpec{SystemID: bad, Checks: &infrav1.MachineChecks{Scripts: []string{burnIn}}})
	w.proves(m, metav1.ConditionFalse, infrav1.ChecksFailedReason)
	w.await("it is in quarantine", m, func(context.Context) bool { return w.inQuarantine(bad) })
	w.delete(m)
	service, _ := w.machineService(cluster)
	tend := func() {
		t.Helper()
		_, err := service.Quarantine.Tend(t.Context(), record.TendQuarantines.Permit())
		w.must(err)
	}
	if tend(); !w.inQuarantine(bad) {
		t.Fatal("it left quarantine without a test")
	}
	w.failing(bad, "passed", "")
	w.maasCall(http.MethodPost, "machines/"+bad+"/?op=test", url.Values{"testing_scripts": {burnIn}})
	w.await("a test has passed", w.cluster, func(context.Context) bool {
		tend()
		return !w.inQuarantine(bad)
	})
}

// When as many servers failed as may, nothing more is taken until a person lifts one.
func TestATemplateWaitsForAPersonWhenTooManyServersFailed(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	w.everywhere("failed")
	spec := checked(infrav1.MachineChecks{Scripts: []string{burnIn}, MaxFailed: 1})
	first := w.newMachine("first", false, spec, ofTemplate)
	w.proves(first, metav1.ConditionFalse, infrav1.ChecksFailedReason)
	bad := first.Spec.SystemID
	w.await("it is in quarantine", first, func(context.Context) bool { return w.inQuarantine(bad) })
	w.delete(first)
	w.restart()
	second := w.newMachine("second", false, spec, ofTemplate)
	w.refused(second, infrav1.MachineDeployedCondition, infrav1.TooManyFailedReason)
	failed, _ := w.maas.Machine(bad)
	if message := conditions.GetMessage(second, infrav1.MachineDeployedCondition); !strings.Contains(message, "capmaasctl machines lift "+failed.Hostname) || second.Spec.SystemID != "" {
		t.Errorf("it says %q, and has %q", message, second.Spec.SystemID)
	}
	other := w.deployedMachine("other", false, infrav1.MaasMachineSpec{}, func(m *metav1.ObjectMeta) {
		m.Annotations = map[string]string{clusterv1.TemplateClonedFromNameAnnotation: "another"}
	})
	w.delete(other)
	w.everywhere("passed")
	service, _ := w.machineService(cluster)
	w.must(service.Quarantine.Lift(t.Context(), record.TendQuarantines.Permit(), bad))
	w.poke(second)
	w.deployed(second)
}

// No more machines of a template are tested at once than may be.
func TestNoMoreMachinesAreTestedAtOnceThanMayBe(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	w.everywhere("hangs") // It has no timeout in MAAS.
	spec := checked(infrav1.MachineChecks{Scripts: []string{burnIn}, MaxTesting: 1})
	machines := []*infrav1.MaasMachine{w.newMachine("one", false, spec, ofTemplate), w.newMachine("two", false, spec, ofTemplate)}
	for _, m := range machines {
		w.proves(m, metav1.ConditionUnknown, infrav1.ChecksRunningReason)
	}
	w.await("both have a machine", w.cluster, func(ctx context.Context) bool {
		return !slices.ContainsFunc(machines, func(m *infrav1.MaasMachine) bool { return w.sees(ctx, m) != nil || m.Spec.SystemID == "" })
	})
	w.eventually(machines[0], "told what it waits for", func() bool {
		return slices.ContainsFunc(machines, func(m *infrav1.MaasMachine) bool {
			_ = w.sees(t.Context(), m)
			return strings.Contains(conditions.GetMessage(m, infrav1.HardwareProvenCondition), "maxTesting")
		})
	})
	if w.asked("machines/{id}/", "test") != 1 {
		t.Errorf("MAAS was asked for %v", w.ops())
	}
	tested, waits := machines[0], machines[1]
	if strings.Contains(conditions.GetMessage(tested, infrav1.HardwareProvenCondition), "maxTesting") {
		tested, waits = waits, tested
	}
	w.everywhere("passed")
	w.delete(tested)
	w.poke(waits)
	w.deployed(waits)
}

// Tests that take too long are aborted, and count as failed.
func TestChecksHaveATimeout(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, withClock)
	w.everywhere("hangs")
	m := w.newMachine("metal", false, checked(infrav1.MachineChecks{Scripts: []string{burnIn}, TimeoutSeconds: 300}))
	w.await("it is tested", m, func(ctx context.Context) bool {
		return w.sees(ctx, m) == nil && m.Status.MachineState == "Testing"
	})
	w.passes(10 * time.Minute)
	w.poke(m)
	w.assessed(m, states.Assessment{Reason: infrav1.ChecksFailedReason, Then: states.Replace})
	w.inState(m.Spec.SystemID, "Allocated")
	if !w.inQuarantine(m.Spec.SystemID) || !slices.Contains(w.ops(), "abort") {
		t.Errorf("in quarantine: %t; MAAS was asked for %v", w.inQuarantine(m.Spec.SystemID), w.ops())
	}
	w.poke(m)
	w.delete(m)
	if slices.Contains(w.ops(), "deploy") {
		t.Errorf("MAAS was asked for %v", w.ops())
	}
}

// A Machine that is deleted while its server is tested leaves no quarantine.
func TestAMachineIsDeletedWhileItIsTested(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	w.everywhere("hangs")
	m := w.newMachine("metal", false, checked(infrav1.MachineChecks{Scripts: []string{burnIn}}))
	w.await("it is tested", m, func(ctx context.Context) bool {
		return w.sees(ctx, m) == nil && m.Status.MachineState == "Testing"
	})
	id := m.Spec.SystemID
	w.delete(m)
	if w.isBack(id); w.inQuarantine(id) {
		t.Error("it is in quarantine")
	}
}

// A test that fails right before the Machine is deleted holds no server, and puts it into quarantine.
func TestAServerThatFailsAsItsMachineIsDeleted(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	bad := w.named("metal-a")
	w.failing(bad, "hangs", "")
	m := w.newMachine("metal", false, infrav1.MaasMachineSpec{SystemID: bad, Checks: &infrav1.MachineChecks{Scripts: []string{burnIn}}})
	w.await("it is tested", m, func(ctx context.Context) bool {
		return w.sees(ctx, m) == nil && m.Status.MachineState == "Testing"
	})
	w.stopManager()
	w.maasCall(http.MethodPost, "machines/"+bad+"/?op=abort", nil)
	w.inState(bad, "Allocated")
	w.failing(bad, "failed", "")
	w.maasCall(http.MethodPost, "machines/"+bad+"/?op=test", url.Values{"testing_scripts": {burnIn}})
	w.inState(bad, "Failed testing")
	w.beginDeletion(m)
	w.startManager()
	w.await("it is gone", m, func(ctx context.Context) bool { return w.isGone(ctx, m) })
	if w.isBack(bad); !w.inQuarantine(bad) {
		t.Error("it is in the pool, and not in quarantine")
	}
}

// A server that can't be switched on has failed no check: that is tried again for a while, and its quarantine ends.
func TestAServerThatCannotBeSwitchedOnHasFailedNoCheck(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t, withClock)
	id := w.named("metal-a")
	w.control("machines/"+id+"/fail", `{"operation": "power", "message": "no BMC"}`)
	m := w.newMachine("metal", false, infrav1.MaasMachineSpec{SystemID: id, Checks: &infrav1.MachineChecks{Scripts: []string{burnIn}}})
	for tries := 1; tries < 3; tries++ {
		w.await("MAAS was asked to test it", m, func(context.Context) bool { return w.asked("machines/{id}/", "test") == tries })
		w.eventually(m, "told that it is tested again", func() bool {
			return strings.Contains(conditions.GetMessage(m, infrav1.HardwareProvenCondition), "tested again")
		})
		w.control("machines/"+id+"/fail", `{"operation": "power", "message": "no BMC"}`)
		w.passes(time.Hour)
		w.poke(m)
	}
	w.assessed(m, states.Assessment{Reason: infrav1.ChecksFailedReason, Then: states.Replace})
	w.await("it is in quarantine", m, func(context.Context) bool { return w.inQuarantine(id) })
	service, _ := w.machineService(cluster)
	if list, err := service.Quarantine.List(t.Context(), 0); err != nil || len(list) != 1 || list[0].Checks != "" || list[0].Until.IsZero() {
		t.Errorf("in quarantine are %+v: %v", list, err)
	}
	w.delete(m)
	w.isBack(id)
}

// A manager that is stopped while a server is tested, or when the response to its call is lost, tests it once.
func TestAManagerThatIsStoppedTestsOnce(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	w.fault(simulator.Fault{Endpoint: "machines/{id}/", Op: "test", First: 1, DropAfter: true})
	m := w.newMachine("metal", false, checked(infrav1.MachineChecks{Scripts: []string{burnIn}}))
	w.await("MAAS was asked to test it", m, func(context.Context) bool { return w.asked("machines/{id}/", "test") > 0 })
	w.restart()
	w.deployed(m)
	w.proves(m, metav1.ConditionTrue, infrav1.ChecksPassedReason)
	if w.asked("machines/{id}/", "test") != 1 {
		t.Errorf("MAAS was asked for %v", w.ops())
	}
}

// What can't be checked is said before a server is taken.
func TestWhatCannotBeCheckedTakesNoServer(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	m := w.newMachine("unknown", false, checked(infrav1.MachineChecks{Scripts: []string{burnIn, "gpu-burn"}}))
	w.refusedBeforehand(m, infrav1.ChecksInvalidReason, "spec.checks.scripts", "gpu-burn")
}

func TestChecksNeedAnAdministrator(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withPlainUser)
	w.setKey(plainUser)
	w.provisionedCluster(withoutDomain, external("api.example.com"))
	m := w.newMachine("metal", false, checked(infrav1.MachineChecks{Scripts: []string{burnIn}}))
	w.refusedBeforehand(m, infrav1.AdministratorNeededReason, "spec.checks", "joe")
}

// Machines that are of no template have checks of their own.
func TestWhoseChecksAMachineHas(t *testing.T) {
	m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Name: "pet"}}
	if got := quarantine.TemplateOf(m); got != "pet" {
		t.Errorf("it is %q", got)
	}
	if ofTemplate(&m.ObjectMeta); quarantine.TemplateOf(m) != "metal" {
		t.Errorf("it is %q", quarantine.TemplateOf(m))
	}
}
