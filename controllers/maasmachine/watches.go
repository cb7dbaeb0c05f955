// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/workers"
)

const (
	// SystemIDIndex finds MaasMachines by spec.systemID in the cache.
	SystemIDIndex = "spec.systemID"
	// reconcileTimeout leaves time for a compose, a claim and a deployment. Each of them waits a few minutes at most,
	// for its turn and for MAAS.
	reconcileTimeout = 15 * time.Minute
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=maasmachines,verbs=list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=maasmachines/status,verbs=patch

// SetupWithManager makes the manager run the reconciler.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	scheme := mgr.GetScheme()
	if err := mgr.GetFieldIndexer().IndexField(ctx, &infrav1.MaasMachine{}, SystemIDIndex, systemIDOf); err != nil {
		return fmt.Errorf("indexing MaasMachines by systemID: %w", err)
	}
	clusterToMachines, err := util.ClusterToTypedObjectsMapper(r.Client, &infrav1.MaasMachineList{}, scheme)
	if err != nil {
		return fmt.Errorf("mapping Clusters to MaasMachines: %w", err)
	}
	options.ReconciliationTimeout = reconcileTimeout
	setup, limited := workers.Manage(ctx, mgr, "maasmachine", r, options)
	r.Controller, err = setup.
		For(&infrav1.MaasMachine{}, builder.WithPredicates(objects.IgnoreBookkeeping)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(util.MachineToInfrastructureMapFunc(
			infrav1.GroupVersion.WithKind("MaasMachine")))).
		Watches(&infrav1.MaasCluster{}, handler.EnqueueRequestsFromMapFunc(r.maasClusterToMachines)).
		Watches(&ipamv1.IPAddressClaim{}, handler.EnqueueRequestForOwner(scheme, mgr.GetRESTMapper(), &infrav1.MaasMachine{},
			handler.OnlyControllerOwner())).
		Watches(&infrav1.LXDHost{}, handler.EnqueueRequestForOwner(scheme, mgr.GetRESTMapper(), &infrav1.MaasMachine{},
			handler.OnlyControllerOwner()), objects.IgnoreFigures).
		Watches(&infrav1.LXDHost{}, handler.EnqueueRequestsFromMapFunc(r.lxdHostToMachines),
			predicate.Or[client.Object](objects.IgnoreFigures, predicate.GenerationChangedPredicate{})).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(clusterToMachines),
			predicates.ClusterPausedTransitionsOrInfrastructureProvisioned(scheme, ctrl.LoggerFrom(ctx))).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.secretToMachines)).
		WatchesRawSource(source.TypedChannel(r.Changes, handler.TypedEnqueueRequestsFromMapFunc(r.systemIDToMachines))).
		WatchesRawSource(r.ClusterCache.GetClusterSource("maasmachine", clusterToMachines)).
		Build(ctx, limited)
	return err
}

func systemIDOf(object client.Object) []string {
	if id := object.(*infrav1.MaasMachine).Spec.SystemID; id != "" {
		return []string{id}
	}
	return nil
}

func (r *Reconciler) systemIDToMachines(ctx context.Context, systemID string) []reconcile.Request {
	return r.wake(ctx, nil, client.MatchingFields{SystemIDIndex: systemID})
}

// wake wakes those of the MaasMachines that wake says; nil: all.
func (r *Reconciler) wake(
	ctx context.Context, wake func(client.Object) bool, options ...client.ListOption,
) []reconcile.Request {
	return objects.Wake(ctx, r.Client, &infrav1.MaasMachineList{}, wake, options...)
}

// maasClusterToMachines wakes the machines of a cluster: they wait for its credentials, endpoint and DNS record.
func (r *Reconciler) maasClusterToMachines(ctx context.Context, object client.Object) []reconcile.Request {
	name := clusters.NameOf(object.(*infrav1.MaasCluster))
	if name == "" {
		return nil
	}
	return r.wake(ctx, nil, client.InNamespace(object.GetNamespace()),
		client.MatchingLabels{clusterv1.ClusterNameLabel: name})
}

// lxdHostToMachines wakes the VMs' machines when a former VM host can be reached: those that MAAS composed can be
// deleted then.
func (r *Reconciler) lxdHostToMachines(ctx context.Context, object client.Object) []reconcile.Request {
	host := object.(*infrav1.LXDHost)
	if host.Spec.VMHost == nil || host.Spec.CredentialsRef == nil {
		return nil
	}
	return r.wake(ctx, func(m client.Object) bool { return m.(*infrav1.MaasMachine).Spec.IsLXD() })
}

// secretToMachines wakes the machines of the MaasClusters whose credentials are in a Secret.
func (r *Reconciler) secretToMachines(ctx context.Context, secret client.Object) []reconcile.Request {
	var list []reconcile.Request
	for _, c := range clusters.WithCredentials(ctx, r.Client, secret) {
		list = append(list, r.maasClusterToMachines(ctx, &c)...)
	}
	return list
}
