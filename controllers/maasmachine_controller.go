// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	capicontroller "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/paused"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

const (
	// SystemIDIndex finds MaasMachines by spec.systemID in the cache.
	SystemIDIndex = "spec.systemID"
	// reconcileTimeout leaves time for a compose, a claim and a deployment, each of which waits for its turn and for MAAS for some minutes at most.
	reconcileTimeout = 15 * time.Minute
)

// Conditions of a MaasMachine in the order in which a machine gets them; the first that is not true is why it is not Ready.
var (
	bareMetalConditions = []string{infrav1.MachineDeployedCondition, infrav1.DNSAttachedCondition}
	lxdConditions       = []string{
		infrav1.LXDHostSelectedCondition, infrav1.LXDResourcesAllocatedCondition, infrav1.LXDVMCreatedCondition,
		infrav1.LXDVMDeployedCondition, infrav1.MachineDeployedCondition, infrav1.DNSAttachedCondition,
	}
)

// MaasMachineReconciler reconciles MaasMachines: it acquires a machine in MAAS, deploys it, and gives it back.
type MaasMachineReconciler struct {
	Client client.Client
	// APIReader reads what is too rarely needed to be cached.
	APIReader    client.Reader
	Scopes       *scope.Factory
	ClusterCache clustercache.ClusterCache
	Recorder     events.EventRecorder
	// Changes are the system ids of machines that changed in MAAS.
	Changes <-chan event.TypedGenericEvent[string]
	// SettleTime is how long a machine may turn up in MAAS after the response to allocate or compose was lost.
	SettleTime time.Duration
	// CommissionTimeout is how long MAAS may commission and test a machine, DeployTimeout how long it may deploy one, before the
	// condition says that it is too long. 0: for ever.
	CommissionTimeout, DeployTimeout time.Duration
	// HostUnreachableTimeout is how long a host that can't be looked at holds up the deletion of a VM that MAAS does not have any more. A host that
	// reboots should be back by then; what replaces a control plane on a dead host waits for as long, for its KubeadmControlPlane waits
	// for the deletion.
	HostUnreachableTimeout time.Duration
	// WatchFilter limits it to objects whose label cluster.x-k8s.io/watch-filter has this value, if not empty.
	WatchFilter string

	controller capicontroller.Controller
	settling   record.Settling
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=maasmachines,verbs=list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=maasmachines/status,verbs=patch

// SetupWithManager makes the manager run the reconciler.
func (r *MaasMachineReconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "maasmachine")
	scheme := mgr.GetScheme()
	if err := mgr.GetFieldIndexer().IndexField(ctx, &infrav1.MaasMachine{}, SystemIDIndex, systemIDOf); err != nil {
		return fmt.Errorf("indexing MaasMachines by systemID: %w", err)
	}
	clusterToMachines, err := util.ClusterToTypedObjectsMapper(r.Client, &infrav1.MaasMachineList{}, scheme)
	if err != nil {
		return fmt.Errorf("mapping Clusters to MaasMachines: %w", err)
	}
	options.ReconciliationTimeout = reconcileTimeout
	limited := limitWorkers(r, &options)
	r.controller, err = capicontroller.NewControllerManagedBy(mgr, log).
		For(&infrav1.MaasMachine{}, builder.WithPredicates(ignoreBookkeeping)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(util.MachineToInfrastructureMapFunc(infrav1.GroupVersion.WithKind("MaasMachine")))).
		Watches(&infrav1.MaasCluster{}, handler.EnqueueRequestsFromMapFunc(r.maasClusterToMachines)).
		Watches(&ipamv1.IPAddressClaim{}, handler.EnqueueRequestForOwner(scheme, mgr.GetRESTMapper(), &infrav1.MaasMachine{}, handler.OnlyControllerOwner())).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(clusterToMachines),
			predicates.ClusterPausedTransitionsOrInfrastructureProvisioned(scheme, log)).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.secretToMachines)).
		WatchesRawSource(source.TypedChannel(r.Changes, handler.TypedEnqueueRequestsFromMapFunc(r.systemIDToMachines))).
		WatchesRawSource(r.ClusterCache.GetClusterSource("maasmachine", clusterToMachines)).
		WithOptions(options).
		Build(ctx, limited)
	if err != nil {
		return fmt.Errorf("setting up the MaasMachine controller: %w", err)
	}
	return nil
}

// ignoreBookkeeping lets pass what changed more than our notes. That MAAS is being asked for a machine comes and goes with each try, and
// would make the next try follow at once.
var ignoreBookkeeping = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	resync := e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion()
	return resync || !equality.Semantic.DeepEqual(withoutNotes(e.ObjectOld), withoutNotes(e.ObjectNew))
}}

// withoutNotes is an object without the notes, and without what changes with each write.
func withoutNotes(object client.Object) client.Object {
	object = object.DeepCopyObject().(client.Object)
	object.SetResourceVersion("")
	object.SetManagedFields(nil)
	annotations := object.GetAnnotations()
	delete(annotations, infrav1.RecordAnnotation)
	delete(annotations, infrav1.StaticIPAnnotation)
	object.SetAnnotations(annotations)
	return object
}

func systemIDOf(object client.Object) []string {
	if id := object.(*infrav1.MaasMachine).Spec.SystemID; id != "" {
		return []string{id}
	}
	return nil
}

func (r *MaasMachineReconciler) systemIDToMachines(ctx context.Context, systemID string) []reconcile.Request {
	list := &infrav1.MaasMachineList{}
	if err := r.Client.List(ctx, list, client.MatchingFields{SystemIDIndex: systemID}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Can't tell whose machine changed in MAAS", "systemID", systemID)
		return nil
	}
	return requests(list.Items)
}

// maasClusterToMachines wakes the machines of a cluster, for they wait for its credentials, endpoint and DNS record.
func (r *MaasMachineReconciler) maasClusterToMachines(ctx context.Context, object client.Object) []reconcile.Request {
	name := object.GetLabels()[clusterv1.ClusterNameLabel]
	if name == "" {
		return nil
	}
	machines, err := clusterMachines(ctx, r.Client, object.GetNamespace(), name)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Can't tell which machines wait for the MaasCluster")
		return nil
	}
	return requests(machines)
}

func requests(machines []infrav1.MaasMachine) []reconcile.Request {
	list := make([]reconcile.Request, 0, len(machines))
	for i := range machines {
		list = append(list, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&machines[i])})
	}
	return list
}

// Reconcile brings one MaasMachine nearer to what is desired.
func (r *MaasMachineReconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	maasMachine := &infrav1.MaasMachine{}
	if err := r.Client.Get(ctx, req.NamespacedName, maasMachine); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !watched(maasMachine, r.WatchFilter) || movedAway(maasMachine) {
		return ctrl.Result{}, nil
	}
	m, err := r.owners(ctx, maasMachine)
	if err != nil || m == nil {
		return ctrl.Result{}, err
	}
	if isPaused, requeue, err := paused.EnsurePausedCondition(ctx, r.Client, m.cluster, maasMachine); err != nil || isPaused || requeue {
		return ctrl.Result{}, err
	}
	if maasMachine.DeletionTimestamp.IsZero() {
		if added, err := finalizers.EnsureFinalizer(ctx, r.Client, maasMachine, infrav1.MachineFinalizer); err != nil || added {
			return ctrl.Result{}, err
		}
	}
	patcher, unreadable, err := newPatcher(maasMachine, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer func() {
		reterr = kerrors.NewAggregate([]error{reterr, r.patch(ctx, patcher, maasMachine)})
	}()
	if unreadable != nil {
		return r.stopped(ctx, maasMachine, unreadable)
	}
	m.record = patcher.record
	if !maasMachine.DeletionTimestamp.IsZero() {
		return r.reconcileDelete(ctx, m)
	}
	return r.reconcileNormal(ctx, m)
}

// owners are the objects that a MaasMachine belongs to.
type owners struct {
	machine     *clusterv1.Machine
	cluster     *clusterv1.Cluster
	maasCluster *infrav1.MaasCluster // nil while, or once, there is none
	original    *infrav1.MaasCluster // what maasCluster is a copy of; nil where it is none
	maasMachine *infrav1.MaasMachine
	record      *record.Record // of maasMachine
}

// owners finds the owners; nil means that they are not there yet. What is being deleted is looked after without them, too.
func (r *MaasMachineReconciler) owners(ctx context.Context, maasMachine *infrav1.MaasMachine) (*owners, error) {
	machine, err := util.GetOwnerMachine(ctx, r.Client, maasMachine.ObjectMeta)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading the owner Machine: %w", err)
	}
	if machine == nil {
		if maasMachine.DeletionTimestamp.IsZero() {
			ctrl.LoggerFrom(ctx).V(1).Info("Waiting for Cluster API to set the owner reference")
			return nil, nil
		}
		machine = &clusterv1.Machine{Spec: clusterv1.MachineSpec{ClusterName: maasMachine.Labels[clusterv1.ClusterNameLabel]}}
		machine.Namespace, machine.Labels = maasMachine.Namespace, maasMachine.Labels
	}
	m := &owners{machine: machine, maasMachine: maasMachine}
	m.cluster, err = util.GetClusterByName(ctx, r.Client, machine.Namespace, machine.Spec.ClusterName)
	if apierrors.IsNotFound(err) && !maasMachine.DeletionTimestamp.IsZero() {
		m.cluster, err = &clusterv1.Cluster{}, nil
		m.cluster.Namespace, m.cluster.Name = machine.Namespace, machine.Spec.ClusterName
	}
	if err != nil {
		return nil, fmt.Errorf("reading the Cluster: %w", err)
	}
	m.maasCluster, err = r.maasCluster(ctx, m.cluster)
	if err == nil && m.maasCluster != nil {
		m.original, err = r.original(ctx, m)
	}
	return m, err
}

// original returns the MaasCluster that the machine's was copied from; or, where the copy has an owner id of its own by now, the one whose machine
// this is a copy of.
func (r *MaasMachineReconciler) original(ctx context.Context, m *owners) (*infrav1.MaasCluster, error) {
	original, err := copiedFrom(ctx, r.Client, m.maasCluster)
	noted := m.maasMachine.Annotations[infrav1.OwnerIDAnnotation]
	if err != nil || original != nil || noted == m.maasCluster.Annotations[infrav1.OwnerIDAnnotation] {
		return original, err
	}
	return ownedElsewhere(ctx, r.Client, m.maasCluster, noted)
}

// maasCluster finds the MaasCluster of a Cluster, by its label where the Cluster itself is gone; nil when there is none.
func (r *MaasMachineReconciler) maasCluster(ctx context.Context, cluster *clusterv1.Cluster) (*infrav1.MaasCluster, error) {
	if name := cluster.Spec.InfrastructureRef.Name; name != "" {
		maasCluster := &infrav1.MaasCluster{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: name}, maasCluster)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the MaasCluster: %w", err)
		}
		return maasCluster, nil
	}
	list := &infrav1.MaasClusterList{}
	err := r.Client.List(ctx, list, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name})
	if err != nil {
		return nil, fmt.Errorf("looking for the MaasCluster: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, nil
	}
	return &list.Items[0], nil
}

// scope puts the objects together with the view of their MAAS.
func (r *MaasMachineReconciler) scope(ctx context.Context, m *owners) (*scope.Machine, error) {
	cluster, err := r.Scopes.Cluster(ctx, m.cluster, m.maasCluster)
	if err != nil {
		return nil, err
	}
	return &scope.Machine{Cluster: cluster, Machine: m.machine, MaasMachine: m.maasMachine}, nil
}

// patch stores what the reconcile found out, in one patch.
func (r *MaasMachineReconciler) patch(ctx context.Context, patcher *patcher, m *infrav1.MaasMachine) error {
	types := bareMetalConditions
	if m.Spec.IsLXD() {
		types = lxdConditions
	}
	summarize(m, !m.DeletionTimestamp.IsZero(), types...)
	m.Status.Ready = conditions.IsTrue(m, infrav1.ReadyCondition)
	if patcher.record != nil && patcher.record.Release != nil {
		m.Status.Release = patcher.record.Release
	}
	owned := append([]string{infrav1.ReadyCondition}, types...)
	return patcher.store(ctx, m, owned)
}

// blocker returns what must be there before MAAS is asked for anything.
func blocker(m *owners) *problem {
	deployed := m.maasMachine.Spec.ProviderID != "" && m.maasMachine.Spec.SystemID != ""
	if m.maasCluster != nil && m.original == nil {
		if p := ownerProblem(m); p != nil {
			return p
		}
	}
	switch {
	case m.maasCluster != nil && m.maasCluster.Annotations[infrav1.OwnerIDAnnotation] == "" && annotations.IsExternallyManaged(m.maasCluster):
		return &problem{reason: infrav1.WaitingForClusterInfrastructureReason, message: fmt.Sprintf(
			"the MaasCluster is managed externally (annotation %s): whoever manages it must set its annotation %s, once, "+
				"to %d random characters of a-z and 0-9",
			clusterv1.ManagedByAnnotation, infrav1.OwnerIDAnnotation, maas.OwnerIDLength)}
	case m.maasCluster == nil || m.maasCluster.Annotations[infrav1.OwnerIDAnnotation] == "" || (!deployed && !provisioned(m.cluster)):
		return &problem{reason: infrav1.WaitingForClusterInfrastructureReason, message: "the cluster's infrastructure is not provisioned yet"}
	case m.original != nil:
		return copied(m.original)
	case deployed:
		return nil
	case m.machine.Spec.Bootstrap.DataSecretName == nil:
		return &problem{reason: infrav1.WaitingForBootstrapDataReason, message: "waiting for the bootstrap data Secret"}
	}
	return nil
}

func provisioned(cluster *clusterv1.Cluster) bool {
	return cluster.Status.Initialization.InfrastructureProvisioned != nil && *cluster.Status.Initialization.InfrastructureProvisioned
}

// stopped says in the conditions, in an event and in the log why a step could not be done.
func (r *MaasMachineReconciler) stopped(ctx context.Context, m *infrav1.MaasMachine, err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) || errors.Is(err, context.Canceled) {
		return ctrl.Result{}, err
	}
	p := explain(err)
	old := conditions.Get(m, infrav1.MachineDeployedCondition)
	log := ctrl.LoggerFrom(ctx)
	if old == nil || old.Reason != p.reason {
		r.Recorder.Eventf(m, nil, corev1.EventTypeWarning, p.reason, "Reconcile", "%s", p.message)
	} else if p.reason == infrav1.MAASBusyReason {
		log = log.V(1) // Of a thousand machines most wait for their turn.
	}
	log.Info("Can't go on", "reason", p.reason, "error", strings.ReplaceAll(err.Error(), "\n", "; "))
	markDeployedUnknown(m, p)
	if p.reason == infrav1.MAASBusyReason {
		r.controller.DeferNextReconcileForObject(m, time.Now().Add(p.retryAfter)) // What is said here changes the object, which would wake us at once.
	}
	return p.result(err)
}

// markDeployedUnknown says why it is not known whether the machine is deployed. What was deployed before may well be so still.
func markDeployedUnknown(m *infrav1.MaasMachine, p problem) {
	if m.Spec.ProviderID != "" && m.DeletionTimestamp.IsZero() {
		setUnknown(m, infrav1.MachineDeployedCondition, p.reason, p.message)
		return
	}
	notDeployed(m, p.reason, "%s", p.message)
}

// notDeployed says in the first condition that is not true yet why the machine is not deployed.
func notDeployed(m *infrav1.MaasMachine, reason, format string, args ...any) {
	setFalse(m, infrav1.MachineDeployedCondition, reason, format, args...)
	if m.Spec.IsLXD() {
		for _, condition := range lxdConditions[:4] {
			if !conditions.IsTrue(m, condition) || condition == infrav1.LXDVMDeployedCondition {
				setFalse(m, condition, reason, format, args...)
				return
			}
		}
	}
}
