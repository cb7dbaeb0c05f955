// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

const (
	// leastHostTries is how often it must have been tried by then: MAAS may have been away for most of the time.
	leastHostTries = 2
	// firstVMRetry and maxVMRetry bound the growing pause after a VM was found again and deleted again. Each time its host may start it.
	firstVMRetry = 5 * time.Second
	maxVMRetry   = 5 * time.Minute
)

// noteDeletion notes that a VM is deleted, and where it is: afterwards MAAS can't tell.
func noteDeletion(ctx context.Context, l *life, vm *maas.Machine) error {
	place := ""
	if vm.Pod != nil {
		place = l.Machines.LXD().Place(lxd.Host{ID: vm.Pod.ID, Name: vm.Pod.Name})
	}
	if l.record.In(releasing) && (place == "" || slices.Contains(l.record.Hosts, place)) {
		return nil
	}
	return l.record.Store(ctx, func(d *record.Data) {
		if place != "" {
			d.AddHost(place)
		}
		d.Enter(releasing, time.Now())
	})
}

// verifyAt checks that the VM is gone from a place. It returns the VM if it is there.
func verifyAt(ctx context.Context, l *life, place string) (back *lxd.VM, err error) {
	return l.Machines.LXD().VerifyVM(ctx, lxd.VM{Hostname: l.Identity().Hostname, Place: place, Namesakes: l.record.CleanupSoFar().Namesakes})
}

// recoverVM looks for a VM that an earlier try made without MAAS knowing it, which happens when a host takes too long or its answer is
// lost. Otherwise the machine would get another one, and this one would turn up under another name, for its own would be taken.
func (r *MaasMachineReconciler) recoverVM(ctx context.Context, l *life) (outcome, error) {
	if l.maas != nil || !l.IsLXD() {
		return proceed, nil
	}
	for _, place := range l.record.Hosts {
		back, err := verifyAt(ctx, l, place)
		var later *lxd.LaterError
		var unverified *lxd.UnverifiedError
		switch {
		case errors.As(err, &later):
			notDeployed(l.MaasMachine, infrav1.CreatingReason, "MAAS did not say what became of the VM; looking for it before asking again")
			return waitAtMost(later.After), nil
		case errors.As(err, &unverified), errors.Is(err, maas.Forbidden):
			continue // It is looked for again when the machine runs, or is deleted.
		case err != nil:
			return proceed, err
		case back != nil:
			return r.adopt(ctx, l)
		}
		l.record.DropHost(place)
	}
	return proceed, nil
}

// verify makes sure that a VM which MAAS does not have any more is gone from its host, too: MAAS says that a machine is deleted also when
// its VM could not be, and takes it in as a new machine when it next looks at the host.
func (r *MaasMachineReconciler) verify(ctx context.Context, l *life) (outcome, error) {
	m := l.MaasMachine
	if l.maas != nil || !l.IsLXD() {
		return proceed, nil
	}
	if pause := pauseOf(l.record.CleanupSoFar(), time.Now()); pause > 0 {
		return waitAtMost(pause), nil
	}
	if host := m.Status.LXDHost; host != "" && len(l.record.Hosts) == 0 {
		l.record.AddHost(l.Machines.LXD().Place(lxd.Host{Name: host}))
	}
	if check := l.record.CleanupSoFar(); !check.Namesakes && len(l.record.Hosts) > 1 {
		check.Namesakes = true
		l.record.Cleanup = &check
	}
	for _, place := range l.record.Hosts {
		back, err := verifyAt(ctx, l, place)
		if out, err := r.verified(ctx, l, place, back, err); err != nil || out.stop {
			return out, err
		}
		l.record.DropHost(place)
	}
	return proceed, nil
}

// verified returns what follows from a look at a place; to proceed means that there is nothing more to do there.
func (r *MaasMachineReconciler) verified(ctx context.Context, l *life, place string, back *lxd.VM, err error) (outcome, error) {
	m := l.MaasMachine
	var later *lxd.LaterError
	var unverified *lxd.UnverifiedError
	switch {
	case errors.As(err, &later):
		if l.record.CleanupSoFar().CameBack == 0 {
			notDeployed(m, infrav1.VerifyingVMReason, "MAAS deleted VM %s, and looks whether its host is rid of it", l.Identity().Hostname)
		}
		return waitAtMost(later.After), nil
	case errors.As(err, &unverified):
		return r.hostUnreachable(l, unverified, time.Now()), nil
	case errors.Is(err, maas.Forbidden):
		r.Recorder.Eventf(m, nil, corev1.EventTypeWarning, infrav1.MAASRefusedReason, "Delete",
			"whether VM %s is gone from its host can't be told: MAAS lets only administrators look: %s", l.Identity().Hostname, maas.Message(err))
		return proceed, nil
	case err != nil:
		return proceed, err
	case back != nil:
		return r.cameBack(ctx, l, place, back)
	}
	return proceed, nil
}

// hostUnreachable waits for the host for a while, and then says what may be left there.
func (r *MaasMachineReconciler) hostUnreachable(l *life, why *lxd.UnverifiedError, now time.Time) outcome {
	m, check, vm := l.MaasMachine, l.record.CleanupSoFar(), l.Identity().Hostname
	if check.UnreachableSince == nil {
		check.UnreachableSince, check.Tries = ptrTime(now), 0
	}
	check.Tries++
	limit := check.UnreachableSince.Add(r.HostPatience)
	if left := limit.Sub(now); !why.Never && (left > 0 || check.Tries < leastHostTries) {
		message := fmt.Sprintf("MAAS deleted VM %s, and can't look whether VM host %s is rid of it: %s; this is tried until %s",
			vm, why.Host, maas.Message(why), clock(limit))
		r.warnOnce(m, infrav1.VMHostUnreachableReason, message)
		notDeployed(m, infrav1.VMHostUnreachableReason, "%s", message)
		l.record.Cleanup = &check
		return waitAtMost(max(min(why.After, left), time.Second))
	}
	remedy := fmt.Sprintf("When it can, refresh the VM host in MAAS: a VM that is left turns up there as machine %s, and `capmaasctl orphans` finds it", vm)
	if why.Never {
		remedy = "This MAAS has no VM hosts any more: look on the LXD host itself, and delete the VM there"
	}
	r.Recorder.Eventf(m, nil, corev1.EventTypeWarning, "VMMayRemain", "Delete", "VM %s may remain on VM host %s, which MAAS can't look at since %s: %s. %s",
		vm, why.Host, clock(check.UnreachableSince.Time), maas.Message(why), remedy)
	check.UnreachableSince, check.Tries = nil, 0
	l.record.Cleanup = &check
	return proceed
}

// cameBack deletes a VM that was found again, and says so. If its host refuses, the deletion is retried at growing intervals, without a
// limit: MAAS has the VM, so it is not lost, and an operator must mend the host.
func (r *MaasMachineReconciler) cameBack(ctx context.Context, l *life, place string, back *lxd.VM) (outcome, error) {
	m := l.MaasMachine
	times, err := r.deleteAgain(ctx, l, place, back)
	if err != nil {
		return proceed, err
	}
	message := fmt.Sprintf("VM host %s still had VM %s, which MAAS had called deleted; it is deleted again (times: %d)", back.Host, back.Hostname, times)
	r.warnOnce(m, infrav1.VMCameBackReason, message)
	notDeployed(m, infrav1.VMCameBackReason, "%s", message)
	return waitAtMost(vmRetry(times)), nil
}

// deleteAgain deletes a VM that was found again, and returns how often that was. It is ours by its name, or by that on its host.
func (r *MaasMachineReconciler) deleteAgain(ctx context.Context, l *life, place string, back *lxd.VM) (times int, err error) {
	check := l.record.CleanupSoFar()
	if now := l.Machines.LXD().Place(lxd.Host{ID: back.HostID, Name: back.Host}); now != place {
		if err := l.record.Store(ctx, func(d *record.Data) { d.AddHost(now) }); err != nil {
			return 0, err
		}
	}
	if err := l.Machines.LXD().DeleteVM(ctx, record.ChangeVM.Permit(), *back); err != nil && !errors.Is(err, maas.NotFound) {
		return 0, fmt.Errorf("deleting VM %s again: %w", back.SystemID, err)
	}
	check.CameBack++
	check.DeletedAt = ptrTime(time.Now())
	check.UnreachableSince, check.Tries = nil, 0
	l.record.Cleanup = &check
	return check.CameBack, nil
}

// removeSpare deletes a VM that an earlier try made on a host that could not be looked at then. The machine runs in another one meanwhile,
// whose name MAAS could not give to this one when it took it in.
func (r *MaasMachineReconciler) removeSpare(ctx context.Context, l *life) (outcome, error) {
	if !l.IsLXD() || l.maas.Pod == nil {
		return proceed, nil
	}
	own := l.Machines.LXD().Place(lxd.Host{ID: l.maas.Pod.ID, Name: l.maas.Pod.Name})
	for _, place := range l.record.Hosts {
		if place == own {
			continue
		}
		if pause := pauseOf(l.record.CleanupSoFar(), time.Now()); pause > 0 {
			return waitAtMost(pause), nil
		}
		back, err := l.Machines.LXD().VerifyVM(ctx, lxd.VM{SystemID: l.maas.SystemID, Hostname: l.Identity().Hostname, Place: place, Namesakes: true})
		if out, err := r.spare(ctx, l, place, back, err); err != nil || out.stop {
			return out, err
		}
		l.record.DropHost(place)
		l.record.Cleanup = nil
	}
	return proceed, nil
}

// spare returns what follows from a look for a spare VM; to proceed means that there is none.
func (r *MaasMachineReconciler) spare(ctx context.Context, l *life, place string, back *lxd.VM, err error) (outcome, error) {
	var later *lxd.LaterError
	var unverified *lxd.UnverifiedError
	switch {
	case errors.As(err, &later):
		return waitAtMost(later.After), nil
	case errors.As(err, &unverified), errors.Is(err, maas.Forbidden):
		return waitAtMost(safetyRetry), nil
	case err != nil:
		return proceed, fmt.Errorf("looking for a VM that an earlier try made: %w", err)
	case back == nil:
		return proceed, nil
	}
	times, err := r.deleteAgain(ctx, l, place, back)
	if err != nil {
		return proceed, err
	}
	r.Recorder.Eventf(l.MaasMachine, nil, corev1.EventTypeNormal, "SpareVMDeleted", "Delete", "VM host %s had made a VM for an earlier try, which MAAS "+
		"had called a failure; MAAS had taken it in as %s (%s), and it is deleted", back.Host, back.Hostname, back.SystemID)
	return waitAtMost(vmRetry(times)), nil
}

// pauseOf is how long to wait before it is looked whether the VM is there once more.
func pauseOf(c record.Cleanup, now time.Time) time.Duration {
	if c.DeletedAt == nil {
		return 0
	}
	return c.DeletedAt.Add(vmRetry(c.CameBack)).Sub(now)
}

// vmRetry is the pause after a VM was found again so many times.
func vmRetry(times int) time.Duration {
	return maas.Doubled(firstVMRetry, maxVMRetry, times)
}
