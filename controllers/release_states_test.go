// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// operations returns the operations on machines that MAAS received.
func (w *world) operations() (ops []string) {
	for _, call := range w.maas.Calls().Log {
		if call.Method == http.MethodPost && strings.HasPrefix(call.Endpoint, "machines/") {
			ops = append(ops, call.Op)
		}
	}
	return ops
}

// A deletion does not take a machine from a person who works on it: it waits, reports for what, and continues when the
// person is done.
func TestTheDeletionOfBareMetalWaitsForAPerson(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t, withServers)
	before := w.maas.State()
	reasons := map[string]string{
		"commissioning":        infrav1.CommissioningReason,
		"failed_commissioning": infrav1.CommissioningFailedReason,
		"failed_testing":       infrav1.TestingFailedReason,
		"rescue_mode":          infrav1.RescueModeReason,
		"entering_rescue_mode": infrav1.RescueModeReason,
		"exiting_rescue_mode":  infrav1.RescueModeReason,
		"missing":              infrav1.MachineMissingReason,
		"retired":              infrav1.MachineRetiredReason,
	}
	machines := map[string]*infrav1.MaasMachine{}
	for short := range reasons {
		machines[short] = w.newMachine(strings.ReplaceAll(short, "_", "-"), false, erasing(infrav1.EraseFull))
	}
	for short, m := range machines {
		w.deployed(m)
		w.setState(m.Spec.SystemID, short)
	}
	for _, m := range machines {
		w.eventually(m, "not ready", func() bool { return !m.Status.Ready })
	}
	w.maas.ResetCalls()
	for _, m := range machines {
		w.beginDeletion(m)
	}
	for short, m := range machines {
		w.refused(m, infrav1.MachineDeployedCondition, reasons[short])
		w.eventually(m, "reported with what it waits for", func() bool {
			return strings.Contains(conditions.GetMessage(m, infrav1.ReadyCondition), "release")
		})
	}
	if ops := w.operations(); len(ops) != 0 {
		t.Errorf("MAAS was asked for %v", ops)
	}
	for _, m := range machines {
		w.setState(m.Spec.SystemID, "deployed")
	}
	for _, m := range machines {
		w.goes(m)
	}
	w.deleteCluster(cluster)
	w.unchanged(before)
}

// withServers gives a world eight servers.
func withServers(w *world) {
	w.region = strings.Replace(w.region, "names: [metal-a]", "names: [metal-a, metal-c, metal-d, metal-e, metal-f, metal-g, metal-h]", 1)
}

// The manager ends states that MAAS left unfinished, because no user works on the machine.
func TestTheDeletionOfBareMetalEndsWhatHoldsIt(t *testing.T) {
	t.Parallel()
	for short, op := range map[string]string{
		"testing": "abort", "failed_entering_rescue_mode": "exit_rescue_mode", "failed_exiting_rescue_mode": "exit_rescue_mode",
	} {
		t.Run(short, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			m, finish := w.deployedMetal(infrav1.EraseNone)
			w.setState(m.Spec.SystemID, short)
			w.eventually(m, "not ready", func() bool { return !m.Status.Ready })
			w.maas.ResetCalls()
			w.beginDeletion(m)
			finish()
			ops := w.operations()
			if i := slices.Index(ops, op); i < 0 || i > slices.Index(ops, "release") {
				t.Errorf("MAAS was asked for %v, want %s and then release", ops, op)
			}
		})
	}
}

// A machine that can't be powered off gets its old state back from MAAS, without its agent name. It is ours all the
// same.
func TestAMachineThatCannotBeSwitchedOffIsNotLost(t *testing.T) {
	t.Parallel()
	for name, unmarked := range map[string]bool{"that carries our annotations": false, "whose annotations a person removed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			m, finish := w.deployedMetal(infrav1.EraseNone)
			if unmarked {
				w.annotate(m, clusterv1.PausedAnnotation, ptr.To(""))
				w.eventually(m, "paused", func() bool { return conditions.IsTrue(m, clusterv1.PausedCondition) })
				w.maasCall(http.MethodPost, "machines/"+m.Spec.SystemID+"/?op=set_workload_annotations",
					map[string][]string{"capmaas-owner": {""}, "capmaas-machine": {""}})
				w.beginDeletion(m)
				w.failNext("power")
				w.annotate(m, clusterv1.PausedAnnotation, nil)
			} else {
				w.failNext("power")
				w.beginDeletion(m)
			}
			finish()
			if n := w.releases(); n < 2 {
				t.Errorf("MAAS was asked %d times for the release, want another try after the one that failed", n)
			}
		})
	}
}

// Another user who released such a machine, and acquired it, keeps it.
func TestAMachineThatSomebodyTookDuringItsReleaseIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m, _ := w.deployedMetal(infrav1.EraseNone)
	id := m.Spec.SystemID
	w.annotate(m, clusterv1.PausedAnnotation, ptr.To(""))
	w.eventually(m, "paused", func() bool { return conditions.IsTrue(m, clusterv1.PausedCondition) })
	w.annotate(m, infrav1.RecordAnnotation, ptr.To(recordText(t, record.MachineData{Phase: &record.Phase{Name: "releasing", Since: metav1.Now()}})))
	w.maasCall(http.MethodPost, "machines/"+id+"/?op=release", nil)
	w.await("a user released the machine", m, func(context.Context) bool { now, _ := w.maas.Machine(id); return now.Status == "Ready" })
	w.allocateAs("somebody", id)
	w.beginDeletion(m)
	w.annotate(m, clusterv1.PausedAnnotation, nil)
	w.goes(m)
	if now, _ := w.maas.Machine(id); now.Status != "Allocated" || now.AgentName != "somebody" {
		t.Errorf("another user's machine is now %+v", now)
	}
}

// Nor is one that a person could not release: MAAS has taken our name off it, and nobody else can get it.
func TestAMachineThatAPersonCouldNotReleaseIsGivenBack(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]infrav1.MaasMachineSpec{"bare metal": {}, "VM": vm} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := clusterWorld(t)
			before := w.maas.State()
			m := w.deployedMachine("md-0", false, spec)
			id := m.Spec.SystemID
			w.failNext("power")
			_, err := w.maasClient().ReleaseMachine(t.Context(), maas.UnrecordedRelease("a test"), id, maas.ReleaseParams{})
			if now := w.metal(id); err == nil || now.Status != "Deployed" || now.AgentName != "" {
				t.Fatalf("the release ended with %v, and the machine is %s, with the agent name %q", err, now.Status, now.AgentName)
			}
			w.delete(m)
			w.unchanged(before)
			w.noVMs()
		})
	}
}

// MAAS takes the mark off a machine as soon as a person releases it, also one that nobody else gets: a VM that was made for us.
func TestAVMThatAPersonIsReleasingIsDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.region += "timings: {power_off: 300h}\n" })
	m := w.deployedVM()
	w.stopManager()
	w.maasCall(http.MethodPost, "machines/"+m.Spec.SystemID+"/?op=release", nil)
	w.beginDeletion(m)
	w.startManager()
	w.await("it waits, or is gone", m, func(ctx context.Context) bool {
		return w.isGone(ctx, m) || conditions.GetReason(m, infrav1.MachineDeployedCondition) == infrav1.ReleasingReason
	})
	w.must(w.maas.SetTimeScale(100 * timeScale))
	w.goes(m)
	w.noVMs()
}

// What MAAS showed a moment ago is not enough to leave a machine to another user: a person may have released it since.
func TestWhatIsLeftOnAMachineThatAPersonHasJustReleasedIsUndone(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	before := w.maas.State()
	m := w.deployedMachine("md-0", false, withSpec(shapes["lvm"], func(s *infrav1.MaasMachineSpec) { s.StaticIP = "10.77.0.50" }))
	asked := make(chan struct{})
	ask := sync.OnceFunc(func() { close(asked) })
	w.maas.SetHook(func(call simulator.Call, at simulator.Phase) error {
		switch {
		case strings.Contains(call.Query, "not_agent_name=") && at == simulator.After:
			ask()
		case strings.HasPrefix(call.Query, "id=") && !strings.Contains(call.Query, "agent_name=") && at == simulator.Before:
			<-asked // A poll.
		}
		return nil
	})
	w.maasCall(http.MethodPost, "machines/"+m.Spec.SystemID+"/?op=release", nil)
	w.inState(m.Spec.SystemID, "Ready")
	w.delete(m)
	ask()
	w.unchanged(before)
}
