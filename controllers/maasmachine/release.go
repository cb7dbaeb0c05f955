// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
)

var (
	// backInPool are the states of a machine that is not allocated.
	backInPool = sets.New(maas.StatusNew, maas.StatusReady)
	// onItsWay are the states that lead to one of those.
	onItsWay = sets.New(maas.StatusReleasing, maas.StatusDiskErasing)
)

// release releases the machine, and waits until MAAS confirms that it is done.
func (r *Reconciler) release(ctx context.Context, l *life) (outcome, error) {
	if l.maas == nil {
		return proceed, nil
	}
	r.report(l)
	return r.releaseBareMetal(ctx, l)
}

const (
	// firstReleaseRetry is the backoff after the first failed attempt. Each further one doubles it, up to
	// maxReleaseRetry.
	firstReleaseRetry = time.Minute
	maxReleaseRetry   = time.Hour

	// releaseAllowance is the time for powering the machine off.
	releaseAllowance = 15 * time.Minute
	// eraseAllowance is the time for booting the machine, and for work that does not depend on the size of the disks.
	eraseAllowance = time.Hour
	// slowestErase is the minimum speed at which disks are overwritten, one after the other, in MB/s.
	slowestErase = 50
)

// erases maps spec.release.erase to the parameters of MAAS.
var erases = map[infrav1.EraseMode]maas.Erase{
	infrav1.EraseNone: maas.EraseDefault, infrav1.EraseQuick: maas.EraseQuick,
	infrav1.EraseSecure: maas.EraseSecure, infrav1.EraseFull: maas.EraseFull,
}

// releaseBareMetal releases the machine; it is done when the machine is back in the pool with its former network. Each
// attempt uses spec.release: a machine whose disks could not be erased is not released unless the spec allows it.
func (r *Reconciler) releaseBareMetal(ctx context.Context, l *life) (outcome, error) {
	switch {
	case backInPool.Has(l.maas.Status):
		return r.inPool(ctx, l)
	case onItsWay.Has(l.maas.Status):
		return r.watch(ctx, l)
	}
	done, err := l.Turn(ctx, turns.Removal, turns.Acquire) // Before the proof: the wait may be long.
	if err != nil {
		return proceed, err
	}
	defer done()
	before := l.maas.Status
	ours, err := r.isOursToRelease(ctx, l)
	switch {
	case err != nil:
		return proceed, err
	case l.maas.Status != before:
		return report.Retry(report.UnknownRetry, infrav1.ReleasingReason, "machine %s is %s now", l.maas,
			l.maas.StatusName), nil
	case !ours:
		return r.notOursAnyMore(ctx, l, l.maas)
	case l.maas.Locked:
		return waitForUnlock(l), nil
	}
	l.record.Acquired() // What acquired it has taken effect.
	if out := r.pauseAfterFailure(l, r.Clock.Now()); out.Waits() {
		return out.Within(wait.Jitter(out.Problem().RetryAfter, 0.1)), nil
	}
	if l.maas.Status == maas.StatusAllocated { // MAAS lets us, and in the pool a late call would hit the next user's.
		if out, err := r.undo(ctx, l, leftover(l).On(l.maas)); err != nil || out.Waits() {
			return out, err
		}
	}
	return r.releaseNow(ctx, l)
}

// isOursToRelease proves that the machine is ours. Once MAAS was asked to release it, the agent name may be gone though
// the machine is still ours; then our annotations in MAAS prove it, if it has them now.
func (r *Reconciler) isOursToRelease(ctx context.Context, l *life) (ours bool, err error) {
	failed := l.maas.Status == maas.StatusReleasingFailed
	if !failed {
		ours, err = l.Machines.IsOurs(ctx, l.Identity(), l.maas)
		if ours && l.maas.Status != maas.StatusFailedDiskErasing {
			l.record.Idle(record.Release) // None has begun: MAAS removes the mark then, except to erase.
		}
		if err != nil || ours || !releaseBegan(l) {
			return ours, err
		}
	}
	now, ours, err := l.Machines.IsOursInRelease(ctx, l.Identity(), l.maas.SystemID)
	if err != nil {
		return false, err
	}
	l.maas = now
	if failed && !ours {
		return l.Machines.IsOurs(ctx, l.Identity(), l.maas)
	}
	return ours, nil
}

// unreleasable are the states in which MAAS does not release a machine, and which a person or MAAS itself must end.
var unreleasable = map[maas.Status]struct{ reason, message string }{
	maas.StatusCommissioning: {infrav1.CommissioningReason,
		"is being commissioned by another user: its release continues when that ends"},
	maas.StatusFailedCommissioning: {infrav1.CommissioningFailedReason,
		"was commissioned by another user, and that failed: commission it again in MAAS to have it released"},
	maas.StatusFailedTesting: {infrav1.TestingFailedReason,
		"failed its tests, and other users could get it: override their result in MAAS to have it released"},
	maas.StatusRescueMode: {infrav1.RescueModeReason,
		"is in rescue mode, and another user may work on it: exit rescue mode in MAAS to have it released"},
	maas.StatusEnteringRescueMode: {infrav1.RescueModeReason,
		"enters rescue mode: exit rescue mode in MAAS to have it released"},
	maas.StatusExitingRescueMode: {infrav1.RescueModeReason, "exits rescue mode; then its release continues"},
	maas.StatusMissing: {infrav1.MachineMissingReason,
		"is reported as Missing by MAAS, which does not release it: delete it in MAAS"},
	maas.StatusRetired: {infrav1.MachineRetiredReason,
		"is retired in MAAS, which does not release it: delete it in MAAS"},
}

// releaseNow releases the machine, or brings it to a state from which MAAS releases it.
func (r *Reconciler) releaseNow(ctx context.Context, l *life) (outcome, error) {
	if state, is := unreleasable[l.maas.Status]; is {
		return report.Wait(report.MendRetry, state.reason, "machine %s %s", l.maas, state.message), nil
	}
	switch l.maas.Status {
	case maas.StatusTesting:
		return report.Wait(report.MendRetry, infrav1.TestingReason, "the test of machine %s is aborted; then it is released",
			l.maas), r.tellMachine(ctx, l, record.Abort, l.Machines.Abort)
	case maas.StatusFailedToEnterRescue, maas.StatusFailedToExitRescueMode:
		if err := r.tellMachine(ctx, l, record.Rescue, l.Machines.ExitRescueMode); err != nil {
			return proceed, err
		}
		recordRelease(l, r.Clock.Now())
		return report.Wait(report.SafetyRetry, infrav1.RescueModeFailedReason,
			"machine %s is brought out of rescue mode; then it is released", l.maas), nil
	}
	return report.Wait(report.SafetyRetry, infrav1.ReleasingReason, "machine %s is being released", l.maas),
		r.startRelease(ctx, l)
}

// tellMachine is change for a call about the machine alone.
func (r *Reconciler) tellMachine(
	ctx context.Context, l *life, op record.Op, do func(context.Context, maas.Permit, *maas.Machine) error,
) error {
	return r.change(ctx, l, op, func(ctx context.Context, permit maas.Permit) error { return do(ctx, permit, l.maas) })
}

// startRelease asks MAAS for the release.
func (r *Reconciler) startRelease(ctx context.Context, l *life) error {
	m := l.MaasMachine
	if why := r.whyFailed(l); why != "" { // Before the release changes its state and phase.
		if err := quarantine.Last(ctx, r.Recorder, l.record, l.Machine, l.maas, why); err != nil {
			return err
		}
	}
	unerased := l.maas.Status == maas.StatusFailedDiskErasing && m.Spec.Release.Mode() == infrav1.EraseNone
	if l.maas.Owner != "" && !l.Identity().HasAnnotations(l.maas) && l.Machines.CanMark(l.maas) {
		// The annotations prove that it is ours if MAAS removes the agent name and does not release it.
		if err := r.annotate(ctx, l); err != nil {
			return err
		}
	}
	if err := r.exclude(ctx, l, l.maas, leftover(l)); err != nil {
		return err
	}
	// It was proven to be ours; after the call the agent name may be gone. The phase is stored with the call.
	before, asked := l.record.Phase, false
	l.enterRelease(releasing, r.Clock.Now())
	err := l.record.LetGo(ctx, record.Release, func(ctx context.Context, permit maas.ReleasePermit) error {
		asked = true
		return l.Machines.Release(ctx, permit, l.maas, erases[l.erase()])
	})
	if !asked {
		l.record.Phase = before // The release has not begun.
	}
	if err != nil {
		return err
	}
	// Only now: if an attempt were recorded and refused at once, the changed status would trigger the next one at once.
	recordRelease(l, r.Clock.Now())
	if unerased {
		r.Warn(m, "ReleasedUnerased", "GiveBack",
			"MAAS failed to erase the disks of machine %s; it is released without erasing, as spec.release.erase asks", l.maas)
	}
	return nil
}

func (r *Reconciler) annotate(ctx context.Context, l *life) error {
	return r.change(ctx, l, record.Annotate, func(ctx context.Context, permit maas.Permit) error {
		return l.Machines.Mark(ctx, permit, l.Identity(), l.maas)
	})
}

// Phases since the first request for the release: MAAS releases the machine, or erases its disks.
const (
	releasing   = "releasing"
	diskErasing = "erasing-disks"
)

// enterRelease enters a phase of a release. Undoing goes on until its end: if that release fails, what the first one
// did is not done again.
func (l *life) enterRelease(phase string, now time.Time) {
	if !l.record.In(undoing) {
		l.record.Enter(phase, now)
	}
}

// releaseBegan reports whether MAAS was asked for the release of a machine that was proven to be ours.
func releaseBegan(l *life) bool { return l.record.In(releasing, diskErasing, undoing) }

// watch waits until the machine is in the pool. Then it must lose what is left on it before another of our objects
// allocates it.
func (r *Reconciler) watch(ctx context.Context, l *life) (outcome, error) {
	if _, err := r.remember(ctx, l, l.maas, leftover(l)); err != nil {
		return proceed, err
	}
	if l.maas.Status == maas.StatusDiskErasing {
		return r.watchErase(l, r.Clock.Now()), nil
	}
	return r.watchRelease(l, r.Clock.Now()), nil
}

// watchRelease waits while MAAS is releasing the machine, and emits a warning event if that takes too long.
func (r *Reconciler) watchRelease(l *life, now time.Time) outcome {
	if try := l.record.Release; try == nil || try.FailedTime != nil || l.record.In(diskErasing) {
		// The response to the release, or its record, was lost; or MAAS has erased the disks, and only now powers the machine
		// off.
		recordRelease(l, now)
	}
	l.enterRelease(releasing, now)
	limit := l.record.Release.StartTime.Add(releaseLimit(l.record.Release.Erase, l.maas.Storage))
	what := fmt.Sprintf("machine %s: %s", l.maas, l.maas.StatusName)
	if left := limit.Sub(now); left > 0 {
		return report.Wait(min(left, report.SafetyRetry), infrav1.ReleasingReason, "%s", what)
	}
	return r.warnOnce(l.MaasMachine, report.SafetyRetry, infrav1.ReleaseOverdueReason,
		"%s; it should have ended by %s: check its power and its events in MAAS", what, timestamp(limit))
}

// releaseLimit returns how long a machine may be releasing. MAAS itself gives up after 5 minutes; but if its settings
// also erase disks, the machine stays in this state meanwhile.
func releaseLimit(erase infrav1.EraseMode, storage float64) time.Duration {
	if erase == infrav1.EraseNone {
		return releaseAllowance
	}
	return releaseAllowance + eraseLimit(erase, storage)
}

// erase returns how a release erases the disks. That was done by the first one, or nothing was deployed, if the network
// is being undone or the object does not use the machine.
func (l *life) erase() infrav1.EraseMode {
	if l.record.In(undoing) || l.isUnused() {
		return infrav1.EraseNone
	}
	return l.MaasMachine.Spec.Release.Mode()
}

// isUnused reports whether the machine is given back because the object does not use it.
func (l *life) isUnused() bool { return slices.Contains(l.record.Unused, l.maas.SystemID) }

// recordRelease records a new attempt. The number of failures stays while the erase mode is the same.
func recordRelease(l *life, now time.Time) {
	try := &infrav1.MachineReleaseStatus{Erase: l.erase(), StartTime: ptrTime(now)}
	if last := l.record.Release; last != nil && last.Erase == try.Erase {
		try.Failures = last.Failures
	}
	l.record.Release = try
}

// watchErase waits, and reports since when MAAS has been erasing. MAAS has no timeout for that: it would wait for ever
// for a machine that does not boot. So a warning event is emitted if it takes too long. The erase is not aborted,
// because the disks may be slow.
func (r *Reconciler) watchErase(l *life, now time.Time) outcome {
	if try := l.record.Release; try == nil || try.FailedTime != nil {
		recordRelease(l, now) // The response to the release was lost.
	}
	l.enterRelease(diskErasing, now)
	try := l.record.Release
	what := fmt.Sprintf("MAAS has been erasing the disks of machine %s (%s) since %s", l.maas, try.Erase,
		timestamp(try.StartTime.Time))
	limit := try.StartTime.Add(eraseLimit(try.Erase, l.maas.Storage))
	if now.Before(limit) {
		return report.Wait(report.SafetyRetry, infrav1.ErasingDisksReason, "%s", what)
	}
	return r.warnOnce(l.MaasMachine, report.SafetyRetry, infrav1.EraseOverdueReason, "%s; it should have ended by %s: "+
		"check its console and its events in MAAS, and abort it there to retry", what, timestamp(limit))
}

// eraseLimit returns how long erasing may take, for disks of storage MB in total. MAAS's own settings are not known
// here.
func eraseLimit(erase infrav1.EraseMode, storage float64) time.Duration {
	if erase == infrav1.EraseQuick {
		return eraseAllowance
	}
	return eraseAllowance + time.Duration(storage/slowestErase*float64(time.Second))
}

// pauseAfterFailure waits if MAAS failed to erase the disks or to release the machine, until the next attempt. A
// failure may be temporary, but each attempt boots the machine. If the user changed the erase mode in the spec since,
// the next attempt is made at once.
func (r *Reconciler) pauseAfterFailure(l *life, now time.Time) outcome {
	m := l.MaasMachine
	if l.record.Release == nil && releaseBegan(l) {
		recordRelease(l, now) // Our attempt failed, and its response was lost.
	}
	try := l.record.Release
	reason, what, remedy := failedRelease(l.maas.Status, try)
	if reason == "" || try == nil {
		return proceed
	}
	isNew := try.FailedTime == nil
	if isNew {
		try = &infrav1.MachineReleaseStatus{Erase: try.Erase, StartTime: try.StartTime, Failures: try.Failures + 1,
			FailedTime: ptrTime(now)}
		l.record.Release = try
	}
	next := try.FailedTime.Add(releaseRetry(try.Failures))
	message := fmt.Sprintf("MAAS failed to %s machine %s (failures: %d); see its events in MAAS. The next retry is at "+
		"%s%s", what, l.maas.SystemID, try.Failures, timestamp(next), remedy)
	if isNew {
		r.Warn(m, reason, "GiveBack", "%s", message)
	}
	if try.Erase != l.erase() || !next.After(now) {
		return proceed
	}
	return report.Wait(next.Sub(now), reason, "%s", message)
}

// failedRelease returns the failed operation, and the remedy besides waiting; the reason is "" if nothing failed.
func failedRelease(status maas.Status, try *infrav1.MachineReleaseStatus) (reason, what, remedy string) {
	switch status {
	case maas.StatusFailedDiskErasing:
		if try != nil && try.Erase != infrav1.EraseNone {
			remedy = "; or change spec.release.erase (none releases it without erasing)"
		}
		return infrav1.EraseFailedReason, "erase the disks of", remedy
	case maas.StatusReleasingFailed:
		return infrav1.ReleaseFailedReason, "release", ""
	case maas.StatusFailedToEnterRescue, maas.StatusFailedToExitRescueMode:
		return infrav1.RescueModeFailedReason, "end the rescue mode of", "; or exit rescue mode in MAAS"
	}
	return "", "", ""
}

// releaseRetry returns the backoff after a number of failures in a row.
func releaseRetry(failures int32) time.Duration {
	return guard.Doubled(firstReleaseRetry, maxReleaseRetry, int(failures))
}

// warnOnce is report.Wait. It emits an event for a reason that the condition does not have yet.
func (r *Reconciler) warnOnce(
	m *infrav1.MaasMachine, after time.Duration, reason, format string, args ...any,
) outcome {
	if conditions.GetReason(m, infrav1.MachineDeployedCondition) != reason {
		r.Warn(m, reason, "GiveBack", format, args...)
	}
	return report.Wait(after, reason, format, args...)
}

// timestamp formats a time for conditions.
func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// ptrTime returns a time in the precision in which it is read back.
func ptrTime(t time.Time) *metav1.Time { return new(metav1.NewTime(t).Rfc3339Copy()) }

// waitForUnlock reports that a user has locked the machine in MAAS, which refuses to release or delete it until it is
// unlocked.
func waitForUnlock(l *life) outcome {
	return report.Wait(report.MendRetry, infrav1.MachineLockedReason,
		"machine %s is locked: unlock it in MAAS to have it given back", l.maas)
}

// notOursAnyMore emits an event that the machine is another user's now, and does not change it. It waits while that is
// not certain: MAAS removes the mark when a release starts, also that of a person, and the machine may have been seen
// before. After the release, a VM that was made for us is ours again.
func (r *Reconciler) notOursAnyMore(ctx context.Context, l *life, m *maas.Machine) (outcome, error) {
	if l.record.MayAcquire() { // The other user may release it before that takes effect.
		if out := report.Settle(l.record.Unsettled()); out.Waits() {
			return out, nil
		}
	}
	now, err := l.Inventory.Read(ctx, m.SystemID)
	switch {
	case err != nil:
		return proceed, fmt.Errorf("reading whose machine %s is: %w", m.SystemID, err)
	case onItsWay.Has(now.Status):
		return report.Wait(report.CapacityRetry, infrav1.ReleasingReason, "machine %s: %s", now, now.StatusName), nil
	case now.Status != m.Status:
		return report.Retry(report.UnknownRetry, infrav1.ReleasingReason, "machine %s is %s now", now, now.StatusName), nil
	}
	r.Warn(l.MaasMachine, infrav1.MachineNotOursReason, "GiveBack", "machine %s is no longer ours; it is not changed", m)
	l.foreign = m
	return proceed, nil
}
