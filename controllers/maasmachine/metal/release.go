// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/controllers/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
)

// Release releases the machine, and waits until MAAS confirms that it is done.
func (s *Steps) Release(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MAAS == nil {
		return life.Proceed, nil
	}
	s.Report(l)
	return s.releaseBareMetal(ctx, l)
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
func (s *Steps) releaseBareMetal(ctx context.Context, l *life.Life) (life.Outcome, error) {
	switch {
	case life.BackInPool.Has(l.MAAS.Status):
		return s.inPool(ctx, l)
	case life.OnItsWay.Has(l.MAAS.Status):
		return s.watch(ctx, l)
	}
	done, err := l.Turn(ctx, turns.Removal, turns.Acquire) // Before the proof: the wait may be long.
	if err != nil {
		return life.Proceed, err
	}
	defer done()
	before := l.MAAS.Status
	ours, err := s.IsOursToRelease(ctx, l)
	switch {
	case err != nil:
		return life.Proceed, err
	case l.MAAS.Status != before:
		return report.Retry(report.UnknownRetry, infrav1.ReleasingReason, "machine %s is %s now", l.MAAS,
			l.MAAS.StatusName), nil
	case !ours:
		return s.NotOursAnyMore(ctx, l, l.MAAS)
	case l.MAAS.Locked:
		return life.WaitForUnlock(l), nil
	}
	l.Record.Acquired() // What acquired it has taken effect.
	if out := s.pauseAfterFailure(l, s.Clock.Now()); out.Waits() {
		return out.Within(wait.Jitter(out.Problem().RetryAfter, 0.1)), nil
	}
	if l.MAAS.Status == maas.StatusAllocated { // MAAS lets us, and in the pool a late call would hit the next user's.
		if out, err := s.undo(ctx, l, leftover(l).On(l.MAAS)); err != nil || out.Waits() {
			return out, err
		}
	}
	return s.releaseNow(ctx, l)
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
func (s *Steps) releaseNow(ctx context.Context, l *life.Life) (life.Outcome, error) {
	failedOurs := l.MAAS.Status == maas.StatusFailedTesting && testsBegan(l)
	if state, is := unreleasable[l.MAAS.Status]; is && !failedOurs {
		return report.Wait(report.MendRetry, state.reason, "machine %s %s", l.MAAS, state.message), nil
	}
	switch l.MAAS.Status {
	case maas.StatusTesting:
		return report.Wait(report.MendRetry, infrav1.TestingReason, "the test of machine %s is aborted; then it is released",
			l.MAAS), s.TellMachine(ctx, l, record.Abort, l.Machines.Abort)
	case maas.StatusFailedTesting: // MAAS releases one that is broken: others may have it then, as any that failed.
		if err := s.lastQuarantine(ctx, l); err != nil {
			return life.Proceed, err
		}
		return report.Wait(report.UnknownRetry, infrav1.ReleasingReason, "machine %s failed its checks, is marked broken, "+
			"and then released", l.MAAS), s.TellMachine(ctx, l, record.MarkBroken, l.Machines.MarkBroken)
	case maas.StatusFailedToEnterRescue, maas.StatusFailedToExitRescueMode:
		if err := s.TellMachine(ctx, l, record.Rescue, l.Machines.ExitRescueMode); err != nil {
			return life.Proceed, err
		}
		recordRelease(l, s.Clock.Now())
		return report.Wait(report.SafetyRetry, infrav1.RescueModeFailedReason,
			"machine %s is brought out of rescue mode; then it is released", l.MAAS), nil
	}
	what := "is being released"
	if l.MAAS.IsSwitchedByHand() {
		what = RunsOn
	}
	return report.Wait(report.SafetyRetry, infrav1.ReleasingReason, "machine %s %s", l.MAAS, what), s.startRelease(ctx, l)
}

// RunsOn is what a released machine does that MAAS can't switch.
const RunsOn = "is released, and MAAS can't switch this machine (power type manual): a person must switch it off, as " +
	"it runs on with what was deployed"

// startRelease asks MAAS for the release.
func (s *Steps) startRelease(ctx context.Context, l *life.Life) error {
	m := l.MaasMachine
	if err := s.lastQuarantine(ctx, l); err != nil { // Before the release changes its state and phase.
		return err
	}
	unerased := l.MAAS.Status == maas.StatusFailedDiskErasing && m.Spec.Release.Mode() == infrav1.EraseNone
	if l.MAAS.Owner != "" && !l.Identity().HasAnnotations(l.MAAS) && l.Machines.CanMark(l.MAAS) {
		// The annotations prove that it is ours if MAAS removes the agent name and does not release it.
		if err := s.Annotate(ctx, l); err != nil {
			return err
		}
	}
	if err := s.exclude(ctx, l, l.MAAS, leftover(l)); err != nil {
		return err
	}
	// It was proven to be ours; after the call the agent name may be gone. The phase is stored with the call.
	before, asked := l.Record.Phase, false
	enterRelease(l, life.Releasing, s.Clock.Now())
	err := l.Record.CallRelease(ctx, record.Release, func(ctx context.Context, permit maas.ReleasePermit) error {
		asked = true
		return l.Machines.Release(ctx, permit, l.MAAS, erases[erase(l)])
	})
	if !asked {
		l.Record.Phase = before // The release has not begun.
	}
	if err != nil {
		return err
	}
	// Only now: if an attempt were recorded and refused at once, the changed status would trigger the next one at once.
	recordRelease(l, s.Clock.Now())
	if l.MAAS.IsSwitchedByHand() {
		s.Warn(m, infrav1.SwitchedByHandReason, "GiveBack", "machine %s %s", l.MAAS, RunsOn)
	}
	if unerased {
		s.Warn(m, "ReleasedUnerased", "GiveBack",
			"MAAS failed to erase the disks of machine %s; it is released without erasing, as spec.release.erase asks", l.MAAS)
	}
	return nil
}

// lastQuarantine puts a machine into quarantine that failed, before it is let go.
func (s *Steps) lastQuarantine(ctx context.Context, l *life.Life) error {
	tests := l.Record.TestsOf(l.MAAS.SystemID)
	if l.MAAS.Status == maas.StatusFailedTesting && tests != nil && tests.WhyNot() == "" {
		if err := s.noteFailure(ctx, l, tests); err != nil {
			return err
		}
	}
	if why := s.WhyFailed(l); why != "" {
		return quarantine.Last(ctx, s.Recorder, l.Record, l.Machine, l.MAAS, why)
	}
	return nil
}

// enterRelease enters a phase of a release. Undoing goes on until its end: if that release fails, what the first one
// did is not done again.
func enterRelease(l *life.Life, phase string, now time.Time) {
	if !l.Record.In(life.Undoing) {
		l.Record.Enter(phase, now)
	}
}

// watch waits until the machine is in the pool. Then it must lose what is left on it before another of our objects
// allocates it.
func (s *Steps) watch(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if _, err := s.remember(ctx, l, l.MAAS, leftover(l)); err != nil {
		return life.Proceed, err
	}
	if l.MAAS.Status == maas.StatusDiskErasing {
		return s.watchErase(l, s.Clock.Now()), nil
	}
	return s.watchRelease(l, s.Clock.Now()), nil
}

// watchRelease waits while MAAS is releasing the machine, and emits a warning event if that takes too long.
func (s *Steps) watchRelease(l *life.Life, now time.Time) life.Outcome {
	if try := l.Record.Release; try == nil || try.FailedTime != nil || l.Record.In(life.DiskErasing) {
		// The response to the release, or its record, was lost; or MAAS has erased the disks, and only now powers the machine
		// off.
		recordRelease(l, now)
	}
	enterRelease(l, life.Releasing, now)
	limit := l.Record.Release.StartTime.Add(releaseLimit(l.Record.Release.Erase, l.MAAS.Storage))
	what := fmt.Sprintf("machine %s: %s", l.MAAS, l.MAAS.StatusName)
	if left := limit.Sub(now); left > 0 {
		return report.Wait(min(left, report.SafetyRetry), infrav1.ReleasingReason, "%s", what)
	}
	return s.WarnOnce(l.MaasMachine, report.SafetyRetry, infrav1.ReleaseOverdueReason,
		"%s; it should have ended by %s: check its power and its events in MAAS", what, life.Timestamp(limit))
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
func erase(l *life.Life) infrav1.EraseMode {
	if l.Record.In(life.Undoing) || isUnused(l) {
		return infrav1.EraseNone
	}
	return l.MaasMachine.Spec.Release.Mode()
}

// isUnused reports whether the machine is given back because the object does not use it.
func isUnused(l *life.Life) bool { return slices.Contains(l.Record.Unused, l.MAAS.SystemID) }

// recordRelease records a new attempt. The number of failures stays while the erase mode is the same.
func recordRelease(l *life.Life, now time.Time) {
	try := &infrav1.MachineReleaseStatus{Erase: erase(l), StartTime: life.PtrTime(now)}
	if last := l.Record.Release; last != nil && last.Erase == try.Erase {
		try.Failures = last.Failures
	}
	l.Record.Release = try
}

// watchErase waits, and reports since when MAAS has been erasing. MAAS has no timeout for that: it would wait for ever
// for a machine that does not boot. So a warning event is emitted if it takes too long. The erase is not aborted,
// because the disks may be slow.
func (s *Steps) watchErase(l *life.Life, now time.Time) life.Outcome {
	if try := l.Record.Release; try == nil || try.FailedTime != nil {
		recordRelease(l, now) // The response to the release was lost.
	}
	enterRelease(l, life.DiskErasing, now)
	try := l.Record.Release
	what := fmt.Sprintf("MAAS has been erasing the disks of machine %s (%s) since %s", l.MAAS, try.Erase,
		life.Timestamp(try.StartTime.Time))
	limit := try.StartTime.Add(eraseLimit(try.Erase, l.MAAS.Storage))
	if now.Before(limit) {
		return report.Wait(report.SafetyRetry, infrav1.ErasingDisksReason, "%s", what)
	}
	return s.WarnOnce(l.MaasMachine, report.SafetyRetry, infrav1.EraseOverdueReason, "%s; it should have ended by %s: "+
		"check its console and its events in MAAS, and abort it there to retry", what, life.Timestamp(limit))
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
func (s *Steps) pauseAfterFailure(l *life.Life, now time.Time) life.Outcome {
	m := l.MaasMachine
	if l.Record.Release == nil && life.ReleaseBegan(l) {
		recordRelease(l, now) // Our attempt failed, and its response was lost.
	}
	try := l.Record.Release
	reason, what, remedy := failedRelease(l.MAAS.Status, try)
	if reason == "" || try == nil {
		return life.Proceed
	}
	isNew := try.FailedTime == nil
	if isNew {
		try = &infrav1.MachineReleaseStatus{Erase: try.Erase, StartTime: try.StartTime, Failures: try.Failures + 1,
			FailedTime: life.PtrTime(now)}
		l.Record.Release = try
	}
	next := try.FailedTime.Add(releaseRetry(try.Failures))
	message := fmt.Sprintf("MAAS failed to %s machine %s (failures: %d); see its events in MAAS. The next retry is at "+
		"%s%s", what, l.MAAS.SystemID, try.Failures, life.Timestamp(next), remedy)
	if isNew {
		s.Warn(m, reason, "GiveBack", "%s", message)
	}
	if try.Erase != erase(l) || !next.After(now) {
		return life.Proceed
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
