// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
)

// Removal deletes the VM. When MAAS no longer has it, its removal from the host is still to be verified.
func (s *Steps) Removal(ctx context.Context, l *life.Life) (life.Outcome, error) {
	s.Report(l)
	on, line := vmOn(l, l.MAAS), turns.Removal
	if on.HostFirst {
		line = turns.RemovalFrom(on.HostRef)
	}
	done, err := l.Turn(ctx, line, turns.Acquire) // Before the proof: the wait may be long.
	if err != nil {
		return life.Proceed, err
	}
	defer done()
	ours, err := l.Machines.IsOurs(ctx, l.Identity(), l.MAAS)
	if err != nil {
		return life.Proceed, err
	}
	if !ours {
		return s.NotOursAnyMore(ctx, l, l.MAAS)
	}
	if l.MAAS.Locked {
		return life.WaitForUnlock(l), nil
	}
	if on.HostFirst {
		if out := awaitHosts(l); out.Waits() {
			return out, nil
		}
	}
	err = s.deleteVM(ctx, l, on, l.MAAS)
	if s.hostFirst = on.HostFirst && (err == nil || lxd.CantAsk(err)); s.hostFirst {
		if err == nil {
			s.deletedAt = time.Now()
		}
		return life.Proceed, nil
	}
	if err != nil {
		if guard.Is[*lxd.DirectError](err) {
			hostAnswered(l)
		}
		return life.Proceed, err
	}
	// The inventory triggers a reconcile when it is gone.
	return report.Wait(report.CapacityRetry, infrav1.ReleasingReason, "VM %s is being deleted", l.MAAS), nil
}

// deleteVM deletes a VM, after it has recorded the deletion and the VM's host. The inventory shows when MAAS no longer
// has it, and lxd.Service.Find when its host no longer has it.
func (s *Steps) deleteVM(ctx context.Context, l *life.Life, on lxd.VM, vm *maas.Machine) error {
	noteAddresses(l, vm)
	if err := recordDeletion(ctx, l, on.HostRef); err != nil || (on.HostFirst && on.HostRef == "") {
		return err
	}
	l.Inventory.Observe(vm.SystemID, inventory.Leaving)
	return l.Record.OnHost(ctx, record.DeleteVM, func(ctx context.Context, permit maas.VMPermit) error {
		_, err := l.Inventory.Change(vm.SystemID, func(*maas.Client) (*maas.Machine, error) {
			return nil, l.Machines.LXD().DeleteVM(ctx, permit, on)
		})
		if err != nil && !errors.Is(err, maas.NotFound) {
			return fmt.Errorf("deleting VM %s: %w", vm.SystemID, err)
		}
		return nil
	})
}

// noteAddresses records what proves on its host that a VM is ours which MAAS composed, and has marked nowhere.
func noteAddresses(l *life.Life, vm *maas.Machine) {
	if vm.Pod != nil {
		l.Record.Addresses = slices.Sorted(slices.Values(vm.PhysicalAddresses()))
	}
}

// recordDeletion records the deletion of a VM, and its host: afterwards MAAS no longer has this information.
func recordDeletion(ctx context.Context, l *life.Life, ref string) error {
	if l.Record.In(life.Releasing) && (ref == "" || slices.Contains(l.Record.Hosts, ref)) {
		return nil
	}
	return l.Record.Store(ctx, func() {
		if ref != "" {
			l.Record.AddHost(ref)
		}
		l.Record.Enter(life.Releasing, l.Clock.Now())
	})
}

const (
	// leastHostTries is the minimum number of attempts within that time: MAAS may have been down for most of it.
	leastHostTries = 2
	// firstVMRetry and maxVMRetry bound the growing backoff after a VM was found again and deleted again. Its host may
	// start it each time.
	firstVMRetry = 5 * time.Second
	maxVMRetry   = 5 * time.Minute
)

// search looks for VMs with a machine's name on all hosts that may have one. follow handles a VM that is found. It
// depends on the machine, which is being created, runs in another VM, or is being deleted.
type search struct {
	own       string // the host that the machine runs on; it is skipped
	systemID  string // the VM that the machine runs in, or that another user took; it is not meant
	namesakes bool   // the VM may have got another name in MAAS
	// deletedAt is when the host began to delete the VM; the zero value: it did not.
	deletedAt time.Time
	follow    func(ctx context.Context, l *life.Life, ref string, found lxd.Presence) (next, error)
}

// next is the result of the search on one host.
type next struct {
	life.Outcome
	done  bool // nothing is left to search there
	found bool // the search ends, and the next step follows
}

// everywhere searches the hosts in order, until one stops the search.
func (s search) everywhere(ctx context.Context, l *life.Life) (life.Outcome, error) {
	for _, ref := range l.Record.Hosts {
		if ref == s.own {
			continue
		}
		if pause := pauseOf(l.Record.CleanupSoFar(), l.Clock.Now()); pause > 0 {
			return report.Retry(pause, infrav1.VMCameBackReason, "VM %s came back on its host, and is being deleted again",
				l.Identity().Hostname), nil
		}
		vm := l.VM(s.systemID)
		vm.HostRef, vm.Namesakes, vm.Elsewhere, vm.DeletedAt = ref, s.namesakes, s.own, s.deletedAt
		if s.systemID == "" { // Otherwise it is not the VM whose addresses are recorded.
			vm.Addresses = l.Record.Addresses
		}
		found, err := l.Machines.LXD().Find(ctx, vm)
		if err != nil {
			return life.Proceed, fmt.Errorf("looking for VM %s on its host: %w", vm.Hostname, err)
		}
		then := next{done: true}
		if found.State != lxd.Gone {
			if then, err = s.follow(ctx, l, ref, found); err != nil || then.Waits() || then.found {
				return then.Outcome, err
			}
		}
		if then.done {
			l.Record.DropHost(ref)
		}
	}
	return life.Proceed, nil
}

// Verification checks that a VM which was deleted is gone from its host, too: MAAS reports a machine as deleted even
// if its VM could not be, and registers it as a new machine at the next refresh of the host. If another user took the
// VM, an earlier attempt may have created a second one, which has another name in MAAS.
func (s *Steps) Verification(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MAAS != nil && l.Foreign == nil && !s.hostFirst {
		return life.Proceed, nil
	}
	if out := awaitHosts(l); out.Waits() {
		return out, nil
	}
	if host := l.MaasMachine.Status.LXDHost; host != "" && len(l.Record.Hosts) == 0 {
		l.Record.AddHost(cmp.Or(l.Record.Runs, lxd.HostRef(lxd.Host{Name: host})))
	}
	check := l.Record.CleanupSoFar()
	if !check.Namesakes && (len(l.Record.Hosts) > 1 || l.Foreign != nil) {
		check.Namesakes = true
		l.Record.Cleanup = &check
	}
	theirs := ""
	if l.Foreign != nil {
		theirs, l.Record.Addresses = l.Foreign.SystemID, nil // Those of the VM that is theirs.
	}
	all := search{systemID: theirs, namesakes: check.Namesakes, deletedAt: s.deletedAt, follow: s.deleting}
	return all.everywhere(ctx, l)
}

// awaitHosts waits while a host may still do what it was asked for: that would hit the VM of the next MaasMachine of
// the name, which has the same marks. Afterwards the hosts are searched.
func awaitHosts(l *life.Life) life.Outcome {
	if !l.Record.MayChangeHost() {
		return life.Proceed
	}
	if left := l.Record.Unsettled(); left > 0 {
		return report.Wait(min(left, report.CapacityRetry), infrav1.VerifyingVMReason,
			"the response to a call that starts, stops or deletes VM %s was lost; "+
				"waiting, because its host may still do it, and would hit the next VM of the name", l.Identity().Hostname)
	}
	l.Record.HostsSettled()
	return life.Proceed
}

func (s *Steps) deleting(ctx context.Context, l *life.Life, ref string, found lxd.Presence) (next, error) {
	switch found.State {
	case lxd.Pending:
		return next{Outcome: s.awaitHost(l, found)}, nil
	case lxd.Present:
		out, err := s.cameBack(ctx, l, ref, found.VM)
		return next{Outcome: out}, err
	}
	out, err := s.hostUnreachable(ctx, l, ref, found, s.Clock.Now())
	return next{Outcome: out, done: true}, err
}

// awaitHost waits for a host that is about to say whether it has the VM. That the VM came back stays in the condition.
func (s *Steps) awaitHost(l *life.Life, found lxd.Presence) life.Outcome {
	const checking = "VM %s was deleted; checking that host %s no longer has it"
	if l.Record.CleanupSoFar().CameBack > 0 {
		return report.Retry(found.After, infrav1.VerifyingVMReason, checking, l.Identity().Hostname, found.Host)
	}
	return report.Wait(found.After, infrav1.VerifyingVMReason, checking, l.Identity().Hostname, found.Host)
}

// hostUnreachable waits for the host for a while, and then reports that a VM may be left there.
func (s *Steps) hostUnreachable(
	ctx context.Context, l *life.Life, ref string, found lxd.Presence, now time.Time,
) (life.Outcome, error) {
	m, check, vm := l.MaasMachine, l.Record.CleanupSoFar(), l.Identity().Hostname
	if errors.Is(found.Why, maas.Forbidden) {
		s.Warn(m, infrav1.MAASRefusedReason, "Delete",
			"can't check that VM %s is gone from its VM host, because only %s may refresh VM hosts: %s",
			vm, rights.VMs.Users(""), maas.Message(found.Why))
		return life.Proceed, nil
	}
	if unprepared, is := errors.AsType[*lxd.FormerHostError](found.Why); is && !found.Never {
		return awaitFormerHost(unprepared), nil
	}
	if check.UnreachableSince == nil {
		check.UnreachableSince, check.Tries = life.PtrTime(now), 0
	}
	check.Tries++
	limit := check.UnreachableSince.Add(s.HostUnreachableTimeout)
	if left := limit.Sub(now); !found.Never && (left > 0 || check.Tries < leastHostTries) {
		l.Record.Cleanup = &check
		return s.WarnOnce(m, max(min(found.After, left), time.Second), infrav1.VMHostUnreachableReason, "host %s can't be "+
			"asked whether VM %s is gone there: %s; retrying until %s", found.Host, vm, maas.Message(found.Why),
			life.Timestamp(limit)), nil
	}
	remedy, remembered, err := s.leave(ctx, l, ref, found, now)
	if err != nil {
		return life.Proceed, err
	}
	check.Remains = check.Remains || (!found.Never && !remembered)
	s.Warn(m, "VMMayRemain", "Delete", "VM %s may remain on host %s, which could not be asked since %s: %s. %s", vm,
		found.Host, life.Timestamp(check.UnreachableSince.Time), maas.Message(found.Why), remedy)
	check.UnreachableSince, check.Tries = nil, 0
	l.Record.Cleanup = &check
	return life.Proceed, nil
}

// hostAnswered ends the time for which a host could not be asked, also if it refuses to delete the VM: that is retried
// without a limit.
func hostAnswered(l *life.Life) {
	if check := l.Record.CleanupSoFar(); check.UnreachableSince != nil {
		check.UnreachableSince, check.Tries = nil, 0
		l.Record.Cleanup = &check
	}
}

// cameBack deletes a VM that was found again, and reports it. If its host refuses, the deletion is retried with a
// growing backoff, without a limit: MAAS has the VM, so it is not lost, and an operator must repair the host.
func (s *Steps) cameBack(ctx context.Context, l *life.Life, ref string, back *lxd.VM) (life.Outcome, error) {
	times, err := s.deleteAgain(ctx, l, ref, back)
	if err != nil {
		return life.Proceed, err
	}
	return s.WarnOnce(l.MaasMachine, vmRetry(times), infrav1.VMCameBackReason, "host %s still had VM %s after it "+
		"was deleted; deleting it again (times: %d)", back.Host, back.Hostname, times), nil
}

// deleteAgain deletes a VM that was found again, and returns how often that has happened. Its name in MAAS, or that on
// its host, proves that it is ours.
func (s *Steps) deleteAgain(ctx context.Context, l *life.Life, ref string, back *lxd.VM) (times int, err error) {
	hostAnswered(l)
	if back.HostRef != ref {
		if err := l.Record.Store(ctx, func() { l.Record.AddHost(back.HostRef) }); err != nil {
			return 0, err
		}
	}
	if err := deleteFound(ctx, l, back); err != nil {
		return 0, fmt.Errorf("deleting VM %s again: %w", back.Hostname, err)
	}
	check := l.Record.CleanupSoFar()
	check.CameBack++
	check.DeletedAt = life.PtrTime(s.Clock.Now())
	l.Record.Cleanup = &check
	return check.CameBack, nil
}

// deleteFound deletes a VM that was found on its host. One that MAAS does not have any more is no error.
func deleteFound(ctx context.Context, l *life.Life, vm *lxd.VM) error {
	return l.Record.OnHost(ctx, record.DeleteVM, func(ctx context.Context, permit maas.VMPermit) error {
		err := l.Machines.LXD().DeleteVM(ctx, permit, *vm)
		if errors.Is(err, maas.NotFound) && maas.HadNoEffect(err) {
			return nil
		}
		return err
	})
}

// WithoutSecondVMs deletes second VMs, whatever became of the machine: one that failed, that another user took or that
// MAAS no longer has stays until its Machine is deleted.
func (s *Steps) WithoutSecondVMs(
	ctx context.Context, l *life.Life, result ctrl.Result, err error,
) (ctrl.Result, error) {
	if apierrors.IsConflict(err) || errors.Is(err, context.Canceled) || l.Inventory.Health() != nil {
		return result, err
	}
	out, failed := s.secondVMRemoval(ctx, l)
	switch {
	case err != nil:
		return result, err
	case failed != nil:
		return report.Explain(failed).Result(failed)
	case out.Waits():
		after := out.Problem().RetryAfter
		result.RequeueAfter = min(cmp.Or(result.RequeueAfter, after), after)
	}
	return result, nil
}

// secondVMRemoval deletes a VM that an earlier attempt created on a host that was unreachable then. The machine has
// another VM meanwhile, so MAAS gave the second one another name when it registered it.
func (s *Steps) secondVMRemoval(ctx context.Context, l *life.Life) (life.Outcome, error) {
	own := ownHost(l)
	if own == "" {
		return life.Proceed, nil
	}
	out, err := search{
		own: own, systemID: l.MaasMachine.Spec.SystemID, namesakes: true, follow: s.running,
	}.everywhere(ctx, l)
	if err == nil && !out.Waits() {
		l.Record.Cleanup = nil
	}
	return out, err
}

// ownHost returns the recorded host of the VM that the machine has, or had. "": it is not known which of them that is.
// Then no other one may be searched: a VM that was taken over runs on one that is recorded in another form.
func ownHost(l *life.Life) string {
	var isOwn func(ref string) bool
	switch {
	case l.MaasMachine.Spec.SystemID == "" || (l.Record.Registers && l.Record.Runs == ""):
		return "" // It is being made.
	case l.Record.Runs != "":
		isOwn = func(ref string) bool { return ref == l.Record.Runs }
	case l.MAAS == nil: // MAAS no longer has it, or is still to say.
		named := list.Where(l.Record.Hosts, func(ref string) bool { return lxd.IsNamed(ref, l.MaasMachine.Status.LXDHost) })
		if len(named) != 1 { // A VM host that was registered anew is recorded twice.
			return ""
		}
		return named[0]
	default:
		on := vmOn(l, l.MAAS)
		if l.MAAS.Pod != nil {
			return on.HostRef
		}
		isOwn = func(ref string) bool { return ref == on.HostRef }
	}
	return list.First(l.Record.Hosts, isOwn)
}

func (s *Steps) running(ctx context.Context, l *life.Life, ref string, found lxd.Presence) (next, error) {
	switch {
	case found.State == lxd.Pending:
		return next{Outcome: awaitSecondVM(l, found.After)}, nil
	case found.State == lxd.Unreachable && found.Never && !errors.Is(found.Why, maas.Forbidden):
		s.Warn(l.MaasMachine, "VMMayRemain", "Delete", "a second VM %s, which never ran, may remain on host %s: %s. Delete "+
			"it in the LXD of that host, if it is there", l.Identity().Hostname, found.Host, maas.Message(found.Why))
		return next{done: true}, nil
	case found.State == lxd.Unreachable:
		return next{Outcome: awaitSecondVM(l, report.SafetyRetry)}, nil
	}
	times, err := s.deleteAgain(ctx, l, ref, found.VM)
	if err != nil {
		return next{}, err
	}
	s.Tell(l.MaasMachine, "SpareVMDeleted", "Delete",
		"host %s had made a second VM although that was reported as a failure: VM %s is being deleted", found.VM.Host,
		maas.Named(found.VM.Hostname, found.VM.SystemID))
	return next{Outcome: awaitSecondVM(l, vmRetry(times))}, nil
}

// awaitSecondVM waits until another host can say whether it has a second VM of the machine, or no longer has it.
func awaitSecondVM(l *life.Life, after time.Duration) life.Outcome {
	return report.Retry(after, infrav1.VerifyingVMReason, "checking that no other host has a second VM %s",
		l.Identity().Hostname)
}

// pauseOf returns the time until the next check whether the VM is back.
func pauseOf(c record.Cleanup, now time.Time) time.Duration {
	if c.DeletedAt == nil {
		return 0
	}
	return c.DeletedAt.Add(vmRetry(c.CameBack)).Sub(now)
}

// vmRetry returns the backoff after a VM was found again so many times.
func vmRetry(times int) time.Duration {
	return guard.Doubled(firstVMRetry, maxVMRetry, times)
}

// Deregistration removes what MAAS has of a VM that no host has any more. If the VM may be left on a host, MAAS keeps
// it with its address: no other VM gets that, unless both specs name it.
func (s *Steps) Deregistration(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MAAS == nil || l.Foreign != nil || (!s.hostFirst && !l.MAAS.Device) {
		return life.Proceed, nil
	}
	if l.MaasMachine.Spec.StaticIP == "" && l.MAAS.Device {
		if remains, err := s.MayRemain(ctx, l.Identity().Hostname, l.Record); err != nil || remains {
			return life.Proceed, err
		}
	}
	return life.Proceed, l.Inventory.Delete(l.MAAS.SystemID, func() error {
		return l.Machines.LXD().Forget(ctx, record.ChangeVM.Permit(), l.MAAS, l.Identity().AgentName)
	})
}
