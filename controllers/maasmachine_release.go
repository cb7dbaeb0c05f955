// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

const (
	// firstReleaseRetry is the pause after the first try that failed. Each further one doubles it, up to maxReleaseRetry.
	firstReleaseRetry = time.Minute
	maxReleaseRetry   = time.Hour

	// eraseAllowance is for booting the machine, and for what does not depend on the size of the disks.
	eraseAllowance = time.Hour
	// slowestErase is how fast disks are overwritten at least, one after the other, in MB/s.
	slowestErase = 50
)

// erases is what MAAS is asked for, by what the spec says.
var erases = map[infrav1.EraseMode]maas.Erase{
	infrav1.EraseNone: maas.EraseDefault, infrav1.EraseQuick: maas.EraseQuick,
	infrav1.EraseSecure: maas.EraseSecure, infrav1.EraseFull: maas.EraseFull,
}

// releaseBareMetal releases the machine; it is done when the machine is back in the pool with its network as before. What spec.release
// asks for is asked for in each try: a machine whose disks could not be erased is not given back unless the spec says so.
func (r *MaasMachineReconciler) releaseBareMetal(ctx context.Context, l *life) (outcome, error) {
	switch {
	case l.maas.Status == maas.StatusDiskErasing:
		r.watchErase(l, time.Now())
		return waitAtMost(safetyRetry), nil
	case onItsWay.Has(l.maas.Status):
		notDeployed(l.MaasMachine, infrav1.ReleasingReason, "machine %s: %s", l.maas.SystemID, l.maas.StatusName)
		return waitAtMost(safetyRetry), nil
	case backInPool.Has(l.maas.Status):
		if left := unsettled(l.MaasMachine, r.SettleTime); left > 0 {
			notDeployed(l.MaasMachine, infrav1.MAASUnavailableReason,
				"MAAS did not say what became of the request for machine %s; it may still be acquired", l.maas.SystemID)
			return waitAtMost(min(left, capacityRetry)), nil
		}
		return r.restoreNetwork(ctx, l)
	}
	ours, err := l.Machines.IsOurs(ctx, l.Identity(), l.maas)
	if err != nil {
		return proceed, err
	}
	if !ours {
		return r.leaveAlone(l)
	}
	if l.maas.Locked {
		return waitForUnlock(l), nil
	}
	if pause := r.pauseAfterFailure(l, time.Now()); pause > 0 {
		return waitAtMost(wait.Jitter(pause, 0.1)), nil
	}
	return waitAtMost(safetyRetry), r.startRelease(ctx, l)
}

// startRelease asks MAAS for the release.
func (r *MaasMachineReconciler) startRelease(ctx context.Context, l *life) error {
	m, erase := l.MaasMachine, l.MaasMachine.Spec.Release.Mode()
	unerased := l.maas.Status == maas.StatusFailedDiskErasing && erase == infrav1.EraseNone
	if err := l.Machines.Release(ctx, l.maas, erases[erase]); err != nil {
		return err
	}
	// Only now: a try that is noted and refused at once would change the status, which makes the next try follow at once.
	noteRelease(m, time.Now())
	if unerased {
		r.Recorder.Eventf(m, nil, corev1.EventTypeWarning, "ReleasedUnerased", "Delete",
			"the disks of machine %s (%s) could not be erased; it is released without, as spec.release.erase says", l.maas.Hostname, l.maas.SystemID)
	}
	notDeployed(m, infrav1.ReleasingReason, "machine %s is being released", l.maas.SystemID)
	return nil
}

// noteRelease notes a new try. Failures count as long as the same is tried.
func noteRelease(m *infrav1.MaasMachine, now time.Time) {
	try := &infrav1.MachineReleaseStatus{Erase: m.Spec.Release.Mode(), StartTime: ptrTime(now)}
	if last := m.Status.Release; last != nil && last.Erase == try.Erase {
		try.Failures = last.Failures
	}
	m.Status.Release = try
}

// watchErase says since when MAAS has been erasing. MAAS has no time limit for that: a machine that does not boot would be erased for
// ever. So somebody is told when it takes too long; it is not aborted, for it may be the disks that are slow.
func (r *MaasMachineReconciler) watchErase(l *life, now time.Time) {
	m := l.MaasMachine
	if m.Status.Release == nil || m.Status.Release.FailedTime != nil {
		noteRelease(m, now) // The answer to the release was lost, or its record.
	}
	try := m.Status.Release
	what := fmt.Sprintf("MAAS erases the disks of machine %s (%s) since %s", l.maas.SystemID, try.Erase, clock(try.StartTime.Time))
	limit := try.StartTime.Add(eraseLimit(try.Erase, l.maas.Storage))
	if now.Before(limit) {
		notDeployed(m, infrav1.ErasingDisksReason, "%s", what)
		return
	}
	message := fmt.Sprintf("%s; it should have ended by %s: look at its console and its events in MAAS, and abort it there to have it tried again",
		what, clock(limit))
	r.warnOnce(m, infrav1.EraseOverdueReason, message)
	notDeployed(m, infrav1.EraseOverdueReason, "%s", message)
}

// eraseLimit is how long erasing may take, with disks of so many MB. What MAAS does by its own settings is not known here.
func eraseLimit(erase infrav1.EraseMode, storage float64) time.Duration {
	if erase == infrav1.EraseQuick {
		return eraseAllowance
	}
	return eraseAllowance + time.Duration(storage/slowestErase*float64(time.Second))
}

// pauseAfterFailure says that MAAS failed to erase the disks or to release the machine, and answers how long to wait before it is
// tried again; 0 means now. What fails by itself may pass, but each try boots the machine. When the spec asks for something else than
// what failed, a person has decided: that is tried at once.
func (r *MaasMachineReconciler) pauseAfterFailure(l *life, now time.Time) time.Duration {
	m, try := l.MaasMachine, l.MaasMachine.Status.Release
	reason, what, remedy := failedRelease(l.maas.Status, try)
	if reason == "" || try == nil {
		return 0
	}
	isNew := try.FailedTime == nil
	if isNew {
		try.Failures, try.FailedTime = try.Failures+1, ptrTime(now)
	}
	next := try.FailedTime.Add(releaseRetry(try.Failures))
	message := fmt.Sprintf("MAAS could not %s machine %s (failures: %d); its events in MAAS say why. It is tried again at %s%s",
		what, l.maas.SystemID, try.Failures, clock(next), remedy)
	if isNew {
		r.Recorder.Eventf(m, nil, corev1.EventTypeWarning, reason, "Delete", "%s", message)
	}
	if try.Erase != m.Spec.Release.Mode() {
		return 0
	}
	notDeployed(m, reason, "%s", message)
	return next.Sub(now)
}

// failedRelease tells what failed, and what can be done besides waiting; the reason is "" where nothing did.
func failedRelease(status maas.Status, try *infrav1.MachineReleaseStatus) (reason, what, remedy string) {
	switch status {
	case maas.StatusFailedDiskErasing:
		if try != nil && try.Erase != infrav1.EraseNone {
			remedy = "; or set spec.release.erase to something else (none gives it back without erasing it)"
		}
		return infrav1.EraseFailedReason, "erase the disks of", remedy
	case maas.StatusReleasingFailed:
		return infrav1.ReleaseFailedReason, "release", ""
	}
	return "", "", ""
}

// releaseRetry is the pause after so many failures in a row.
func releaseRetry(failures int32) time.Duration {
	pause := firstReleaseRetry
	for ; failures > 1 && pause < maxReleaseRetry; failures-- {
		pause *= 2
	}
	return min(pause, maxReleaseRetry)
}

// warnOnce makes an event of a reason that the condition does not have yet.
func (r *MaasMachineReconciler) warnOnce(m *infrav1.MaasMachine, reason, message string) {
	if conditions.GetReason(m, infrav1.MachineDeployedCondition) != reason {
		r.Recorder.Eventf(m, nil, corev1.EventTypeWarning, reason, "Delete", "%s", message)
	}
}

// clock is a time as conditions say it.
func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func ptrTime(t time.Time) *metav1.Time {
	stored := metav1.NewTime(t).Rfc3339Copy() // As it is read back.
	return &stored
}
