// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/lifetest"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

func TestEraseLimitGrowsWithTheDisks(t *testing.T) {
	const tb = 1e6 // MB
	for name, tc := range map[string]struct {
		erase       infrav1.EraseMode
		storage     float64
		least, most time.Duration
	}{
		"quick does not hang on the size": {infrav1.EraseQuick, 100 * tb, time.Hour, time.Hour},
		"a small disk":                    {infrav1.EraseFull, 0.1 * tb, time.Hour, 2 * time.Hour},
		"large disks":                     {infrav1.EraseFull, 16 * tb, 72 * time.Hour, 120 * time.Hour},
		"secure may have to overwrite":    {infrav1.EraseSecure, 16 * tb, 72 * time.Hour, 120 * time.Hour},
		"MAAS's settings may be full":     {infrav1.EraseNone, 16 * tb, 72 * time.Hour, 120 * time.Hour},
		"a size that is not known":        {infrav1.EraseFull, 0, time.Hour, time.Hour},
	} {
		if got := eraseLimit(tc.erase, tc.storage); got < tc.least || got > tc.most {
			t.Errorf("%s: %v, want %v to %v", name, got, tc.least, tc.most)
		}
	}
}

func TestReleaseRetryGrowsUpToAnHour(t *testing.T) {
	last := time.Duration(0)
	for failures := int32(1); failures < 100; failures++ {
		pause := releaseRetry(failures)
		if pause < last || pause > time.Hour || (last < time.Hour && pause == last) {
			t.Fatalf("%v after %d failures, %v after one less", pause, failures, last)
		}
		last = pause
	}
	if first := releaseRetry(1); first != time.Minute || last != time.Hour {
		t.Errorf("the pauses go from %v to %v, want a minute to an hour", first, last)
	}
}

// An attempt whose record was lost, or is not read yet, counts too: otherwise the next one would follow at once.
func TestPauseAfterAFailureThatWasNotRecorded(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m := &infrav1.MaasMachine{Spec: erasing(infrav1.EraseFull)}
	l := lifetest.Of(t, m)
	l.Record.Enter(life.Releasing, now)
	l.MAAS = &maas.Machine{SystemID: "abc", Status: maas.StatusFailedDiskErasing}
	r := New(&life.Steps{Base: reconciler.Base{Clock: clocktesting.NewFakePassiveClock(now), Recorder: events.NewFakeRecorder(10)}})
	if out := r.pauseAfterFailure(l, now); out.Problem().RetryAfter != time.Minute || l.Record.Release == nil || l.Record.Release.Failures != 1 {
		t.Errorf("the pause is %+v after %+v", out, l.Record.Release)
	}
}

// Nothing of a machine that is not used, or whose network is being undone, is erased, whatever the spec says of the
// object's own.
func TestPauseAfterAFailureWithoutErasing(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, phase := range map[string]string{"not used": life.Releasing, "undoing": life.Undoing} {
		t.Run(name, func(t *testing.T) {
			l := lifetest.Of(t, &infrav1.MaasMachine{Spec: erasing(infrav1.EraseFull)})
			l.MAAS = &maas.Machine{SystemID: "abc", Status: maas.StatusReleasingFailed}
			if phase == life.Releasing {
				l.Record.Unused = []string{"abc"}
			}
			l.Record.Enter(phase, now)
			recordRelease(l, now)
			r := New(&life.Steps{Base: reconciler.Base{Clock: clocktesting.NewFakePassiveClock(now), Recorder: events.NewFakeRecorder(10)}})
			if out := r.pauseAfterFailure(l, now); l.Record.Release.Erase != infrav1.EraseNone || out.Problem().RetryAfter != time.Minute {
				t.Errorf("the pause is %+v after %+v", out, l.Record.Release)
			}
		})
	}
}

func TestPauseAfterFailure(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	failed := &infrav1.MachineReleaseStatus{Erase: infrav1.EraseFull, Failures: 3, FailedTime: life.PtrTime(now.Add(-time.Minute))}
	for name, tc := range map[string]struct {
		status   maas.Status
		try      *infrav1.MachineReleaseStatus
		spec     infrav1.EraseMode
		want     time.Duration
		failures int32
	}{
		"nothing failed":                  {maas.StatusDeployed, nil, "", 0, 0},
		"another user's try failed":       {maas.StatusFailedDiskErasing, nil, infrav1.EraseFull, 0, 0},
		"the first failure is seen":       {maas.StatusFailedDiskErasing, &infrav1.MachineReleaseStatus{Erase: infrav1.EraseFull}, infrav1.EraseFull, time.Minute, 1},
		"a release failed":                {maas.StatusReleasingFailed, &infrav1.MachineReleaseStatus{Erase: infrav1.EraseNone}, "", time.Minute, 1},
		"the third failure is waited for": {maas.StatusFailedDiskErasing, failed, infrav1.EraseFull, 3 * time.Minute, 3},
		"the spec has changed":            {maas.StatusFailedDiskErasing, failed, infrav1.EraseQuick, 0, 3},
		"the spec has none now":           {maas.StatusFailedDiskErasing, failed, infrav1.EraseNone, 0, 3},
		"the policy was removed":          {maas.StatusFailedDiskErasing, failed, "", 0, 3},
	} {
		t.Run(name, func(t *testing.T) {
			m := &infrav1.MaasMachine{Spec: erasing(tc.spec)}
			l := lifetest.Of(t, m)
			l.Record.Release = tc.try.DeepCopy()
			l.MAAS = &maas.Machine{SystemID: "abc", Status: tc.status}
			r := New(&life.Steps{Base: reconciler.Base{Clock: clocktesting.NewFakePassiveClock(now), Recorder: events.NewFakeRecorder(10)}})
			if got := r.pauseAfterFailure(l, now).Problem().RetryAfter; got != tc.want {
				t.Errorf("the pause is %v, want %v", got, tc.want)
			}
			if l.Record.Release != nil && l.Record.Release.Failures != tc.failures {
				t.Errorf("%d failures are recorded, want %d", l.Record.Release.Failures, tc.failures)
			}
			recordRelease(l, now)
			again := m.Spec.Release.Mode() == ptr.Deref(tc.try, infrav1.MachineReleaseStatus{}).Erase
			if try := l.Record.Release; try.FailedTime != nil || (try.Failures > 0) != (again && tc.failures > 0) {
				t.Errorf("the next attempt is recorded as %+v", try)
			}
		})
	}
}

// Disks are erased by the first release: when a later one, after the network was undone, fails, that is still known.
func TestUndoingLastsUntilItsReleaseIsOver(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for status, watch := range map[maas.Status]func(*Steps, *life.Life){
		maas.StatusReleasing:   func(r *Steps, l *life.Life) { r.watchRelease(l, now) },
		maas.StatusDiskErasing: func(r *Steps, l *life.Life) { r.watchErase(l, now) }, // As MAAS's settings may want.
	} {
		for phase, want := range map[string]bool{life.Undoing: true, life.Releasing: false} {
			l := lifetest.Of(t, &infrav1.MaasMachine{Spec: erasing(infrav1.EraseQuick)})
			l.Record.Enter(phase, now)
			l.MAAS = &maas.Machine{SystemID: "abc", Status: status}
			r := New(&life.Steps{Base: reconciler.Base{Clock: clocktesting.NewFakePassiveClock(now), Recorder: events.NewFakeRecorder(10)}})
			watch(r, l)
			l.MAAS.Status = maas.StatusReleasingFailed
			r.pauseAfterFailure(l, now)
			if is := l.Record.In(life.Undoing); is != want || !life.ReleaseBegan(l) {
				t.Errorf("status %v, phase %s: then it is %+v", status, phase, l.Record.Phase)
			}
		}
	}
}

// What an object does not use is released as what is deleted, and nothing of it is being deleted.
func TestNothingIsSaidToBeDeletedByARelease(t *testing.T) {
	for status, state := range unreleasable {
		if strings.Contains(state.message, "deletion") {
			t.Errorf("a machine that is %v %q", status, state.message)
		}
	}
	l := &life.Life{MAAS: &maas.Machine{SystemID: "abc", Locked: true}}
	if message := life.WaitForUnlock(l).Problem().Message; strings.Contains(message, "deletion") {
		t.Errorf("of a locked machine it says %q", message)
	}
}

func TestAHangingReleaseIsReportedOnce(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tc := range map[string]struct {
		erase  infrav1.EraseMode
		passed time.Duration
		before string // the previous reason
		phase  string
		want   string
	}{
		"it takes a while":                    {infrav1.EraseNone, releaseAllowance - time.Second, infrav1.ReleasingReason, life.Releasing, infrav1.ReleasingReason},
		"it takes too long":                   {infrav1.EraseNone, releaseAllowance, infrav1.ReleasingReason, life.Releasing, infrav1.ReleaseOverdueReason},
		"it may be erasing":                   {infrav1.EraseFull, releaseAllowance + eraseAllowance, infrav1.ReleasingReason, life.Releasing, infrav1.ReleasingReason},
		"erasing takes too long":              {infrav1.EraseFull, 24 * time.Hour, infrav1.ReleasingReason, life.Releasing, infrav1.ReleaseOverdueReason},
		"the disks were being erased so long": {infrav1.EraseNone, 24 * time.Hour, infrav1.EraseOverdueReason, life.DiskErasing, infrav1.ReleasingReason},
	} {
		t.Run(name, func(t *testing.T) {
			m := &infrav1.MaasMachine{Spec: erasing(tc.erase)}
			life.NotDeployed(m, tc.before, "so far")
			l := lifetest.Of(t, m)
			l.Record.Release = &infrav1.MachineReleaseStatus{Erase: tc.erase, StartTime: life.PtrTime(now.Add(-tc.passed))}
			l.Record.Enter(tc.phase, now.Add(-tc.passed))
			l.MAAS = &maas.Machine{SystemID: "abc", Status: maas.StatusReleasing, Storage: 1e6}
			recorder := events.NewFakeRecorder(10)
			r := New(&life.Steps{Base: reconciler.Base{Clock: clocktesting.NewFakePassiveClock(now), Recorder: recorder}})
			for range 2 {
				if after := life.Await(m, r.watchRelease(l, now)).RequeueAfter; after <= 0 || after > report.SafetyRetry {
					t.Errorf("requeued after %v", after)
				}
				if got := conditions.GetReason(m, infrav1.MachineDeployedCondition); got != tc.want {
					t.Errorf("the reason is %s, want %s", got, tc.want)
				}
			}
			want := 0
			if tc.want == infrav1.ReleaseOverdueReason {
				want = 1
			}
			if n := len(recorder.Events); n != want {
				t.Errorf("%d events, want %d", n, want)
			}
		})
	}
}

// Attempts to end a rescue mode are repeated with a growing backoff, like a release.
func TestFailedRescueModePauses(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m := &infrav1.MaasMachine{}
	l := lifetest.Of(t, m)
	l.MAAS = &maas.Machine{SystemID: "abc", Status: maas.StatusFailedToExitRescueMode}
	r := New(&life.Steps{Base: reconciler.Base{Clock: clocktesting.NewFakePassiveClock(now), Recorder: events.NewFakeRecorder(10)}})
	if out := r.pauseAfterFailure(l, now); out.Waits() {
		t.Errorf("the first try waits: %+v", out)
	}
	for _, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute} {
		recordRelease(l, now)
		if pause := life.Await(m, r.pauseAfterFailure(l, now)).RequeueAfter; pause != want {
			t.Errorf("the next try waits %v, want %v", pause, want)
		}
	}
	if got := conditions.GetReason(m, infrav1.MachineDeployedCondition); got != infrav1.RescueModeFailedReason {
		t.Errorf("the reason is %s", got)
	}
	if l.Record.Release.FailedTime.Time != metav1.NewTime(now).Rfc3339Copy().Time {
		t.Errorf("the failure is recorded at %v", l.Record.Release.FailedTime)
	}
}

// erasing is a spec of bare metal with a release policy.
func erasing(erase infrav1.EraseMode) infrav1.MaasMachineSpec {
	return infrav1.MaasMachineSpec{Release: infrav1.MachineRelease{Erase: erase}}
}
