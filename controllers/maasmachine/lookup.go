// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"errors"
	"sort"
	"time"

	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/states"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// lookup reads a machine that was acquired before from the inventory.
func (r *Reconciler) lookup(ctx context.Context, l *life) (outcome, error) {
	m := l.MaasMachine
	if m.Spec.SystemID == "" {
		return proceed, nil
	}
	interest := inventory.Changing
	if conditions.IsTrue(m, infrav1.MachineDeployedCondition) {
		interest = inventory.Settled
	}
	if out, err := r.readMachine(l, interest); err != nil || out.Waits() {
		return out, err
	}
	if l.maas == nil && l.record.Runs != "" {
		return r.lostDevice(ctx, l)
	}
	if l.maas == nil {
		return r.reportState(l, states.Vanished), nil
	}
	if r.look(ctx, l) {
		return r.reportState(l, states.VMVanished), nil
	}
	return proceed, nil
}

// readMachine reads the machine from the inventory; nil means that MAAS proved that it no longer has it.
func (r *Reconciler) readMachine(l *life, interest inventory.Interest) (outcome, error) {
	m := l.MaasMachine
	observe := l.Inventory.Observe
	if l.record.Runs != "" {
		observe = l.Inventory.ObserveDevice
	}
	seen := observe(m.Spec.SystemID, interest)
	if seen.Machine != nil { // One that is gone does not come back.
		l.record.AsOf(seen.At)
	}
	if err := l.Inventory.Health(); err != nil {
		// It may have changed since the last response. The inventory triggers a reconcile when MAAS can be read again.
		p := report.Explain(err)
		return proceed, report.Later(report.SafetyRetry, p.Reason, "%s", p.Message)
	}
	_, accepted := l.MaasCluster.Annotations[infrav1.AcceptVanishedAnnotation]
	switch {
	case !seen.Known:
		return report.Retry(report.UnknownRetry, infrav1.NotReadyReason, "reading machine %s", m.Spec.SystemID), nil
	case seen.Hidden:
		return hold(m, infrav1.MachineHiddenReason,
			"MAAS has machine %s and does not show it to the user of the API key: let that user see it again, or use another "+
				"key", m.Spec.SystemID), nil
	case seen.Machine == nil && seen.Vanished > 0 && !accepted:
		return hold(m, infrav1.MachinesVanishedReason,
			"MAAS reports that machine %s is gone, one of %d at once: check whether MAAS was restored or emptied. If they are "+
				"really gone, set the annotation %s on the MaasCluster",
			m.Spec.SystemID, seen.Vanished, infrav1.AcceptVanishedAnnotation), nil
	}
	l.maas = seen.Machine
	return proceed, nil
}

// hold waits for a person: until then the machine is neither reported as lost nor released.
func hold(m *infrav1.MaasMachine, reason, format string, args ...any) outcome {
	m.Status.FailureReason, m.Status.FailureMessage = "", ""
	return report.Hold(report.MendRetry, reason, format, args...)
}

// composed checks that the machine of a VM's MaasMachine was composed for it. The deletion of any other machine would
// delete its disks.
func (r *Reconciler) composed(ctx context.Context, l *life) (outcome, error) {
	if l.maas == nil || wasProvisioned(l.MaasMachine) {
		return proceed, nil
	}
	composed, err := l.Machines.IsComposed(ctx, l.Identity(), l.maas)
	if err != nil || composed {
		return proceed, err
	}
	return report.Wait(report.MendRetry, infrav1.MachineNotOursReason,
		"machine %s (%s) was not composed for this MaasMachine: remove spec.systemID, or use provisioningMode bare-metal "+
			"for a machine of choice",
		l.maas.SystemID, l.maas.Hostname), nil
}

// deletionLookup finds the machine, even if it was acquired but not recorded.
func (r *Reconciler) deletionLookup(ctx context.Context, l *life) (outcome, error) {
	// Anybody may have written an id into the spec of a VM that was being made.
	made := l.record.Registers && l.record.Runs == ""
	if l.MaasMachine.Spec.SystemID != "" && !made {
		interest := inventory.Changing
		if l.IsLXD() && releaseBegan(l) {
			interest = inventory.Leaving
		}
		out, err := r.readMachine(l, interest)
		l.noteDeployment()
		if err != nil || out.Waits() {
			return out, err
		}
		return r.onlyNamed(ctx, l)
	}
	found, foreign, err := r.find(ctx, l)
	switch {
	case err != nil:
		return proceed, err
	case foreign != nil:
		return r.notOursAnyMore(ctx, l, foreign)
	case len(found) > 0:
		return r.adoptOne(ctx, l, found)
	}
	if out := report.Settle(l.record.Unsettled()); out.Waits() || !l.record.Registers {
		return out, nil
	}
	l.maas, err = l.Machines.LXD().FindDevice(ctx, l.VM(""), l.Mark())
	if guard.Is[*lxd.NameTakenError](err) {
		return proceed, nil // It is not ours.
	}
	return proceed, err
}

// adoption finds machines that an earlier attempt acquired but could not record. It keeps one, and releases the others.
func (r *Reconciler) adoption(ctx context.Context, l *life) (outcome, error) {
	if l.maas != nil {
		return r.onlyNamed(ctx, l)
	}
	found, foreign, err := r.find(ctx, l)
	switch {
	case err != nil:
		return proceed, err
	case foreign != nil:
		return report.Wait(report.MendRetry, infrav1.MachineNotOursReason,
			"machine %s has the name %s, and is not ours (MAAS user %q): rename it in MAAS, or delete the Machine",
			foreign.SystemID, foreign.Hostname, foreign.Owner), nil
	case len(found) == 0:
		// settlement waits for those, if it has to.
		return report.Settle(l.record.Unsettled(record.Storage, record.Exclude)), nil
	}
	return r.adoptOne(ctx, l, found)
}

// onlyNamed gives back a machine that was acquired and could not be recorded, because a person has named another one in
// the spec meanwhile.
func (r *Reconciler) onlyNamed(ctx context.Context, l *life) (outcome, error) {
	if !l.record.IsPending(record.Allocate) && !l.record.IsPending(record.TakeOver) {
		return proceed, nil
	}
	if out := report.Settle(l.record.Unsettled()); out.Waits() { // All that was asked for is given back together.
		return out, nil
	}
	found, err := l.Machines.Find(ctx, l.Identity())
	if err != nil {
		return proceed, err
	}
	for _, m := range found {
		if m.SystemID != l.MaasMachine.Spec.SystemID {
			l.bid.extra = append(l.bid.extra, m.SystemID)
		}
	}
	if len(l.bid.extra) == 0 {
		l.record.Done(record.Allocate)
		l.record.Done(record.TakeOver)
		return proceed, nil
	}
	return report.Retry(time.Second, infrav1.NotReadyReason, "what the spec does not name is given back: %s",
		text.List(l.bid.extra, maxSkipped)), l.record.Store(ctx, l.acquiredExtra)
}

// adoptOne continues with one of the machines that were found, and releases the others.
func (r *Reconciler) adoptOne(ctx context.Context, l *life, found []*maas.Machine) (outcome, error) {
	// Of two machines, release the one that failed recently.
	sort.SliceStable(found, func(i, j int) bool {
		return !l.Machines.Quarantine.FailedRecently(found[i]) && l.Machines.Quarantine.FailedRecently(found[j])
	})
	for _, extra := range found[1:] {
		if !l.IsLXD() {
			l.bid.extra = append(l.bid.extra, extra.SystemID)
			continue
		}
		ctrl.LoggerFrom(ctx).Info("Deleting a VM that was made twice", "systemID", extra.SystemID)
		err := r.deleteVM(ctx, l, l.vmOn(extra), extra)
		l.Inventory.Forget(extra.SystemID)
		if err != nil {
			return proceed, err
		}
	}
	if l.IsLXD() {
		return proceed, r.acquired(ctx, l, found[0], "Adopted")
	}
	l.bid.given, l.bid.adopted = found[0], true
	return proceed, nil
}

// find returns the machines that an earlier attempt acquired, or another user's machine that has our VM's name.
func (r *Reconciler) find(ctx context.Context, l *life) (ours []*maas.Machine, foreign *maas.Machine, err error) {
	found, err := l.Machines.Find(ctx, l.Identity())
	if err != nil || !l.IsLXD() {
		return found, nil, err
	}
	for _, m := range found {
		isOurs, err := r.isOurVM(ctx, l, m)
		if err != nil {
			return nil, nil, err
		}
		if !isOurs {
			return nil, m, nil
		}
	}
	return found, nil, nil
}

// isOurVM reports whether a machine that has our VM's name is our VM. Any user of MAAS can add a machine of that name,
// and with our VM as what MAAS switches. Until it is acquired, what proves that one is ours which MAAS composed when it
// had VM hosts is that the VM with its MAC addresses is on the host that we chose.
func (r *Reconciler) isOurVM(ctx context.Context, l *life, m *maas.Machine) (bool, error) {
	if m.Pod != nil || !m.Unacquired() {
		return l.Machines.IsOurs(ctx, l.Identity(), m)
	}
	_, host, err := l.adoptVM(ctx, m)
	none, is := errors.AsType[*lxd.FormerHostError](err)
	if lxdhost.KindOf(err) == lxdhost.KindConflict || (is && none.LXDHost == "") {
		return false, nil
	}
	return host != nil, err
}
