// SPDX-License-Identifier: Apache-2.0

// Package remediation remedies unhealthy Machines for MachineHealthChecks: it switches their machines off and on and,
// if that does not help, has Cluster API replace the Machines.
package remediation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	capicontroller "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/paused"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/workers"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// Interval is the time between two looks at a machine that is being remedied: BMCs and other control planes wake
// nobody.
const Interval = 10 * time.Second

// Reconciler remedies Machines.
type Reconciler struct {
	reconciler.Base
	// Interval is the time between two looks.
	Interval time.Duration

	// quorum lets one power cycle of a control plane begin at a time: each looks at those that have begun.
	quorum sync.Mutex
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=maasremediations,verbs=list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=maasremediations/status,verbs=patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines/status,verbs=patch

// SetupWithManager makes the manager run the reconciler.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "maasremediation")
	clusterToRemediations, err := util.ClusterToTypedObjectsMapper(r.Client, &infrav1.MaasRemediationList{},
		mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("mapping Clusters to MaasRemediations: %w", err)
	}
	limited := workers.Limit(r, &options)
	return capicontroller.NewControllerManagedBy(mgr, log).
		For(&infrav1.MaasRemediation{}, builder.WithPredicates(objects.IgnoreWords)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.ofMachine)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(clusterToRemediations),
			predicates.ClusterPausedTransitions(mgr.GetScheme(), log)).
		WithOptions(options).
		Complete(ctx, limited)
}

// ofMachine wakes the remediations of a Machine.
func (r *Reconciler) ofMachine(ctx context.Context, machine client.Object) []reconcile.Request {
	return objects.Wake(ctx, r.Client, &infrav1.MaasRemediationList{}, func(remediation client.Object) bool {
		return clusters.IsOwnedBy(remediation, clusters.MachineKind, machine)
	}, client.InNamespace(machine.GetNamespace()))
}

// Conditions of a MaasRemediation, in the order in which they become true.
var Conditions = []string{infrav1.PowerCycledCondition, infrav1.HandedOverCondition}

// Reconcile brings one remediation closer to its end.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	remediation := &infrav1.MaasRemediation{}
	if err := r.Client.Get(ctx, req.NamespacedName, remediation); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.Ignores(remediation) {
		return ctrl.Result{}, nil
	}
	s, err := r.subject(ctx, remediation)
	if err != nil {
		return ctrl.Result{}, err
	}
	if s != nil {
		isPaused, changed, err := paused.EnsurePausedCondition(ctx, r.Client, s.cluster, remediation)
		if err == nil && !isPaused && !changed {
			changed, err = finalizers.EnsureFinalizer(ctx, r.Client, remediation, infrav1.RemediationFinalizer)
		}
		if err != nil || isPaused || changed {
			return ctrl.Result{}, err
		}
	}
	patcher, unreadable, err := objects.NewPatcher(r.Records.Client, remediation, r.Records.OpenRemediation)
	if err != nil || unreadable != nil {
		return ctrl.Result{}, errors.Join(err, unreadable)
	}
	defer func() {
		remediation.Status.RemediationProgress = ptr.Deref(patcher.Record.Remediation, infrav1.RemediationProgress{})
		reterr = kerrors.NewAggregate([]error{reterr, patcher.Store(ctx, remediation, Conditions)})
	}()
	if s == nil && !remediation.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, letGo(ctx, patcher.Record)
	}
	if s == nil {
		report.SetFalse(remediation, infrav1.PowerCycledCondition, infrav1.RemediationHeldReason,
			"it has no Machine: a MachineHealthCheck makes one for each unhealthy Machine; delete this one")
		return ctrl.Result{}, nil
	}
	s.record = patcher.Record
	result, err := r.proceed(ctx, s)
	if err != nil {
		return r.stopped(ctx, s, err)
	}
	return result, nil
}

// proceed does what the step that the remediation is at needs. A remediation that is deleted ends, but does not leave a
// machine switched off that is not given back.
func (r *Reconciler) proceed(ctx context.Context, s *subject) (ctrl.Result, error) {
	objects.Label(s.remediation, clusterv1.ClusterNameLabel, s.machine.Spec.ClusterName)
	step := s.progress().Step
	switched := step == infrav1.RemediationPowerOff && s.progress().Requests > 0 || step == infrav1.RemediationPowerOn
	if !s.remediation.DeletionTimestamp.IsZero() && (!switched || s.isGivenBack() ||
		!s.machine.DeletionTimestamp.IsZero()) {
		return ctrl.Result{}, letGo(ctx, s.record)
	}
	if !s.machine.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // The machine is given back, in whatever state it is.
	}
	switch step {
	case infrav1.RemediationLeaveEndpoint:
		return r.leaveEndpoint(ctx, s)
	case infrav1.RemediationPowerOff, infrav1.RemediationPowerOn:
		return r.switchPower(ctx, s)
	case infrav1.RemediationRecover:
		return r.recover(ctx, s)
	case infrav1.RemediationReplace:
		return r.replace(ctx, s)
	}
	return r.start(ctx, s)
}

// letGo removes the finalizer.
func letGo(ctx context.Context, rec *record.Remediation) error {
	err := rec.Write(ctx, func(o client.Object) { controllerutil.RemoveFinalizer(o, infrav1.RemediationFinalizer) })
	return client.IgnoreNotFound(err)
}

// stopped reports in the conditions and in the log why a step failed.
func (r *Reconciler) stopped(ctx context.Context, s *subject, err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) || errors.Is(err, context.Canceled) {
		return ctrl.Result{}, err
	}
	p := report.Explain(err)
	condition := infrav1.PowerCycledCondition
	if s.progress().Step == infrav1.RemediationReplace {
		condition = infrav1.HandedOverCondition
	}
	ctrl.LoggerFrom(ctx).Info("Can't go on", "reason", p.Reason, "error", strings.ReplaceAll(err.Error(), "\n", "; "))
	report.SetUnknown(s.remediation, condition, p.Reason, p.Message)
	return p.Result(err)
}

// say sets the condition of a verdict, and reports whether its reason is new.
func (s *subject) say(v *verdict) (news bool) {
	if v.condition == "" {
		return false
	}
	old := conditions.GetReason(s.remediation, v.condition)
	if v.reason == infrav1.PowerCycledReason || v.reason == infrav1.HandedOverReason {
		report.SetTrue(s.remediation, v.condition, v.reason)
	} else {
		report.SetFalse(s.remediation, v.condition, v.reason, "%s", v.message)
	}
	return old != v.reason
}

// follow says what was decided, and begins the step that follows from it, if any.
func (r *Reconciler) follow(ctx context.Context, s *subject, v *verdict) (ctrl.Result, error) {
	if v.step != "" {
		next := after(s.progress(), v.step, r.Clock.Now())
		if err := s.write(ctx, next); err != nil {
			return ctrl.Result{}, err
		}
	}
	if s.say(v) && v.step != "" {
		kind := corev1.EventTypeNormal
		if v.reason == infrav1.PowerCycleFailedReason {
			kind = corev1.EventTypeWarning
		}
		r.Recorder.Eventf(s.remediation, s.machine, kind, v.reason, "Remediate", "%s", v.message)
	}
	if v.reason == infrav1.RemediationHeldReason {
		return ctrl.Result{RequeueAfter: report.MendRetry}, nil
	}
	return ctrl.Result{RequeueAfter: r.Interval}, nil
}

// write records the progress. The error is a conflict if the remediation was changed since it was read: a cache may
// lag, and nothing may be begun twice.
func (s *subject) write(ctx context.Context, progress infrav1.RemediationProgress) error {
	before := s.record.Remediation
	s.record.Remediation = &progress
	err := s.record.Write(ctx)
	if err != nil {
		s.record.Remediation = before
	}
	return err
}
