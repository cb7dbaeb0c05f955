// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// withClock gives the manager a clock that only the test moves.
func withClock(w *world) { w.clock = testingclock.NewFakePassiveClock(time.Now()) }

// passes moves the manager's clock.
func (w *world) passes(d time.Duration) {
	clock := w.clock.(*testingclock.FakePassiveClock)
	clock.SetTime(clock.Now().Add(d))
}

// node makes a machine that runs a Node, which a MachineHealthCheck finds healthy.
func (w *world) node(name string, controlPlane bool, spec infrav1.MaasMachineSpec) *infrav1.MaasMachine {
	w.t.Helper()
	m := w.deployedMachine(name, controlPlane, spec)
	w.join(m)
	w.checked(m.Name, metav1.ConditionTrue)
	return m
}

// machineOf returns a Machine as it is now.
func (w *world) machineOf(name string) *clusterv1.Machine {
	w.t.Helper()
	machine := &clusterv1.Machine{}
	w.must(w.client.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, machine))
	return machine
}

// checked sets what a MachineHealthCheck says of a Machine.
func (w *world) checked(name string, healthy metav1.ConditionStatus) {
	w.t.Helper()
	machine := w.machineOf(name)
	w.patchStatus(machine, func() {
		conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: healthy, Reason: "Test"})
	})
}

// remedy plays a MachineHealthCheck whose check of a Machine has failed.
func (w *world) remedy(name string) *infrav1.MaasRemediation {
	w.t.Helper()
	machine := w.machineOf(name)
	remediation := &infrav1.MaasRemediation{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: w.namespace, Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName},
	}}
	w.own(machine, remediation)
	w.create(remediation)
	w.checked(name, metav1.ConditionFalse)
	return remediation
}

// isAt waits until a remediation is at a step.
func (w *world) isAt(remediation *infrav1.MaasRemediation, step infrav1.RemediationStep) {
	w.t.Helper()
	w.eventually(remediation, "at the step "+string(step), func() bool { return remediation.Status.Step == step })
}

// saysThat waits until a condition of a remediation has a reason, and a message unless it is True.
func (w *world) saysThat(remediation *infrav1.MaasRemediation, condition, reason string) {
	w.t.Helper()
	w.eventually(remediation, reason, func() bool {
		c := conditions.Get(remediation, condition)
		return c != nil && c.Reason == reason && (c.Message != "") != (c.Status == metav1.ConditionTrue)
	})
}

// isHandedOver waits until the owner of a Machine knows that it is to replace it.
func (w *world) isHandedOver(remediation *infrav1.MaasRemediation) {
	w.t.Helper()
	w.saysThat(remediation, infrav1.HandedOverCondition, infrav1.HandedOverReason)
	c := conditions.Get(w.machineOf(remediation.Name), clusterv1.MachineOwnerRemediatedCondition)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != clusterv1.MachineOwnerRemediatedWaitingForRemediationReason {
		w.t.Errorf("the Machine says of its replacement: %+v", c)
	}
}

// switched checks how often MAAS was asked to switch a machine off, and on.
func (w *world) switched(m *infrav1.MaasMachine, off, on int) {
	w.t.Helper()
	asked := map[string]int{}
	for _, call := range w.maas.Calls().Log {
		if call.SystemID == m.Spec.SystemID && call.Method == http.MethodPost {
			asked[call.Op]++
		}
	}
	if asked["power_off"] != off || asked["power_on"] != on {
		w.t.Errorf("MAAS was asked to switch %s off %d times and on %d times, want %d and %d", m.Name, asked["power_off"], asked["power_on"], off, on)
	}
}

// powerOf returns a machine's power.
func (w *world) powerOf(m *infrav1.MaasMachine) string {
	for _, machine := range w.maas.Machines() {
		if machine.SystemID == m.Spec.SystemID {
			return machine.Power
		}
	}
	return ""
}

// ends deletes a remediation of a Machine that is healthy again, as a MachineHealthCheck does.
func (w *world) ends(remediation *infrav1.MaasRemediation) {
	w.t.Helper()
	w.checked(remediation.Name, metav1.ConditionTrue)
	w.delete(remediation)
}

func TestAPowerCycleDoesNotHelp(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]infrav1.MaasMachineSpec{"bare metal": {}, "a VM": vm} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := clusterWorld(t, withClock)
			m := w.node("md-0", false, spec)
			remediation := w.remedy("md-0")
			w.isAt(remediation, infrav1.RemediationRecover)
			w.passes(time.Hour)
			w.isHandedOver(remediation)
			w.switched(m, 1, 1)
			if quarantined := w.inQuarantine(m.Spec.SystemID); quarantined == spec.IsLXD() {
				t.Errorf("the machine is quarantined: %t", quarantined)
			}
		})
	}
}

// MAAS deploys a machine that runs in memory anew when it is switched on, and without its bootstrap. The server is well.
func TestAMachineInMemoryIsReplacedWithoutAPowerCycle(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	m := w.node("md-0", false, infrav1.MaasMachineSpec{DeployInMemory: true})
	remediation := w.remedy("md-0")
	w.isHandedOver(remediation)
	w.saysThat(remediation, infrav1.PowerCycledCondition, infrav1.PowerCycleOmittedReason)
	w.switched(m, 0, 0)
	if w.inQuarantine(m.Spec.SystemID) {
		t.Error("a server that is well is quarantined")
	}
}

// A machine is not left off, whenever its Machine is healthy again.
func TestAMachineThatWasSwitchedOffIsSwitchedOn(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, withClock)
	m := w.node("md-0", false, infrav1.MaasMachineSpec{})
	w.fault(simulator.Fault{Op: "power_on", Status: http.StatusServiceUnavailable})
	remediation := w.remedy("md-0")
	w.isAt(remediation, infrav1.RemediationPowerOn)
	w.checked("md-0", metav1.ConditionTrue)
	w.beginDeletion(remediation)
	w.eventually(remediation, "asked for the power", func() bool { return remediation.Status.Requests > 0 })
	w.maas.ClearFaults()
	w.await("the remediation is gone", remediation, func(ctx context.Context) bool {
		w.passes(20 * time.Second)
		return w.isGone(ctx, remediation)
	})
	if power := w.powerOf(m); power != "on" {
		t.Errorf("the machine is %s", power)
	}
}

// What another manager has begun goes on, even if the status is lost, and no machine is switched twice.
func TestARemediationGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	for _, step := range []infrav1.RemediationStep{infrav1.RemediationPowerOff, infrav1.RemediationPowerOn, infrav1.RemediationRecover} {
		t.Run(string(step), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(w *world) { w.timeScale = 25 }) // Slow enough to be stopped meanwhile.
			w.provisionedCluster()
			m := w.node("md-0", false, infrav1.MaasMachineSpec{})
			remediation := w.remedy("md-0")
			w.eventually(remediation, "at the step "+string(step), func() bool {
				return remediation.Status.Step == step && (remediation.Status.Requests > 0 || step == infrav1.RemediationRecover)
			})
			w.stopManager()
			w.patchStatus(remediation, func() { remediation.Status = infrav1.MaasRemediationStatus{} })
			w.startManager()
			w.isAt(remediation, infrav1.RemediationRecover)
			w.saysThat(remediation, infrav1.HandedOverCondition, infrav1.WaitingForNodeReason)
			w.switched(m, 1, 1)
		})
	}
}

// Whoever spares a Machine wants nothing done, for as long.
func TestARemediationIsHeld(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	m := w.node("md-0", false, vm)
	machine := w.machineOf("md-0")
	w.patch(machine, func() { machine.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: ""} })
	remediation := w.remedy("md-0")
	w.saysThat(remediation, infrav1.PowerCycledCondition, infrav1.RemediationHeldReason)
	w.switched(m, 0, 0)
	machine = w.machineOf("md-0")
	w.patch(machine, func() { machine.Annotations = nil })
	w.isAt(remediation, infrav1.RemediationRecover)
	w.switched(m, 1, 1)
}

// A machine that is another user's by now is not touched, and its Machine is replaced.
func TestAMachineThatIsNotOursIsNotSwitched(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	m := w.node("md-0", false, infrav1.MaasMachineSpec{})
	id := "machines/" + m.Spec.SystemID + "/"
	w.maasCall(http.MethodPost, id+"?op=release", nil)
	w.await("it is released", m, func(context.Context) bool {
		seen, _ := w.maas.Machine(m.Spec.SystemID)
		return seen.Status == "Ready"
	})
	w.allocateAs("somebody", m.Spec.SystemID)
	w.maasCall(http.MethodPost, id+"?op=deploy", nil)
	w.await("it is deployed", m, func(context.Context) bool {
		seen, _ := w.maas.Machine(m.Spec.SystemID)
		return seen.Status == "Deployed"
	})
	remediation := w.remedy("md-0")
	w.isHandedOver(remediation)
	w.saysThat(remediation, infrav1.PowerCycledCondition, infrav1.PowerCycleOmittedReason)
	w.switched(m, 0, 0)
}

// A BMC may take minutes to say whether a machine is on. Until then another user may have got the machine.
func TestAMachineThatIsTakenWhileItsBMCIsAskedIsNotSwitched(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, withOtherUser(true))
	m := w.node("md-0", false, infrav1.MaasMachineSpec{})
	asked, answered, shown := make(chan struct{}), make(chan struct{}), make(chan struct{})
	ask := sync.OnceFunc(func() { close(asked) })
	t.Cleanup(sync.OnceFunc(func() { close(shown) }))
	w.maas.SetHook(func(call simulator.Call, phase simulator.Phase) error {
		switch {
		case phase != simulator.Before:
		case call.Op == "query_power_state":
			ask()
			<-answered
		case call.Endpoint == "machines/" && strings.Contains(call.Query, "id=") && !strings.Contains(call.Query, "agent_name"):
			<-shown // Nobody else sees what became of the machine.
		}
		return nil
	})
	remediation := w.remedy("md-0")
	<-asked
	w.steal(m.Spec.SystemID)
	w.maasCall(http.MethodPost, "machines/"+m.Spec.SystemID+"/?op=deploy", nil)
	w.await("it runs for another user", m, func(context.Context) bool { return w.powerOf(m) == "on" })
	close(answered)
	w.isHandedOver(remediation)
	w.switched(m, 0, 0)
}

// The Machine of a control plane whose MaasMachine goes while it waits to leave the endpoint is replaced.
func TestARemediationWithoutItsMaasMachineIsHandedOver(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	w.newPlane(3, "zone-a", "zone-b", "zone-c")
	m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "cp-1"}}
	w.eventually(m, "in DNS", func() bool { return m.Status.DNSAttached })
	fault := simulator.Fault{Method: http.MethodPut, Endpoint: "dnsresources/{id}/", Status: http.StatusForbidden}
	w.fault(fault)
	remediation := w.remedy("cp-1")
	w.isAt(remediation, infrav1.RemediationLeaveEndpoint)
	w.beginDeletion(m)
	w.patch(m, func() { m.Finalizers = nil })
	machine := w.machineOf("cp-1")
	w.patch(machine, func() { machine.Annotations = map[string]string{"wakes": "it"} })
	w.isHandedOver(remediation)
}

// A power cycle of a control plane was decided, and MAAS could not be asked for a while. It is decided anew: the others may have
// failed meanwhile, or a person spares the Machine. Once MAAS can be asked, nothing is switched, and clients are sent to it.
func TestAPowerCycleThatWaitedIsDecidedAgain(t *testing.T) {
	t.Parallel()
	endpoint := simulator.Fault{Method: http.MethodPut, Endpoint: "dnsresources/{id}/", Status: http.StatusServiceUnavailable}
	skip := func(w *world) {
		machine := w.machineOf("cp-1")
		w.patch(machine, func() {
			machine.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: ""}
		})
	}
	for name, tc := range map[string]struct {
		meanwhile func(*world)
		reason    string
	}{
		"another control plane is down": {func(w *world) { w.checked("cp-2", metav1.ConditionFalse) }, infrav1.WaitingForQuorumReason},
		"the machine is spared":         {skip, infrav1.RemediationHeldReason},
		"the Machine is healthy again":  {func(w *world) { w.checked("cp-1", metav1.ConditionTrue) }, infrav1.MachineHealthyReason},
		"it is locked": {func(w *world) {
			w.maasCall(http.MethodPost, "machines/"+w.machineID("cp-1")+"/?op=lock", nil)
		}, infrav1.RemediationHeldReason},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cluster := clusterWorld(t)
			w.newPlane(3, "zone-a", "zone-b", "zone-c")
			machines := map[string]*infrav1.MaasMachine{}
			for _, name := range []string{"cp-1", "cp-2", "cp-3"} {
				m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
				w.eventually(m, "in DNS", func() bool { return m.Status.DNSAttached })
				machines[name] = m
			}
			w.fault(endpoint)
			remediation := w.remedy("cp-1")
			w.isAt(remediation, infrav1.RemediationLeaveEndpoint)
			tc.meanwhile(w)
			w.saysThat(remediation, infrav1.PowerCycledCondition, tc.reason)
			w.maas.ClearFaults()
			if tc.reason == infrav1.MachineHealthyReason {
				w.ends(remediation)
			} else {
				w.eventually(remediation, "taken back", func() bool { return remediation.Status.Step == "" && remediation.Status.PowerCycles == 0 })
			}
			w.await("clients are sent to it again", cluster, func(context.Context) bool { return len(w.endpoint(cluster)) == 3 })
			w.switched(machines["cp-1"], 0, 0)
		})
	}
}

// machineID returns the system id of a Machine's machine.
func (w *world) machineID(name string) string {
	w.t.Helper()
	m := &infrav1.MaasMachine{}
	w.must(w.client.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, m))
	return m.Spec.SystemID
}

// The machine's host responds late, and what was decided before that is not done: here a person spares the Machine meanwhile.
func TestAPowerCycleIsDecidedRightBeforeItsCall(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	m := w.node("md-0", false, infrav1.MaasMachineSpec{})
	var once sync.Once
	w.maas.SetHook(func(call simulator.Call, at simulator.Phase) error {
		if call.Op == "query_power_state" && at == simulator.Before {
			once.Do(func() {
				machine := w.machineOf("md-0")
				w.patch(machine, func() {
					machine.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: ""}
				})
			})
		}
		return nil
	})
	remediation := w.remedy("md-0")
	w.saysThat(remediation, infrav1.PowerCycledCondition, infrav1.RemediationHeldReason)
	w.switched(m, 0, 0)
}

// One power cycle of a control plane at a time, though its Machine is called healthy again before it is off.
func TestTwoPowerCyclesOfAControlPlaneDoNotOverlap(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	w.newPlane(3, "zone-a", "zone-b", "zone-c")
	for _, name := range []string{"cp-1", "cp-2", "cp-3"} {
		m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
		w.eventually(m, "in DNS", func() bool { return m.Status.DNSAttached })
	}
	w.fault(simulator.Fault{Op: "power_off", Status: http.StatusServiceUnavailable})
	first := w.remedy("cp-1")
	w.isAt(first, infrav1.RemediationPowerOff)
	w.eventually(first, "asked for", func() bool { return first.Status.Requests > 0 }) // Before, it is taken back for cp-2.
	w.checked("cp-1", metav1.ConditionTrue)
	second := w.remedy("cp-2")
	w.await("it waits, or begins", second, func(ctx context.Context) bool {
		return w.sees(ctx, second) == nil && (second.Status.Step != "" ||
			conditions.GetReason(second, infrav1.PowerCycledCondition) == infrav1.WaitingForQuorumReason)
	})
	w.stored(second)
	if second.Status.Step != "" {
		t.Errorf("it is at the step %s, beside that of cp-1", second.Status.Step)
	}
}

// A control plane that can't do without a machine keeps it. Before the machine is switched off, no client is sent to it
// any more; when its Machine is healthy, clients are sent to it again.
func TestAControlPlaneIsRemediedWhileItsQuorumHolds(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	p := w.newPlane(3, "zone-a", "zone-b", "zone-c")
	var all, others []string
	machines := map[string]*infrav1.MaasMachine{}
	for _, name := range []string{"cp-1", "cp-2", "cp-3"} {
		m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
		w.eventually(m, "in DNS", func() bool { return m.Status.DNSAttached })
		machines[name], all = m, append(all, clusters.EndpointAddress(m))
	}
	others = slices.Sorted(slices.Values(all[1:]))
	slices.Sort(all)
	w.checked("cp-2", metav1.ConditionFalse)
	remediation := w.remedy("cp-1")
	w.saysThat(remediation, infrav1.PowerCycledCondition, infrav1.WaitingForQuorumReason)
	w.switched(machines["cp-1"], 0, 0)
	w.checked("cp-2", metav1.ConditionTrue)
	w.isAt(remediation, infrav1.RemediationRecover)
	w.switched(machines["cp-1"], 1, 1)
	if now := w.endpoint(cluster); !slices.Equal(now, others) {
		t.Errorf("the endpoint leads to %v, want %v", now, others)
	}
	left, off := 0, 0
	for _, call := range w.maas.Calls().Log {
		switch {
		case call.Method != http.MethodGet && strings.HasPrefix(call.Endpoint, "dnsresources") && off == 0:
			left = call.Number
		case call.Op == "power_off":
			off = call.Number
		}
	}
	if left == 0 || left > off {
		t.Errorf("the machine left the endpoint with call %d, and was switched off with call %d", left, off)
	}
	w.ends(remediation)
	w.await("the endpoint leads to all of them", p.object, func(context.Context) bool { return slices.Equal(w.endpoint(cluster), all) })
}
