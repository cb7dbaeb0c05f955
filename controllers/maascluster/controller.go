// SPDX-License-Identifier: Apache-2.0

// Package maascluster reconciles MaasClusters: the owner id, failure domains, the endpoint of the Kubernetes API, and
// the nodes of host clusters.
package maascluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	capicontroller "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/paused"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/credentialssecret"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/capacity"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/workers"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// Conditions make up the Ready condition of a MaasCluster, in order.
var Conditions = []string{
	infrav1.FailureDomainsReadyCondition, infrav1.DNSReadyCondition, infrav1.LXDReadyCondition,
}

// Reconciler reconciles MaasClusters: zones, the API endpoint and its DNS record, and the nodes of host clusters.
type Reconciler struct {
	reconciler.Base
	// ClusterCache connects to host clusters.
	ClusterCache clustercache.ClusterCache
	// Initializer is the LXD initializer that runs there.
	Initializer Initializer

	controller capicontroller.Controller
	// told are the MaasClusters whose event Provisioned was sent, and those that were let go; toldBlocked those whose
	// event MoveBlocked was sent since they were paused.
	told, toldBlocked report.Once
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=maasclusters,verbs=list;watch;patch;adopt
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=maasclusters/status,verbs=patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager makes the manager run the reconciler.
func (r *Reconciler) SetupWithManager(
	ctx context.Context, mgr ctrl.Manager, options controller.Options,
) (err error) {
	clusterToInfra := func(ctx context.Context, cluster client.Object) []reconcile.Request {
		return clusters.Requests(ctx, r.Client, cluster.(*clusterv1.Cluster))
	}
	setup, limited := workers.Manage(ctx, mgr, "maascluster", r, options)
	r.controller, err = setup.
		For(&infrav1.MaasCluster{}, builder.WithPredicates(objects.IgnoreBookkeeping)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(clusterToInfra)).
		Watches(&infrav1.MaasMachine{}, handler.EnqueueRequestsFromMapFunc(r.machineToCluster)).
		Watches(&infrav1.MaasMachine{}, handler.EnqueueRequestsFromMapFunc(r.toCluster), ignoreUnlessRoom).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.machineToCluster)).
		Watches(&infrav1.LXDHost{}, handler.EnqueueRequestsFromMapFunc(r.toCluster), objects.IgnoreFigures).
		Watches(&infrav1.LXDHost{}, handler.EnqueueRequestsFromMapFunc(r.allClusters), objects.IgnoreUnlessCordoned).
		Watches(&infrav1.MaasRemediation{}, handler.EnqueueRequestsFromMapFunc(r.toCluster), objects.IgnoreUnlessSwitched).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.secretToClusters)).
		Watches(&infrav1.MaasMachineTemplate{}, handler.EnqueueRequestsFromMapFunc(r.templateToCluster)).
		WatchesRawSource(r.ClusterCache.GetClusterSource("maascluster", clusterToInfra)).
		Build(ctx, limited)
	return err
}

// allClusters wakes all: a host that is cordoned takes no control planes, and the failure domains must say so before
// the successors of those that leave it are made.
func (r *Reconciler) allClusters(ctx context.Context, _ client.Object) []reconcile.Request {
	return objects.Wake(ctx, r.Client, &infrav1.MaasClusterList{}, nil)
}

// machineToCluster wakes the cluster of a control plane, whose address is in the endpoint, or of a machine that is
// being deleted, because a deleted cluster waits for its last machine.
func (r *Reconciler) machineToCluster(ctx context.Context, object client.Object) []reconcile.Request {
	if !clusters.IsControlPlane(object) && object.GetDeletionTimestamp().IsZero() {
		return nil
	}
	return r.toCluster(ctx, object)
}

// toCluster wakes the cluster whose name is in an object's label.
func (r *Reconciler) toCluster(ctx context.Context, object client.Object) []reconcile.Request {
	name := object.GetLabels()[clusterv1.ClusterNameLabel]
	if name == "" {
		return nil // An LXDHost that another user made.
	}
	cluster, err := util.GetClusterByName(ctx, r.Client, object.GetNamespace(), name)
	if apierrors.IsNotFound(err) {
		// It is gone before its machines, as when its namespace is deleted.
		return objects.Wake(ctx, r.Client, &infrav1.MaasClusterList{}, func(c client.Object) bool {
			return clusters.NameOf(c.(*infrav1.MaasCluster)) == name
		}, client.InNamespace(object.GetNamespace()))
	}
	if err != nil {
		return nil
	}
	return clusters.Requests(ctx, r.Client, cluster)
}

// Reconcile brings one MaasCluster closer to its desired state.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	maasCluster := &infrav1.MaasCluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, maasCluster); err != nil {
		if apierrors.IsNotFound(err) {
			r.told.Gone(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.Ignores(maasCluster) || r.told.Ended(maasCluster) {
		return ctrl.Result{}, nil
	}
	cluster, err := clusters.ClusterOf(ctx, r.Client, maasCluster)
	if err != nil && !apierrors.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("reading the owner Cluster: %w", err)
	}
	isLive := maasCluster.DeletionTimestamp.IsZero()
	if cluster == nil {
		if isLive {
			return ctrl.Result{}, r.awaitOwner(ctx, maasCluster)
		}
		cluster = &clusterv1.Cluster{}
		cluster.Name, cluster.Namespace = clusters.NameOf(maasCluster), maasCluster.Namespace
	}
	if !annotations.IsPaused(cluster, maasCluster) {
		r.toldBlocked.Again(maasCluster)
	}
	if scope.Foreign(maasCluster) || (isLive && annotations.IsExternallyManaged(maasCluster)) {
		return r.reconcileForeign(ctx, cluster, maasCluster)
	}
	isPaused, changed, err := paused.EnsurePausedCondition(ctx, r.Client, cluster, maasCluster)
	switch {
	case err != nil:
		return ctrl.Result{}, err
	case isPaused:
		return r.allowMove(ctx, cluster, maasCluster)
	case changed:
		return ctrl.Result{}, nil
	}
	added, err := finalizers.EnsureFinalizer(ctx, r.Client, maasCluster, infrav1.ClusterFinalizer)
	if err != nil || added {
		return ctrl.Result{}, err
	}

	patcher, unreadable, err := reconciler.NewPatcher(r.Records.Client, maasCluster, r.Records.OpenCluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer func() {
		report.Summarize(maasCluster, !isLive, Conditions...)
		maasCluster.Status.Ready = conditions.IsTrue(maasCluster, infrav1.ReadyCondition)
		owned := slices.Concat(Conditions, []string{infrav1.ReadyCondition, infrav1.MachinesHaveRoomCondition})
		reterr = kerrors.NewAggregate([]error{reterr, patcher.Store(ctx, maasCluster, owned)})
	}()

	switch {
	case unreadable != nil:
		report.SetFalse(maasCluster, infrav1.FailureDomainsReadyCondition, infrav1.NotReadyReason, "%s", unreadable)
		return ctrl.Result{}, unreadable
	case !isLive:
		return r.reconcileDelete(ctx, cluster, maasCluster, patcher.Record)
	}
	return r.reconcileNormal(ctx, cluster, maasCluster, patcher.Record)
}

// awaitOwner says what a MaasCluster without an owner waits for. One that has another owner gets its Cluster soon, one
// that is paused is being moved, and of one that something else manages that is for what manages it to say.
func (r *Reconciler) awaitOwner(ctx context.Context, maasCluster *infrav1.MaasCluster) error {
	if maasCluster.Spec.ClusterName != "" {
		return r.join(ctx, maasCluster)
	}
	if len(maasCluster.OwnerReferences) > 0 || annotations.HasPaused(maasCluster) ||
		annotations.IsExternallyManaged(maasCluster) {
		return nil
	}
	return report.AwaitOwner(ctx, r.Client, maasCluster, "Cluster")
}

// reconcileForeign records the MAAS of a cluster that something else manages, and follows it: its machines keep to that
// as those of any other, and block its move while they come or go. Of its status it says only that it was seen: whether
// it is ready is for what manages it to say.
func (r *Reconciler) reconcileForeign(
	ctx context.Context, cluster *clusterv1.Cluster, maasCluster *infrav1.MaasCluster,
) (ctrl.Result, error) {
	if annotations.IsPaused(cluster, maasCluster) {
		return r.allowMove(ctx, cluster, maasCluster)
	}
	if before := maasCluster.DeepCopy(); before.Status.ObservedGeneration != before.Generation {
		maasCluster.Status.ObservedGeneration = maasCluster.Generation
		if err := r.Client.Status().Patch(ctx, maasCluster, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	if err := r.mark(ctx, maasCluster, map[string]string{}); err != nil {
		return ctrl.Result{}, err
	}
	s, err := r.scope(ctx, cluster, maasCluster)
	if err == nil {
		_, err = s.Inventory.Zones(ctx, capacity.ZonesMaxAge) // It responds.
	}
	if err == nil {
		err = r.recordMAAS(ctx, s)
	}
	if err != nil {
		return report.Explain(err).Result(err) // The machines report it.
	}
	return ctrl.Result{}, nil
}

// reconcileNormal runs the steps of a live cluster; each sets its condition.
func (r *Reconciler) reconcileNormal(
	ctx context.Context, cluster *clusterv1.Cluster, maasCluster *infrav1.MaasCluster, rec *record.Cluster,
) (ctrl.Result, error) {
	machines, err := clusters.MachinesOf(ctx, r.Client, cluster, maasCluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	markRoom(maasCluster, machines)
	p, err := r.ensureMarks(ctx, maasCluster, machines)
	if err != nil {
		return ctrl.Result{}, err
	}
	original, err := clusters.CopiedFrom(ctx, r.Client, maasCluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	if original != nil {
		p = clusters.CopyProblem(original)
	}
	if p != nil {
		p.Show(maasCluster, infrav1.FailureDomainsReadyCondition)
		return ctrl.Result{RequeueAfter: p.RetryAfter}, nil
	}
	s, err := r.scope(ctx, cluster, maasCluster)
	if err != nil {
		return report.Explain(err).Show(maasCluster, infrav1.FailureDomainsReadyCondition).Result(err)
	}
	steps := []struct {
		condition string
		do        func(context.Context, *scope.Cluster) error
	}{
		{infrav1.FailureDomainsReadyCondition, func(ctx context.Context, s *scope.Cluster) error {
			return credentialssecret.Hold(ctx, r.Client, r.APIReader, s.MaasCluster)
		}},
		{infrav1.FailureDomainsReadyCondition, r.reconcileFailureDomains},
		{infrav1.FailureDomainsReadyCondition, r.recordMAAS},
		{infrav1.DNSReadyCondition, func(ctx context.Context, s *scope.Cluster) error {
			return r.reconcileEndpoint(ctx, s, rec)
		}},
		{infrav1.LXDReadyCondition, r.reconcileHostCluster},
	}
	after := failureDomainsRetry
	for _, step := range steps {
		err := step.do(ctx, s)
		if room, is := errors.AsType[*roomError](err); is {
			ctrl.LoggerFrom(ctx).Info("The failure domains stay as they were", "error", err.Error())
			after = min(after, room.retryAfter())
			continue
		}
		if apierrors.IsConflict(err) {
			return ctrl.Result{}, err
		}
		if err != nil {
			return report.Explain(s.From(err)).Show(maasCluster, step.condition).Result(err)
		}
	}
	after = wait.Jitter(after, 0.2)
	if hold := clusters.EndpointRetry(machines, r.Clock.Now()); hold > 0 {
		after = min(after, hold)
	}
	if late := rec.Unsettled(); late > 0 {
		after = min(after, late, report.CapacityRetry)
	}
	return ctrl.Result{RequeueAfter: after}, nil
}

func (r *Reconciler) provisioned(maasCluster *infrav1.MaasCluster) {
	if !ptr.Deref(maasCluster.Status.Initialization.Provisioned, false) {
		maasCluster.Status.Initialization.Provisioned = ptr.To(true)
		if r.told.First(maasCluster) {
			r.Tell(maasCluster, "Provisioned", "Provision", "machines can be created now")
		}
	}
}

// whyKept returns what the first of the machines that were kept waits for, as the end of a message.
func whyKept(kept []record.KeptMachine) string {
	return report.After(list.First(kept, func(k record.KeptMachine) bool { return k.Message != "" }).Message)
}

// reconcileDelete removes the DNS record once no machine is left, then the finalizer.
func (r *Reconciler) reconcileDelete(
	ctx context.Context, cluster *clusterv1.Cluster, maasCluster *infrav1.MaasCluster, rec *record.Cluster,
) (ctrl.Result, error) {
	machines, err := r.machinesLeft(ctx, cluster, maasCluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	markRoom(maasCluster, machines)
	s, err := r.stillIn(ctx, cluster, maasCluster)
	if err != nil {
		return report.Explain(err).Show(maasCluster, infrav1.DNSReadyCondition).Result(err)
	}
	if len(machines) > 0 {
		report.SetFalse(maasCluster, infrav1.DNSReadyCondition, infrav1.DeletingReason, "%s",
			whyMachines(cluster, maasCluster, machines))
		return ctrl.Result{RequeueAfter: report.SafetyRetry}, nil
	}
	if kept := len(rec.Kept); kept > 0 {
		report.SetFalse(maasCluster, infrav1.DNSReadyCondition, infrav1.DeletingReason,
			"waiting for %d machine(s) that were kept to be given back%s", kept, whyKept(rec.Kept))
		return ctrl.Result{RequeueAfter: report.CapacityRetry}, nil
	}
	if s != nil {
		if err := r.deleteEndpoint(ctx, s, rec); err != nil {
			return report.Explain(s.From(err)).Show(maasCluster, infrav1.DNSReadyCondition).Result(err)
		}
	} else {
		rec.Pending = nil // Nothing was asked for, or it was for the original.
	}
	if err := rec.Finish(ctx, infrav1.ClusterFinalizer); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.Scopes.Release(maasCluster)
	r.told.End(maasCluster)
	r.Tell(maasCluster, "Deleted", "Delete", "nothing of this cluster is left in MAAS")
	return ctrl.Result{}, nil
}

// machinesLeft returns the machines that a MaasCluster that is being deleted waits for: without it nothing could give
// them back. The cache may not have one yet, and a label may have been removed: if it shows none, the API server is
// asked, and what is recorded counts as well.
func (r *Reconciler) machinesLeft(
	ctx context.Context, cluster *clusterv1.Cluster, maasCluster *infrav1.MaasCluster,
) ([]infrav1.MaasMachine, error) {
	machines, err := clusters.MachinesOf(ctx, r.Client, cluster, maasCluster)
	if err != nil || len(machines) > 0 {
		return machines, err
	}
	return r.machinesNow(ctx, cluster, maasCluster)
}

// machinesNow returns the machines of a cluster that the API server has, also those whose label was removed.
func (r *Reconciler) machinesNow(
	ctx context.Context, cluster *clusterv1.Cluster, maasCluster *infrav1.MaasCluster,
) ([]infrav1.MaasMachine, error) {
	all, id := &infrav1.MaasMachineList{}, maasCluster.Annotations[infrav1.OwnerIDAnnotation]
	if err := r.APIReader.List(ctx, all, client.InNamespace(maasCluster.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the MaasMachines that are there now: %w", err)
	}
	asked := list.Where(all.Items, func(m infrav1.MaasMachine) bool {
		return id != "" && m.Annotations[infrav1.OwnerIDAnnotation] == id
	})
	others := list.Where(all.Items, func(m infrav1.MaasMachine) bool {
		return clusters.KeyOf(&m).Name == cluster.Name && (id == "" || m.Annotations[infrav1.OwnerIDAnnotation] != id)
	})
	others, err := clusters.Only(ctx, r.Client, cluster, maasCluster, others)
	return append(asked, others...), err
}

// maxNamed is how many machines a message names.
const maxNamed = 5

// whyMachines says for which machines a MaasCluster that is being deleted waits, and what deletes them.
func whyMachines(
	cluster *clusterv1.Cluster, maasCluster *infrav1.MaasCluster, machines []infrav1.MaasMachine,
) string {
	names := list.Each(machines, func(m infrav1.MaasMachine) string { return m.Name })
	slices.Sort(names)
	remedy := ""
	if cluster.UID != "" && cluster.DeletionTimestamp.IsZero() {
		remedy = fmt.Sprintf("; Cluster %s is not being deleted, and keeps them: delete it", cluster.Name)
		if maasCluster.Spec.ClusterName != "" {
			remedy += ", or what makes these machines"
		}
	}
	return fmt.Sprintf("waiting for %d machine(s) to be deleted: %s%s", len(names), text.List(names, maxNamed), remedy)
}

// stillIn returns the MAAS of a cluster that is being deleted; nil if nothing of it is in one. If the credentials were
// changed, it is followed as before: the machines that are left, and those that are kept, are given back there.
func (r *Reconciler) stillIn(
	ctx context.Context, cluster *clusterv1.Cluster, maasCluster *infrav1.MaasCluster,
) (*scope.Cluster, error) {
	original, err := clusters.CopiedFrom(ctx, r.Client, maasCluster)
	if err != nil || original != nil || maasCluster.Annotations[infrav1.MAASAnnotation] == "" {
		return nil, err
	}
	if id := maasCluster.Annotations[infrav1.OwnerIDAnnotation]; !maas.ValidOwnerID(id) {
		return nil, report.NotReady(*clusters.OwnerIDLost(maasCluster, ""))
	}
	s, err := r.scope(ctx, cluster, maasCluster)
	if err != nil {
		return nil, err
	}
	return s, s.From(r.recordMAAS(ctx, s))
}
