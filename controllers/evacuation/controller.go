// SPDX-License-Identifier: Apache-2.0

// Package evacuation empties the LXDHosts that people want empty, or that go: it has the Machines of the VMs on them
// replaced, a few at a time, so that each cluster keeps working. Cluster API does the rest, and the placement, which
// puts nothing on such a host.
package evacuation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/disruption"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/workers"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
)

// Interval is the time between two rounds while a host is being emptied: control planes, and the room on other hosts,
// wake nobody.
const Interval = 15 * time.Second

// Reconciler empties hosts. It looks at all of them in each round, one round after the other: so it never takes two
// Machines of one control plane, and no room twice, whichever hosts they are on.
type Reconciler struct {
	reconciler.Base
	// Enabled is whether the manager may replace Machines.
	Enabled bool
	// Interval is the time between two rounds.
	Interval time.Duration
	// Locks are shared with all that take Machines down; nil: nothing else does.
	Locks *disruption.Locks
	own   disruption.Locks
}

// These rights are in a role of their own, which the chart grants with its value evacuation.enabled.
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machinesets;machinedeployments,verbs=get
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=delete
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=kubeadmcontrolplanes;kthreescontrolplanes;rke2controlplanes,verbs=patch

// all is the one request: a round is about all hosts.
var all = []reconcile.Request{{}}

// SetupWithManager makes the manager run the reconciler.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	options.MaxConcurrentReconciles = 1
	setup, limited := workers.Manage(ctx, mgr, "evacuation", r, options)
	return setup.
		Watches(&infrav1.LXDHost{}, handler.EnqueueRequestsFromMapFunc(func(
			_ context.Context, object client.Object) []reconcile.Request {
			return when(isConcerned(object.(*infrav1.LXDHost)))
		})).
		Watches(&infrav1.MaasMachine{}, handler.EnqueueRequestsFromMapFunc(r.whileEvacuating)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.whileEvacuating)).
		Complete(ctx, limited)
}

func when(concerned bool) []reconcile.Request {
	if concerned {
		return all
	}
	return nil
}

// isToBeEmpty reports whether a person wants a host empty, or it goes: it is being deleted, or its machine is, which
// MAAS shows by a tag.
func isToBeEmpty(host *infrav1.LXDHost) bool {
	return host.Spec.Evacuate || !host.DeletionTimestamp.IsZero() ||
		host.Spec.VMHost != nil && slices.Contains(host.Spec.Tags, lxd.RetiringTag)
}

// isConcerned reports whether a host is to be emptied, or says so still.
func isConcerned(host *infrav1.LXDHost) bool {
	return isToBeEmpty(host) || host.Status.Evacuation != nil || conditions.Has(host, infrav1.EvacuatedCondition)
}

// whileEvacuating wakes the reconciler while a host is being emptied.
func (r *Reconciler) whileEvacuating(ctx context.Context, _ client.Object) []reconcile.Request {
	list := &infrav1.LXDHostList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return all
	}
	return when(slices.ContainsFunc(list.Items, func(h infrav1.LXDHost) bool { return isToBeEmpty(&h) }))
}

// Reconcile does one round.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	hosts := &infrav1.LXDHostList{}
	if err := r.Client.List(ctx, hosts); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing LXDHosts: %w", err)
	}
	var evacuating []*evacuation
	var errs []error
	for i := range hosts.Items {
		host := &hosts.Items[i]
		switch {
		case !isConcerned(host) || r.Ignores(host) ||
			annotations.HasPaused(host) || !r.Scopes.Places.Has(host):
		case isToBeEmpty(host):
			evacuating = append(evacuating, &evacuation{host: host})
		default:
			errs = append(errs, r.store(ctx, host, func() {
				host.Status.Evacuation = nil
				conditions.Delete(host, infrav1.EvacuatedCondition)
			}))
		}
	}
	if len(evacuating) == 0 {
		return ctrl.Result{}, kerrors.NewAggregate(errs)
	}
	slices.SortFunc(evacuating, func(a, b *evacuation) int { return strings.Compare(a.key(), b.key()) })
	errs = append(errs, r.evacuate(ctx, evacuating))
	return ctrl.Result{RequeueAfter: r.Interval}, kerrors.NewAggregate(errs)
}

// evacuation is a host that is to be emptied, in one round.
type evacuation struct {
	host *infrav1.LXDHost
	vms  []*vm
}

func (e *evacuation) key() string { return client.ObjectKeyFromObject(e.host).String() }

// evacuate looks at all hosts, then does what can be done, and stores what is left.
func (r *Reconciler) evacuate(ctx context.Context, evacuating []*evacuation) error {
	now, err := r.newRound(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range evacuating {
		e.vms = now.on(e.host)
		for _, v := range e.vms {
			v.out = r.judge(ctx, now, v)
		}
	}
	for _, e := range evacuating {
		var left []infrav1.LXDEvacuationVM
		for _, v := range e.vms {
			if v.out.action != none {
				v.out = r.replace(ctx, now, e.host, v)
			}
			left = append(left, infrav1.LXDEvacuationVM{Machine: v.key(), State: v.out.state(),
				Message: v.out.Problem().Message})
		}
		was := conditions.IsTrue(e.host, infrav1.EvacuatedCondition)
		err := r.store(ctx, e.host, func() { conclude(e.host, left, r.Enabled) })
		if errs = append(errs, err); err == nil && !was && conditions.IsTrue(e.host, infrav1.EvacuatedCondition) {
			r.Tell(e.host, infrav1.EvacuatedReason, "Evacuate", "no VM of a MaasMachine is left on the host")
		}
	}
	return kerrors.NewAggregate(errs)
}

// judge looks at a VM, and decides about it. It changes nothing. That it can't be looked at is an outcome, and no error
// of the round: that would put off the next one, for all hosts.
func (r *Reconciler) judge(ctx context.Context, now *round, v *vm) outcome {
	if !r.Enabled {
		return held("the manager may not replace its Machine: set the chart's value %s to true", enabledValue)
	}
	if err := r.look(ctx, v); err != nil {
		ctrl.LoggerFrom(ctx).Info("A VM could not be looked at", "vm", v.key(), "error", err.Error())
		return waiting("it could not be looked at: %s", report.Brief(err.Error()))
	}
	out := decide(v, r.Clock.Now())
	if out.action == none && out.state() == infrav1.LXDVMLeaving && v.awaitsSuccessor() {
		now.successors = append(now.successors, successor{maasMachine: v.maasMachine})
	}
	return out
}

// replace does what was decided about a VM, if its successor has room. As for judge, an error is an outcome.
func (r *Reconciler) replace(ctx context.Context, now *round, host *infrav1.LXDHost, v *vm) outcome {
	if out := r.roomFor(ctx, now, v); out.Waits() {
		return out
	}
	zones := v.zones()
	out, err := r.act(ctx, host, v)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("A Machine could not be replaced", "vm", v.key(), "error", err.Error())
		return waiting("it could not be replaced: %s", report.Brief(err.Error()))
	}
	if out.action != none {
		now.successors = append(now.successors, successor{maasMachine: v.maasMachine, zone: zones[0]})
	}
	return out
}

// act does what was decided for a VM, if it is decided once more.
func (r *Reconciler) act(ctx context.Context, host *infrav1.LXDHost, v *vm) (outcome, error) {
	late := r.LookBegins()
	ctx, cancel := context.WithTimeout(ctx, reconciler.LookLasts)
	defer cancel()
	if err := r.look(ctx, v); err != nil {
		return proceed, err
	}
	if again := decide(v, r.Clock.Now()); again.action != v.out.action {
		return again, nil
	}
	leave, why, err := cmp.Or(r.Locks, &r.own).Ask(ctx, &r.Base,
		&clusters.Member{Cluster: v.cluster, Machine: v.machine, MaasMachine: v.maasMachine})
	if err != nil {
		return proceed, err
	}
	if why != "" {
		return waiting("%s", why), nil
	}
	defer leave.End()
	if late() { // The leave, which is younger, is not too late before.
		return waiting("the API server takes too long"), nil
	}
	if v.out.action == rollOut {
		err = r.rollOut(ctx, v)
	} else {
		err = r.Client.Delete(ctx, v.machine, client.Preconditions{UID: &v.machine.UID,
			ResourceVersion: &v.machine.ResourceVersion})
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return waiting("it has changed a moment ago"), nil
	case apierrors.IsForbidden(err):
		return held("the manager may not replace it: set the chart's value %s; the API server says: %v", enabledValue,
			err), nil
	case err != nil:
		return proceed, fmt.Errorf("replacing Machine %s: %w", client.ObjectKeyFromObject(v.machine), err)
	case v.owner.controlPlane != nil && v.owner.controlPlane.noRollout:
		return decide(v, r.Clock.Now()), nil
	}
	r.Recorder.Eventf(v.maasMachine, host, corev1.EventTypeNormal, "Evacuating", "Evacuate", "it leaves LXDHost %s: %s",
		host.Name, v.out.Problem().Message)
	ctrl.LoggerFrom(ctx).Info("A VM leaves its host", "lxdHost", client.ObjectKeyFromObject(host), "maasMachine", v.key(),
		"message", v.out.Problem().Message)
	return v.out, nil
}

// rollOut makes a control plane replace the Machines that were made before now. A kind that does not know the field
// loses it.
func (r *Reconciler) rollOut(ctx context.Context, v *vm) error {
	cp := v.owner.controlPlane
	before := cp.object.DeepCopy()
	if err := unstructured.SetNestedField(cp.object.Object, r.Clock.Now().UTC().Format(time.RFC3339),
		rolloutAfterPath...); err != nil {
		return fmt.Errorf("setting spec.rollout.after: %w", err)
	}
	err := r.Client.Patch(ctx, cp.object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return err
	}
	_, known, _ := unstructured.NestedString(cp.object.Object, rolloutAfterPath...)
	cp.noRollout = !known
	return nil
}

// store patches the status as change leaves it. Others write other conditions of the same objects.
func (r *Reconciler) store(ctx context.Context, host *infrav1.LXDHost, change func()) error {
	return client.IgnoreNotFound(objects.PatchConditions(ctx, r.Client, host, change, infrav1.EvacuatedCondition))
}
