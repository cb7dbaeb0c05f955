// SPDX-License-Identifier: Apache-2.0

// Package lxdhost reports the state of LXD hosts in LXDHosts: Reconciler that of the hosts that people add, as LXD
// shows it, and Mirror that of MAAS's VM hosts, for which it makes the objects.
package lxdhost

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/paused"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/workers"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// Reconciler reports what LXD says of the hosts that people add, and keeps their objects while VMs are on them. It
// deletes the VMs that were left on a host, also on a VM host.
type Reconciler struct {
	reconciler.Base
	// Mirror keeps the objects of MAAS's VM hosts.
	Mirror *Mirror
	// Interval is the time between two readings of a host.
	Interval time.Duration

	images images
	looks  looks
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=lxdhosts,verbs=list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=lxdhosts/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch

// SetupWithManager makes the manager run the reconciler.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	setup, limited := workers.Manage(ctx, mgr, "lxdhost", r, options)
	r.images.jobs = make(chan func(context.Context), imagesPlanned)
	if err := mgr.Add(&r.images); err != nil {
		return fmt.Errorf("adding the transfer of images: %w", err)
	}
	return setup.
		For(&infrav1.LXDHost{}, builder.WithPredicates(objects.IgnoreWords)).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.secretToHosts)).
		Complete(ctx, limited)
}

// secretToHosts wakes the hosts whose credentials are in a Secret.
func (r *Reconciler) secretToHosts(ctx context.Context, secret client.Object) []reconcile.Request {
	return objects.Wake(ctx, r.Client, &infrav1.LXDHostList{}, func(host client.Object) bool {
		spec := &host.(*infrav1.LXDHost).Spec
		isIt := func(ref *infrav1.LocalObjectReference) bool { return ref != nil && ref.Name == secret.GetName() }
		return isIt(spec.CredentialsRef) || isIt(spec.MAASCredentialsRef)
	}, client.InNamespace(secret.GetNamespace()))
}

// Reconcile reads one host, and writes its status.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	host := &infrav1.LXDHost{}
	if err := r.Client.Get(ctx, req.NamespacedName, host); err != nil {
		if client.IgnoreNotFound(err) == nil {
			r.Scopes.ReleaseLXDHost(req.NamespacedName)
			r.looks.Delete(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.Ignores(host) {
		return ctrl.Result{}, nil
	}
	before := host.DeepCopy()
	if isPaused, requeue, err := paused.EnsurePausedCondition(ctx, r.Client, nil, host); err != nil || isPaused ||
		requeue {
		r.looks.Delete(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !r.isDirect(ctx, host) {
		return ctrl.Result{RequeueAfter: sooner(r.leaveToMirror(host), r.lookForLeft(ctx, host))}, nil
	}
	if added, err := finalizers.EnsureFinalizer(ctx, r.Client, host, infrav1.LXDHostFinalizer); err != nil || added {
		return ctrl.Result{}, err
	}
	if changed, err := r.keepToLXD(ctx, host); err != nil || changed {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var done bool // The object is gone, or on its way.
	var err error
	if host.DeletionTimestamp.IsZero() {
		err = r.observe(ctx, host)
	} else {
		done, err = r.reconcileDelete(ctx, host)
	}
	if done || ctx.Err() != nil {
		return ctrl.Result{}, err
	}
	if stored := store(ctx, r.Client, r.Recorder, before, host); stored != nil {
		return ctrl.Result{}, kerrors.NewAggregate([]error{err, stored})
	}
	// The status is stored before: it says by now what the host is like, and looking may take long.
	left := r.lookForLeft(ctx, host)
	return ctrl.Result{RequeueAfter: sooner(wait.Jitter(r.Interval, jitter), left)}, err
}

// sooner returns the shorter of two waits; 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// isDirect reports whether VMs are made through the LXD's own API: on a former VM host, from when its MAAS has been
// seen to have no VM hosts any more.
func (r *Reconciler) isDirect(ctx context.Context, host *infrav1.LXDHost) bool {
	if host.Spec.VMHost == nil || controllerutil.ContainsFinalizer(host, infrav1.LXDHostFinalizer) {
		return true
	}
	if config, err := r.Scopes.LXDHostMAAS(ctx, host, 0); host.Spec.CredentialsRef == nil || err != nil ||
		!scope.IsOfMAAS(host, config) {
		return false // The mirror says so.
	}
	region, err := r.Scopes.LXDHostRegion(ctx, host)
	if err != nil {
		return false
	}
	_, has, err := region.Inventory.AnyVMHosts(ctx, r.Interval)
	return err == nil && !has
}

// leaveToMirror tells the mirror that a person wants another thing of a VM host than its conditions say. It returns
// when to look again whether the MAAS of the VM host has VM hosts still; 0 if that does not matter.
func (r *Reconciler) leaveToMirror(host *infrav1.LXDHost) time.Duration {
	c := conditions.Get(host, infrav1.SchedulableCondition)
	if c != nil && c.ObservedGeneration != host.Generation {
		r.Mirror.Wake()
	}
	if host.Spec.CredentialsRef == nil {
		return 0
	}
	return wait.Jitter(r.Interval, jitter)
}

// store patches the status if it changed, and says in an event why a host is no longer ready. The error is a conflict
// if the object was changed meanwhile, and conditions are to be: a patch has all of them, also those that others write.
func store(ctx context.Context, c client.Client, recorder events.EventRecorder, before, host *infrav1.LXDHost) error {
	host.Status.ObservedGeneration = host.Generation
	if equality.Semantic.DeepEqual(before.Status, host.Status) {
		return nil
	}
	change := client.MergeFrom(before)
	if !equality.Semantic.DeepEqual(before.Status.Conditions, host.Status.Conditions) {
		change = client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	}
	if err := c.Status().Patch(ctx, host, change); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}
		return fmt.Errorf("patching the status of LXDHost %s: %w", host.Name, err)
	}
	announce(recorder, before, host)
	return nil
}
