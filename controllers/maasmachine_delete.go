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
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// reconcileDelete is the end of a machine: out of the endpoint's DNS record, out of MAAS and off its host or back into the pool, and only
// when MAAS says that this is so, the object goes too.
func (r *MaasMachineReconciler) reconcileDelete(ctx context.Context, m *belongings) (ctrl.Result, error) {
	if nothingAcquired(m.maasMachine) {
		// A reconcile that did not know of the deletion yet may have noted something since.
		if stale, err := r.isStale(ctx, m.maasMachine); err != nil || stale {
			return ctrl.Result{RequeueAfter: unknownRetry}, err
		}
		return r.finishDeletion(ctx, m.maasMachine, "nothing had been acquired in MAAS")
	}
	if isReturning(m.maasMachine) {
		return r.finishDeletion(ctx, m.maasMachine, givenBack)
	}
	if m.maasCluster == nil {
		notDeployed(m.maasMachine, infrav1.WaitingForClusterInfrastructureReason,
			"the MaasCluster is gone, and with it the credentials to give back machine %s", m.maasMachine.Spec.SystemID)
		return ctrl.Result{RequeueAfter: mendRetry}, nil
	}
	if m.original != nil {
		return r.finishDeletion(ctx, m.maasMachine, "the cluster is a copy; what is in MAAS is left to the original's")
	}
	s, err := r.scope(ctx, m)
	if err != nil {
		return r.stopped(ctx, m.maasMachine, err)
	}
	l := &life{Machine: s}
	out, err := through(ctx, l, r.leaveEndpoint, r.findForDeletion, r.leaveVMHosts, r.release, r.verify)
	if err != nil {
		return r.stopped(ctx, m.maasMachine, err)
	}
	if out.stop {
		return ctrl.Result{RequeueAfter: out.after}, nil
	}
	l.Inventory.Forget(m.maasMachine.Spec.SystemID)
	l.Machines.LetIn(m.maasMachine.Spec.SystemID, string(m.maasMachine.UID))
	return r.finishDeletion(ctx, m.maasMachine, givenBack)
}

// givenBack is why the object of a machine goes.
const givenBack = "MAAS says that the machine is given back"

// nothingAcquired: MAAS was never asked for a machine, or refused, and no VM can have been made without MAAS knowing it.
func nothingAcquired(m *infrav1.MaasMachine) bool {
	return m.Spec.SystemID == "" && m.Annotations[infrav1.AcquireStartedAnnotation] == "" && len(vmPlaces(m)) == 0
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
	id := l.MaasMachine.Spec.SystemID
	if id == "" {
		out, err := r.adopt(ctx, l)
		if err != nil || out.stop || l.maas == nil {
			return out, err
		}
		return proceed, nil
	}
	seen := l.Inventory.Observe(id, true)
	if !seen.Known {
		if err := l.Inventory.Health(); err != nil {
			return proceed, fmt.Errorf("reading the machine: %w", err)
		}
		return waitAtMost(unknownRetry), nil
	}
	l.maas = seen.Machine
	return proceed, nil
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

// releaseVM deletes the VM. When MAAS does not have it any more, it is still to be verified.
func (r *MaasMachineReconciler) releaseVM(ctx context.Context, l *life) (outcome, error) {
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
	if err := r.deleteVM(ctx, l, l.maas); err != nil {
		return proceed, err
	}
	notDeployed(l.MaasMachine, infrav1.ReleasingReason, "VM %s is being deleted", l.maas.SystemID)
	return waitAtMost(unknownRetry), nil
}

// deleteVM deletes a VM, after it is noted where that was.
func (r *MaasMachineReconciler) deleteVM(ctx context.Context, l *life, vm *maas.Machine) error {
	if err := r.notePlace(ctx, l, vm); err != nil {
		return err
	}
	return l.Machines.DeleteVM(ctx, vm)
}

var (
	// backInPool are the states of a machine that nobody holds.
	backInPool = sets.New(maas.StatusNew, maas.StatusReady)
	// onItsWay are the states that end in one of those.
	onItsWay = sets.New(maas.StatusReleasing, maas.StatusDiskErasing)
)

// waitForUnlock says that somebody has locked the machine in MAAS, which refuses to release or delete it until it is unlocked.
func waitForUnlock(l *life) outcome {
	notDeployed(l.MaasMachine, infrav1.MachineLockedReason, "machine %s is locked: unlock it in MAAS, and its deletion goes on", l.maas.SystemID)
	return waitAtMost(mendRetry)
}

// leaveAlone ends our interest in a machine that somebody else has now.
func (r *MaasMachineReconciler) leaveAlone(l *life) (outcome, error) {
	r.Recorder.Eventf(l.MaasMachine, nil, corev1.EventTypeWarning, infrav1.MachineNotOursReason, "Delete",
		"machine %s (%s) is not ours any more; it is left as it is", l.maas.Hostname, l.maas.SystemID)
	return proceed, nil
}

// giveBack returns a machine that was acquired twice.
func (r *MaasMachineReconciler) giveBack(ctx context.Context, l *life, extra *maas.Machine) error {
	if l.IsLXD() {
		return r.deleteVM(ctx, l, extra)
	}
	return l.Machines.Release(ctx, extra, maas.EraseDefault) // Nothing was deployed on it.
}
