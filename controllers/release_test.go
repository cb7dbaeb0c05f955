// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// erasing is a spec of bare metal with a release policy.
func erasing(erase infrav1.EraseMode) infrav1.MaasMachineSpec {
	return infrav1.MaasMachineSpec{Release: infrav1.MachineRelease{Erase: erase}}
}

// deployedMetal makes a bare-metal machine with a release policy, in a cluster of its own.
func (w *world) deployedMetal(erase infrav1.EraseMode) (m *infrav1.MaasMachine, finish func()) {
	w.t.Helper()
	cluster := w.provisionedCluster()
	before := w.maas.State()
	m = w.newMachine("md-0", false, erasing(erase))
	w.deployed(m)
	return m, func() {
		w.t.Helper()
		w.goes(m)
		w.deleteCluster(cluster)
		w.unchanged(before)
	}
}

// beginDeletion deletes an object and does not wait.
func (w *world) beginDeletion(object client.Object) {
	w.t.Helper()
	w.must(w.client.Delete(w.t.Context(), object))
}

// setErase changes the release policy.
func (w *world) setErase(m *infrav1.MaasMachine, erase infrav1.EraseMode) {
	w.t.Helper()
	w.patch(m, func() { m.Spec.Release.Erase = erase })
}

// failNext makes the next operation of a kind fail in MAAS.
func (w *world) failNext(operation string) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, strings.TrimSuffix(w.maasURL, "/MAAS")+"/control/fail-next",
		strings.NewReader(`{"operation": "`+operation+`"}`))
	if err != nil {
		w.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode >= 300 {
		w.t.Fatalf("fail-next %s: %s", operation, response.Status)
	}
}

// releases returns the releases that MAAS received.
func (w *world) releases() (n int) {
	for _, call := range w.maas.Calls().Log {
		if call.Op == "release" {
			n++
		}
	}
	return n
}

func TestDisksAreErasedAsTheSpecSays(t *testing.T) {
	t.Parallel()
	// Long enough to be observed on a slow computer.
	w, cluster := clusterWorld(t, withServers, func(w *world) { w.region += "timings: {erase_quick: 30h, erase_secure: 30h, erase_full: 30h}\n" })
	before := w.maas.State()
	wanted := map[infrav1.EraseMode]string{"": "", infrav1.EraseNone: "", infrav1.EraseQuick: "quick", infrav1.EraseSecure: "secure", infrav1.EraseFull: "full"}
	machines, ids := map[infrav1.EraseMode]*infrav1.MaasMachine{}, map[infrav1.EraseMode]string{}
	for erase := range wanted {
		machines[erase] = w.newMachine("md-"+cmp.Or(string(erase), "unset"), false, erasing(erase))
	}
	for erase, m := range machines {
		w.deployed(m)
		ids[erase] = m.Spec.SystemID
	}
	w.maas.ResetCalls()
	for _, m := range machines {
		w.beginDeletion(m)
	}
	for erase, want := range wanted {
		if want == "" {
			continue
		}
		w.refused(machines[erase], infrav1.MachineDeployedCondition, infrav1.ErasingDisksReason)
		if message := conditions.GetMessage(machines[erase], infrav1.ReadyCondition); !strings.Contains(message, want) || !strings.Contains(message, ids[erase]) {
			t.Errorf("Ready is %q, want which machine, and that %s is what is done", message, want)
		}
	}
	w.must(w.maas.SetTimeScale(100 * timeScale))
	for erase, m := range machines {
		w.goes(m)
		if now, _ := w.maas.Machine(ids[erase]); now.Status != "Ready" || now.Erased != wanted[erase] {
			t.Errorf("the machine is %s, erased %q; want Ready, %q", now.Status, now.Erased, wanted[erase])
		}
	}
	if n := w.releases(); n != len(machines) {
		t.Errorf("MAAS was asked %d times for %d releases", n, len(machines))
	}
	w.deleteCluster(cluster)
	w.unchanged(before)
}

// A machine whose disks could not be erased stays ours until the spec is changed.
func TestAFailedEraseIsRepairedByTheSpec(t *testing.T) {
	t.Parallel()
	for erase, want := range map[infrav1.EraseMode]string{infrav1.EraseQuick: "quick", infrav1.EraseNone: ""} {
		t.Run("erase "+string(erase), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			m, finish := w.deployedMetal(infrav1.EraseFull)
			id := m.Spec.SystemID
			w.failNext("erase")
			w.beginDeletion(m)
			w.refused(m, infrav1.MachineDeployedCondition, infrav1.EraseFailedReason)
			if message := conditions.GetMessage(m, infrav1.ReadyCondition); !strings.Contains(message, "spec.release.erase") || strings.Contains(message, "\n") {
				t.Errorf("Ready is %q, want one line that says what can be done", message)
			}
			w.staysErased(m)
			w.setErase(m, erase)
			finish()
			if now, _ := w.maas.Machine(id); now.Erased != want {
				t.Errorf("the disks were erased %q, want %q", now.Erased, want)
			}
		})
	}
}

// staysErased triggers a reconcile, and checks that it has no effect.
func (w *world) staysErased(m *infrav1.MaasMachine) {
	w.t.Helper()
	w.maas.ResetCalls()
	w.poke(m)
	w.await("the controller looked again", m, func(context.Context) bool {
		for _, call := range w.maas.Calls().Log { // It proves that the machine is ours each time.
			if strings.Contains(call.Query, "agent_name=") {
				return true
			}
		}
		return false
	})
	if now, _ := w.maas.Machine(m.Spec.SystemID); now.Status != "Failed disk erasing" || now.AgentName == "" || w.releases() != 0 {
		w.t.Errorf("the machine is %s, agent %q, after %d releases; want it left as it was", now.Status, now.AgentName, w.releases())
	}
}

// A failed attempt is repeated after its pause, the same way.
func TestAFailedReleaseIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ operation, reason string }{
		"erasing":       {"erase", infrav1.EraseFailedReason},
		"switching off": {"release", infrav1.ReleaseFailedReason},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			m, finish := w.deployedMetal(infrav1.EraseQuick)
			id := m.Spec.SystemID
			for failures := int32(1); failures <= 2; failures++ {
				w.failNext(tc.operation)
				if failures == 1 {
					w.beginDeletion(m)
				} else {
					w.pauseIsOver(m)
				}
				w.eventually(m, "failed again", func() bool {
					return conditions.GetReason(m, infrav1.MachineDeployedCondition) == tc.reason && m.Status.Release.Failures == failures
				})
			}
			w.pauseIsOver(m)
			finish()
			if now, _ := w.maas.Machine(id); now.Erased != "quick" {
				t.Errorf("the disks were erased %q, want quick", now.Erased)
			}
		})
	}
}

// pauseIsOver sets back the time of the last failure.
func (w *world) pauseIsOver(m *infrav1.MaasMachine) {
	w.t.Helper()
	w.changeRecord(m, func(d *record.MachineData) {
		d.Release.FailedTime = ptr.To(metav1.NewTime(d.Release.FailedTime.Add(-time.Hour)))
	})
}

// MAAS erases for ever if the machine does not boot; that is reported. An erase that an operator aborts is retried.
func TestEndlessErasingIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.region += "timings: {erase_full: 10000h}\n" })
	m, finish := w.deployedMetal(infrav1.EraseFull)
	w.beginDeletion(m)
	w.refused(m, infrav1.MachineDeployedCondition, infrav1.ErasingDisksReason)
	w.eventually(m, "overdue", func() bool {
		// A new attempt has a new start time.
		if release := recorded(t, m).Release; release != nil && time.Since(release.StartTime.Time) < time.Hour {
			w.changeRecord(m, func(d *record.MachineData) {
				d.Release.StartTime = ptr.To(metav1.NewTime(time.Now().Add(-1000 * time.Hour)))
			})
		}
		return conditions.GetReason(m, infrav1.MachineDeployedCondition) == infrav1.EraseOverdueReason
	})
	if now, _ := w.maas.Machine(m.Spec.SystemID); now.Status != "Disk erasing" {
		t.Errorf("the machine is %s, want it to go on erasing", now.Status)
	}
	w.maasCall(http.MethodPost, "machines/"+m.Spec.SystemID+"/?op=abort", nil)
	w.refused(m, infrav1.MachineDeployedCondition, infrav1.EraseFailedReason)
	w.setErase(m, infrav1.EraseSecure)
	finish()
}

// The response to a release with erasing may get lost, as may its record.
func TestALostAnswerToAReleaseWithErasing(t *testing.T) {
	t.Parallel()
	for _, phase := range []simulator.Phase{simulator.Before, simulator.After} {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			m, finish := w.deployedMetal(infrav1.EraseSecure)
			id := m.Spec.SystemID
			w.loseEachCallOnce(phase)
			w.beginDeletion(m)
			w.await("the machine is erased", m, func(context.Context) bool { now, _ := w.maas.Machine(id); return now.Erased == "secure" })
			w.maas.SetHook(nil)
			finish()
		})
	}
}

// annotate sets an annotation, or removes it.
func (w *world) annotate(object client.Object, key string, value *string) {
	w.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]*string{key: value}}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.must(w.client.Patch(w.t.Context(), object, client.RawPatch(types.MergePatchType, patch)))
}

// changeRecord changes the record, and triggers a reconcile.
func (w *world) changeRecord(m *infrav1.MaasMachine, change func(*record.MachineData)) {
	w.t.Helper()
	data := recorded(w.t, m)
	change(data)
	w.annotate(m, infrav1.RecordAnnotation, ptr.To(recordText(w.t, *data)))
	w.poke(m)
}

// A machine that looks free, or that another user has, may still become ours, while an allocation of it whose response was lost can
// take effect.
func TestALostAllocationIsAwaitedBeforeTheObjectGoes(t *testing.T) {
	t.Parallel()
	for name, taken := range map[string]bool{"the machine is free": false, "another user has it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(w *world) { w.settleTime = 3 * time.Minute }) // The allocation comes in before.
			m, finish := w.deployedMetal(infrav1.EraseNone)
			id := m.Spec.SystemID
			ours, _ := w.maas.Machine(id)
			w.annotate(m, clusterv1.PausedAnnotation, ptr.To(""))
			w.eventually(m, "paused", func() bool { return conditions.IsTrue(m, clusterv1.PausedCondition) })
			release := func() {
				w.maasCall(http.MethodPost, "machines/"+id+"/?op=release", nil)
				w.inState(id, "Ready")
			}
			release()
			if taken {
				w.allocateAs("somebody", id)
			}
			w.annotate(m, infrav1.RecordAnnotation, ptr.To(recordText(t, record.Calls{
				Pending: []record.Pending{{Op: record.Claim, At: metav1.NewTime(time.Now().Add(time.Hour))}},
			})))
			w.beginDeletion(m)
			w.annotate(m, clusterv1.PausedAnnotation, nil)
			w.refused(m, infrav1.MachineDeployedCondition, infrav1.MAASUnavailableReason)
			if taken {
				release()
			}
			w.allocateAs(ours.AgentName, id)
			w.await("the machine is given back", m, func(context.Context) bool {
				now, _ := w.maas.Machine(id)
				return now.Status == "Ready" && now.AgentName == ""
			})
			w.annotate(m, infrav1.RecordAnnotation, nil)
			finish()
		})
	}
}

// That another user has the machine says nothing of a claim whose response was lost.
func TestALostClaimIsNotForgottenBecauseAnotherUserHasTheMachine(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, func(w *world) { w.settleTime = 3 * time.Minute })
	id := w.named("metal-a")
	var taken atomic.Bool
	w.maas.SetHook(func(call simulator.Call, at simulator.Phase) error {
		if call.Op != "allocate" || at != simulator.Before || taken.Swap(true) {
			return nil
		}
		w.allocateAs("somebody", id)
		return errLost
	})
	m := w.newMachine("m", false, infrav1.MaasMachineSpec{SystemID: id})
	w.refused(m, infrav1.MachineDeployedCondition, infrav1.MachineNotOursReason)
	if !recorded(t, m).IsPending(record.Claim) {
		t.Error("the claim is not recorded any more, and may take effect when nobody expects it")
	}
}
