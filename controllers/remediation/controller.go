// SPDX-License-Identifier: Apache-2.0

// Package remediation remedies unhealthy Machines for MachineHealthChecks: it switches their machines off and on and,
// if that does not help, has Cluster API replace the Machines. The lists in steps.go are what it does, and when.
package remediation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
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
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/disruption"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/workers"
)

// Interval is the time between two looks at a machine that is being remedied: BMCs and other control planes wake
// no reconciler.
const Interval = 10 * time.Second

// Reconciler remedies Machines.
type Reconciler struct {
	reconciler.Base
	// Interval is the time between two looks.
	Interval time.Duration

	// Locks are shared with all that take Machines down; nil: nothing else does.
	Locks *disruption.Locks
	own   disruption.Locks
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=maasremediations,verbs=list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=maasremediations/status,verbs=patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines/status,verbs=patch

// SetupWithManager makes the manager run the reconciler.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	clusterToRemediations, err := util.ClusterToTypedObjectsMapper(r.Client, &infrav1.MaasRemediationList{},
		mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("mapping Clusters to MaasRemediations: %w", err)
	}
	setup, limited := workers.Manage(ctx, mgr, "maasremediation", r, options)
	return setup.
		For(&infrav1.MaasRemediation{}, builder.WithPredicates(objects.IgnoreWords)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.ofMachine)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(clusterToRemediations),
			predicates.ClusterPausedTransitions(mgr.GetScheme(), ctrl.LoggerFrom(ctx))).
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
	member, err := clusters.OwnerMember(ctx, r.Client, remediation)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the Machine, its Cluster and its MaasMachine: %w", err)
	}
	if member != nil {
		isPaused, changed, err := paused.EnsurePausedCondition(ctx, r.Client, member.Cluster, remediation)
		if err == nil && !isPaused && !changed {
			changed, err = finalizers.EnsureFinalizer(ctx, r.Client, remediation, infrav1.RemediationFinalizer)
		}
		if err != nil || isPaused || changed {
			return ctrl.Result{}, err
		}
	}
	patcher, unreadable, err := reconciler.NewPatcher(r.Records.Client, remediation, r.Records.OpenRemediation)
	if err == nil && unreadable != nil && mayEndUnread(remediation, member) {
		return ctrl.Result{}, r.endUnread(ctx, remediation, unreadable)
	}
	if err != nil || unreadable != nil {
		return ctrl.Result{}, errors.Join(err, unreadable)
	}
	defer func() {
		remediation.Status.RemediationProgress = ptr.Deref(patcher.Record.Remediation, infrav1.RemediationProgress{})
		reterr = kerrors.NewAggregate([]error{reterr, patcher.Store(ctx, remediation, Conditions)})
	}()
	if member != nil {
		metav1.SetMetaDataLabel(&remediation.ObjectMeta, clusterv1.ClusterNameLabel, member.Cluster.Name)
	}
	s := &subject{remediation: remediation, record: patcher.Record, Member: member, clock: r.Clock, interval: r.Interval}
	defer func() { s.leave.End() }()
	out, err := reconciler.Through(ctx, s, r.steps(s))
	if err == nil {
		err = r.conclude(ctx, s, out)
	}
	if err != nil {
		return r.stopped(ctx, s, err)
	}
	return ctrl.Result{RequeueAfter: out.Problem().RetryAfter}, nil
}

// mayEndUnread reports whether a remediation may go whose record can't be read: it has no Machine, or its machine is
// on, by its status.
func mayEndUnread(remediation *infrav1.MaasRemediation, member *clusters.Member) bool {
	step := remediation.Status.Step
	isOn := step != infrav1.RemediationPowerOff && step != infrav1.RemediationPowerOn
	return !remediation.DeletionTimestamp.IsZero() && (member == nil || isOn)
}

// endUnread removes the finalizer.
func (r *Reconciler) endUnread(ctx context.Context, remediation *infrav1.MaasRemediation, why error) error {
	before := remediation.DeepCopy()
	controllerutil.RemoveFinalizer(remediation, infrav1.RemediationFinalizer)
	ctrl.LoggerFrom(ctx).Info("A MaasRemediation goes whose record can't be read", "error", why.Error())
	return client.IgnoreNotFound(r.Client.Patch(ctx, remediation, client.MergeFrom(before)))
}

// conclude begins the step of the remediation that follows from an outcome, if any, and says why.
func (r *Reconciler) conclude(ctx context.Context, s *subject, out outcome) error {
	if out.begins != "" {
		if err := s.write(ctx, after(s.progress(), out.begins, r.Clock.Now())); err != nil {
			return err
		}
	}
	if out.withdraws {
		if err := s.write(ctx, withdrawn(s.progress())); err != nil {
			return err
		}
	}
	if !out.Waits() || out.IsBrief() {
		return nil
	}
	p := out.Problem()
	if out.begins != "" && conditions.GetReason(s.remediation, out.condition) != p.Reason {
		kind := corev1.EventTypeNormal
		if p.Reason == infrav1.PowerCycleFailedReason {
			kind = corev1.EventTypeWarning
		}
		r.Recorder.Eventf(s.remediation, s.Machine, kind, p.Reason, "Remediate", "%s", p.Message)
	}
	if p.Reason == infrav1.PowerCycledReason {
		report.SetTrue(s.remediation, out.condition, p.Reason)
		return nil
	}
	p.Show(s.remediation, out.condition)
	return nil
}

// after returns the progress when a step begins.
func after(p infrav1.RemediationProgress, step infrav1.RemediationStep, now time.Time) infrav1.RemediationProgress {
	next := infrav1.RemediationProgress{Step: step, Since: ptr.To(metav1.NewTime(now).Rfc3339Copy()),
		PowerCycles: p.PowerCycles}
	begun := p.Step == infrav1.RemediationLeaveEndpoint
	if step == infrav1.RemediationLeaveEndpoint || (step == infrav1.RemediationPowerOff && !begun) {
		next.PowerCycles++
	}
	return next
}

// withdrawn returns the progress when a power cycle is taken back that MAAS was not asked for: it does not count.
func withdrawn(p infrav1.RemediationProgress) infrav1.RemediationProgress {
	return infrav1.RemediationProgress{PowerCycles: max(p.PowerCycles-1, 0)}
}

// stopped reports in the conditions and in the log why a step failed.
func (r *Reconciler) stopped(ctx context.Context, s *subject, err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) || errors.Is(err, context.Canceled) {
		return ctrl.Result{}, err
	}
	p := report.Explain(err)
	ctrl.LoggerFrom(ctx).Info("Can't go on", "reason", p.Reason, "error", strings.ReplaceAll(err.Error(), "\n", "; "))
	report.SetUnknown(s.remediation, s.condition(), p.Reason, p.Message)
	return p.Result(err)
}
