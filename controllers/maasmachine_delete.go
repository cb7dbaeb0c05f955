// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// givenBack is why the object of a machine goes.
const givenBack = "the machine is released, or its VM deleted, in MAAS"

// nothingAcquired: MAAS was never asked for a machine, or refused, and no VM can have been made without MAAS knowing it.
func nothingAcquired(m *infrav1.MaasMachine) bool {
	recorded, err := record.Of(m)
	return err == nil && m.Spec.SystemID == "" && !recorded.MayAcquire() && len(recorded.Hosts) == 0
}

// endpointRemoval takes the machine's address out of the DNS record before the machine goes. When the whole cluster goes, the record
// goes with it.
func (r *MaasMachineReconciler) endpointRemoval(ctx context.Context, l *life) (outcome, error) {
	if !l.IsControlPlane() || l.Endpoint() != scope.EndpointDNS || !l.Cluster.Cluster.DeletionTimestamp.IsZero() || !l.MaasCluster.DeletionTimestamp.IsZero() {
		return proceed, nil
	}
	if _, _, err := publishEndpoint(ctx, r.Client, l.Cluster); err != nil {
		return proceed, fmt.Errorf("removing the machine from the API endpoint: %w", err)
	}
	return proceed, nil
}

// finishDeletion returns the address to its pool, now that nothing of the machine is left in MAAS, and lets the MaasMachine go.
func (r *MaasMachineReconciler) finishDeletion(ctx context.Context, m *owners, how string) (ctrl.Result, error) {
	returned, err := r.returnAddress(ctx, m.maasMachine, m.record)
	if err != nil {
		return r.stopped(ctx, m.maasMachine, err)
	}
	if !returned {
		return ctrl.Result{RequeueAfter: safetyRetry}, nil
	}
	// What was recorded since the object was read, by a reconcile that did not know of the deletion yet, must be seen first: that is a conflict.
	if err := m.record.Write(ctx, func(m client.Object) { controllerutil.RemoveFinalizer(m, infrav1.MachineFinalizer) }); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.Recorder.Eventf(m.maasMachine, nil, corev1.EventTypeNormal, "Deleted", "Delete", "%s", how)
	return ctrl.Result{}, nil
}

// returning is the phase in which nothing of the machine is left in MAAS, and its address goes back to the pool. MAAS is asked no more: the
// machine may be another user's.
const returning = "returning-address"

// returnAddress deletes the claim, and reports whether it is gone. Until the machine is gone, its address must not be given to another.
func (r *MaasMachineReconciler) returnAddress(ctx context.Context, m *infrav1.MaasMachine, rec *record.Record) (bool, error) {
	if m.Spec.StaticIPPoolRef == nil {
		return true, nil
	}
	claim := &ipamv1.IPAddressClaim{}
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(m), claim)
	if apierrors.IsNotFound(err) || (err == nil && !metav1.IsControlledBy(claim, m)) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading IPAddressClaim %s: %w", m.Name, err)
	}
	if !rec.In(returning) {
		if err := rec.Store(ctx, func(d *record.Data) { d.Enter(returning, time.Now()) }); err != nil {
			return false, err
		}
	}
	if claim.DeletionTimestamp.IsZero() {
		uid := claim.UID
		err := r.Client.Delete(ctx, claim, client.Preconditions{UID: &uid})
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("deleting IPAddressClaim %s: %w", claim.Name, err)
		}
	}
	notDeployed(m, infrav1.ReturningIPAddressReason, "waiting for %s %s to release %s: IPAddressClaim %s is being deleted",
		claim.Spec.PoolRef.Kind, claim.Spec.PoolRef.Name, cmp.Or(m.Status.StaticIP, "the address"), claim.Name)
	return false, nil
}
