// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
)

// reconcileDelete is the end of a machine: out of the endpoint's DNS record, out of MAAS and off its host or back into the pool, and only
// when MAAS says that this is so, the object goes too.
func (r *MaasMachineReconciler) reconcileDelete(ctx context.Context, m *belongings) (ctrl.Result, error) {
	if nothingAcquired(m.maasMachine) {
		// A reconcile that did not know of the deletion yet may have noted something since.
		if stale, err := r.isStale(ctx, m.maasMachine); err != nil || stale {
			return ctrl.Result{RequeueAfter: unknownRetry}, err
		}
		return r.finishDeletion(ctx, m, "nothing had been acquired in MAAS")
	}
	if m.record.In(returning) {
		return r.finishDeletion(ctx, m, givenBack)
	}
	if m.maasCluster == nil {
		notDeployed(m.maasMachine, infrav1.WaitingForClusterInfrastructureReason,
			"the MaasCluster is gone, and with it the credentials to give back machine %s", m.maasMachine.Spec.SystemID)
		return ctrl.Result{RequeueAfter: mendRetry}, nil
	}
	if m.original != nil {
		return r.finishDeletion(ctx, m, "the cluster is a copy; what is in MAAS is left to the original's")
	}
	if p := ownerProblem(m); p != nil {
		cantSee(m.maasMachine, *p)
		return ctrl.Result{RequeueAfter: p.retryAfter}, nil
	}
	s, err := r.scope(ctx, m)
	if err != nil {
		return r.stopped(ctx, m.maasMachine, err)
	}
	l := &life{Machine: s, record: m.record}
	out, err := through(ctx, l, r.leaveEndpoint, r.findForDeletion, r.leaveVMHosts, r.release, r.verify)
	if err != nil {
		return r.stopped(ctx, m.maasMachine, err)
	}
	if out.stop {
		return ctrl.Result{RequeueAfter: out.after}, nil
	}
	l.Inventory.Forget(m.maasMachine.Spec.SystemID)
	l.Machines.Include(m.maasMachine.Spec.SystemID, string(m.maasMachine.UID))
	return r.finishDeletion(ctx, m, givenBack)
}

// givenBack is why the object of a machine goes.
const givenBack = "MAAS says that the machine is given back"

// nothingAcquired: MAAS was never asked for a machine, or refused, and no VM can have been made without MAAS knowing it.
func nothingAcquired(m *infrav1.MaasMachine) bool {
	recorded, err := record.Of(m)
	return err == nil && m.Spec.SystemID == "" && !recorded.MayAcquire() && len(recorded.Hosts) == 0
}

func (r *MaasMachineReconciler) deleted(m *infrav1.MaasMachine, how string) {
	if controllerutil.RemoveFinalizer(m, infrav1.MachineFinalizer) {
		r.Recorder.Eventf(m, nil, corev1.EventTypeNormal, "Deleted", "Delete", "%s", how)
	}
}

// leaveEndpoint takes the machine's address out of the DNS record before the machine goes. When the whole cluster goes, the record
// goes with it.
func (r *MaasMachineReconciler) leaveEndpoint(ctx context.Context, l *life) (outcome, error) {
	if !l.IsControlPlane() || l.Endpoint() != scope.EndpointDNS || !l.Cluster.Cluster.DeletionTimestamp.IsZero() || !l.MaasCluster.DeletionTimestamp.IsZero() {
		return proceed, nil
	}
	if _, _, err := publishEndpoint(ctx, r.Client, l.Cluster); err != nil {
		return proceed, fmt.Errorf("taking the machine out of the API endpoint: %w", err)
	}
	return proceed, nil
}

// findForDeletion finds the machine, also one that was acquired but not recorded.
func (r *MaasMachineReconciler) findForDeletion(ctx context.Context, l *life) (outcome, error) {
	if l.MaasMachine.Spec.SystemID != "" {
		interest := inventory.Changing
		if l.IsLXD() && l.record.In(releasing) {
			interest = inventory.Leaving
		}
		return r.readMachine(l, interest)
	}
	found, foreign, err := r.find(ctx, l)
	switch {
	case err != nil:
		return proceed, err
	case foreign != nil:
		return r.leaveAlone(l, foreign)
	case len(found) == 0:
		return r.awaitSettled(l), nil
	}
	return r.adoptOne(ctx, l, found)
}

// release gives the machine back, and waits until MAAS says that this is done. Each time it looks first, so that it can be
// done again at any moment.
func (r *MaasMachineReconciler) release(ctx context.Context, l *life) (outcome, error) {
	if l.maas == nil {
		return proceed, nil
	}
	r.report(l)
	if l.IsLXD() {
		return r.releaseVM(ctx, l)
	}
	return r.releaseBareMetal(ctx, l)
}

// releaseVM deletes the VM. When MAAS does not have it any more, it is still to be verified. A machine that was not composed for us is given back
// as it was taken.
func (r *MaasMachineReconciler) releaseVM(ctx context.Context, l *life) (outcome, error) {
	composed, err := l.Machines.IsComposed(ctx, l.Identity(), l.maas)
	if err != nil {
		return proceed, err
	}
	if !composed {
		l.released = true
		return r.releaseBareMetal(ctx, l)
	}
	done, err := l.Turn(ctx, turns.Removal, turns.Acquire) // Before the proof: the wait may be long.
	if err != nil {
		return proceed, err
	}
	defer done()
	ours, err := l.Machines.IsOurs(ctx, l.Identity(), l.maas)
	if err != nil {
		return proceed, err
	}
	if !ours {
		return r.leaveAlone(l, l.maas)
	}
	if l.maas.Locked {
		return waitForUnlock(l), nil
	}
	if err := r.deleteVM(ctx, l, l.maas); err != nil {
		return proceed, err
	}
	notDeployed(l.MaasMachine, infrav1.ReleasingReason, "VM %s is being deleted", l.maas.SystemID)
	return waitAtMost(unknownRetry), nil
}

// deleteVM deletes a VM, after it is noted where that was, and that it is.
func (r *MaasMachineReconciler) deleteVM(ctx context.Context, l *life, vm *maas.Machine) error {
	if err := noteDeletion(ctx, l, vm); err != nil {
		return err
	}
	l.Inventory.Observe(vm.SystemID, inventory.Leaving)
	return l.Machines.DeleteVM(ctx, record.ChangeVM.Permit(), vm)
}

var (
	// backInPool are the states of a machine that is not allocated.
	backInPool = sets.New(maas.StatusNew, maas.StatusReady)
	// onItsWay are the states that end in one of those.
	onItsWay = sets.New(maas.StatusReleasing, maas.StatusDiskErasing)
)

// waitForUnlock says that a user has locked the machine in MAAS, which refuses to release or delete it until it is unlocked.
func waitForUnlock(l *life) outcome {
	notDeployed(l.MaasMachine, infrav1.MachineLockedReason, "machine %s is locked: unlock it in MAAS, and its deletion goes on", l.maas.SystemID)
	return waitAtMost(mendRetry)
}

// leaveAlone emits an event which says that the machine is another user's now, and does not change it.
func (r *MaasMachineReconciler) leaveAlone(l *life, m *maas.Machine) (outcome, error) {
	r.Recorder.Eventf(l.MaasMachine, nil, corev1.EventTypeWarning, infrav1.MachineNotOursReason, "Delete",
		"machine %s (%s) is not ours any more; it is left as it is", m.Hostname, m.SystemID)
	return proceed, nil
}

// giveBack returns a machine that was acquired twice, or one of the wrong kind. Nothing was deployed on it.
func (r *MaasMachineReconciler) giveBack(ctx context.Context, l *life, extra *maas.Machine) error {
	defer l.Inventory.Forget(extra.SystemID)
	if l.IsLXD() {
		return r.deleteVM(ctx, l, extra)
	}
	return r.change(ctx, l, record.Release, func(ctx context.Context, permit maas.Permit) error {
		return l.Machines.Release(ctx, permit, extra, maas.EraseDefault)
	})
}
