// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// operations are what MAAS was asked to do with machines.
func (w *world) operations() (ops []string) {
	for _, call := range w.maas.Calls().Log {
		if call.Method == http.MethodPost && strings.HasPrefix(call.Endpoint, "machines/") {
			ops = append(ops, call.Op)
		}
	}
	return ops
}

func (w *world) isGone(ctx context.Context, m *infrav1.MaasMachine) bool {
	return apierrors.IsNotFound(w.client.Get(ctx, client.ObjectKeyFromObject(m), m))
}

// What a person has in hands is not taken away by a deletion: it waits, says for what, and goes on when the person is done.
func TestTheDeletionOfBareMetalWaitsForAPerson(t *testing.T) {
	for short, reason := range map[string]string{
		"commissioning":        infrav1.CommissioningReason,
		"failed_commissioning": infrav1.CommissioningFailedReason,
		"failed_testing":       infrav1.TestingFailedReason,
		"rescue_mode":          infrav1.RescueModeReason,
		"entering_rescue_mode": infrav1.RescueModeReason,
		"exiting_rescue_mode":  infrav1.RescueModeReason,
		"missing":              infrav1.MachineMissingReason,
		"retired":              infrav1.MachineRetiredReason,
	} {
		t.Run(short, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			m, finish := w.deployedMetal(infrav1.EraseFull)
			w.setState(m.Spec.SystemID, short)
			w.eventually(m, "told", func() bool { return !m.Status.Ready })
			w.maas.ResetCalls()
			w.beginDeletion(m)
			w.refused(m, infrav1.MachineDeployedCondition, reason)
			w.eventually(m, "told what is waited for", func() bool {
				return strings.Contains(conditions.GetMessage(m, infrav1.ReadyCondition), "continue")
			})
			if ops := w.operations(); len(ops) != 0 {
				t.Errorf("MAAS was asked for %v", ops)
			}
			w.setState(m.Spec.SystemID, "deployed")
			finish()
		})
	}
}

// What MAAS itself left unfinished is ended, because no user is in it.
func TestTheDeletionOfBareMetalEndsWhatHoldsIt(t *testing.T) {
	for short, op := range map[string]string{
		"testing": "abort", "failed_entering_rescue_mode": "exit_rescue_mode", "failed_exiting_rescue_mode": "exit_rescue_mode",
	} {
		t.Run(short, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			m, finish := w.deployedMetal(infrav1.EraseNone)
			w.setState(m.Spec.SystemID, short)
			w.eventually(m, "told", func() bool { return !m.Status.Ready })
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

// A machine that can't be switched off gets its old state back from MAAS, without its agent name. It is ours all the same.
func TestAMachineThatCannotBeSwitchedOffIsNotLost(t *testing.T) {
	for name, unmarked := range map[string]bool{"that carries our annotations": false, "whose annotations somebody took away": true} {
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

// Another user who released such a machine, and took it, keeps it.
func TestAMachineThatSomebodyTookDuringItsReleaseIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m, _ := w.deployedMetal(infrav1.EraseNone)
	id := m.Spec.SystemID
	w.annotate(m, clusterv1.PausedAnnotation, ptr.To(""))
	w.eventually(m, "paused", func() bool { return conditions.IsTrue(m, clusterv1.PausedCondition) })
	w.annotate(m, infrav1.RecordAnnotation, ptr.To(recordText(t, record.Data{Phase: &record.Phase{Name: releasing, Since: metav1.Now()}})))
	w.maasCall(http.MethodPost, "machines/"+id+"/?op=release", nil)
	w.await("somebody released the machine", m, func(context.Context) bool { now, _ := w.maas.Machine(id); return now.Status == "Ready" })
	w.allocateAs("somebody", id)
	w.beginDeletion(m)
	w.annotate(m, clusterv1.PausedAnnotation, nil)
	w.await("the object is gone", m, func(ctx context.Context) bool { return w.isGone(ctx, m) })
	if now, _ := w.maas.Machine(id); now.Status != "Allocated" || now.AgentName != "somebody" {
		t.Errorf("somebody else's machine is now %+v", now)
	}
}

func TestAReleaseThatHangsIsToldOnce(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tc := range map[string]struct {
		erase  infrav1.EraseMode
		passed time.Duration
		before string // the reason so far
		phase  string
		want   string
	}{
		"it takes a while":                    {infrav1.EraseNone, releaseAllowance - time.Second, infrav1.ReleasingReason, releasing, infrav1.ReleasingReason},
		"it takes too long":                   {infrav1.EraseNone, releaseAllowance, infrav1.ReleasingReason, releasing, infrav1.ReleaseOverdueReason},
		"it may be erasing":                   {infrav1.EraseFull, releaseAllowance + eraseAllowance, infrav1.ReleasingReason, releasing, infrav1.ReleasingReason},
		"erasing takes too long":              {infrav1.EraseFull, 24 * time.Hour, infrav1.ReleasingReason, releasing, infrav1.ReleaseOverdueReason},
		"the disks were being erased so long": {infrav1.EraseNone, 24 * time.Hour, infrav1.EraseOverdueReason, diskErasing, infrav1.ReleasingReason},
	} {
		t.Run(name, func(t *testing.T) {
			m := &infrav1.MaasMachine{Spec: erasing(tc.erase)}
			notDeployed(m, tc.before, "so far")
			l := lifeOf(t, m)
			l.record.Release = &infrav1.MachineReleaseStatus{Erase: tc.erase, StartTime: ptrTime(now.Add(-tc.passed))}
			l.record.Enter(tc.phase, now.Add(-tc.passed))
			l.maas = &maas.Machine{SystemID: "abc", Status: maas.StatusReleasing, Storage: 1e6}
			recorder := events.NewFakeRecorder(10)
			r := &MaasMachineReconciler{Recorder: recorder}
			for range 2 {
				if after := r.watchRelease(l, now); after <= 0 || after > safetyRetry {
					t.Errorf("it is looked at again after %v", after)
				}
				if got := conditions.GetReason(m, infrav1.MachineDeployedCondition); got != tc.want {
					t.Errorf("the reason is %s, want %s", got, tc.want)
				}
			}
			told := 0
			if tc.want == infrav1.ReleaseOverdueReason {
				told = 1
			}
			if n := len(recorder.Events); n != told {
				t.Errorf("%d events, want %d", n, told)
			}
		})
	}
}

// The rescue mode that can't be ended is tried again at growing intervals, like a release.
func TestFailedRescueModePauses(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m := &infrav1.MaasMachine{}
	l := lifeOf(t, m)
	l.maas = &maas.Machine{SystemID: "abc", Status: maas.StatusFailedToExitRescueMode}
	r := &MaasMachineReconciler{Recorder: events.NewFakeRecorder(10)}
	if pause := r.pauseAfterFailure(l, now); pause != 0 {
		t.Errorf("the first try waits %v", pause)
	}
	for _, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute} {
		noteRelease(l, now)
		if pause := r.pauseAfterFailure(l, now); pause != want {
			t.Errorf("the next try waits %v, want %v", pause, want)
		}
	}
	if got := conditions.GetReason(m, infrav1.MachineDeployedCondition); got != infrav1.RescueModeFailedReason {
		t.Errorf("the reason is %s", got)
	}
	if l.record.Release.FailedTime.Time != metav1.NewTime(now).Rfc3339Copy().Time {
		t.Errorf("the failure is noted at %v", l.record.Release.FailedTime)
	}
}
