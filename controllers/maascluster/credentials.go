// SPDX-License-Identifier: Apache-2.0

package maascluster

import (
	"context"
	"errors"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// scope combines the cluster with the MAAS that has its machines.
func (r *Reconciler) scope(
	ctx context.Context, cluster *clusterv1.Cluster, maasCluster *infrav1.MaasCluster,
) (*scope.Cluster, error) {
	s, err := r.Scopes.Cluster(ctx, cluster, maasCluster)
	if elsewhere, is := errors.AsType[*scope.ElsewhereError](err); is {
		return r.follow(ctx, cluster, maasCluster, elsewhere)
	}
	return s, err
}

// recordMAAS records which MAAS has the cluster's machines, after that MAAS responded and before it is changed. Without
// the annotation, nothing of the cluster is in MAAS.
func (r *Reconciler) recordMAAS(ctx context.Context, s *scope.Cluster) error {
	if s.MaasCluster.Annotations[infrav1.MAASAnnotation] == s.Home {
		return nil
	}
	return objects.PatchNow(ctx, r.Client, s.MaasCluster, func(c *infrav1.MaasCluster) {
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		c.Annotations[infrav1.MAASAnnotation] = s.Home
	})
}

// follow accepts a MAAS at another address as the same one if it has something of the cluster, or if the cluster has
// nothing in MAAS.
func (r *Reconciler) follow(
	ctx context.Context, cluster *clusterv1.Cluster, maasCluster *infrav1.MaasCluster, elsewhere *scope.ElsewhereError,
) (*scope.Cluster, error) {
	s, err := r.Scopes.Anywhere(ctx, cluster, maasCluster)
	if err != nil {
		return nil, err
	}
	machines, err := clusters.Machines(ctx, r.Client, maasCluster.Namespace, cluster.Name)
	if err != nil {
		return nil, err
	}
	same, err := isHome(ctx, s, machines)
	if err != nil {
		return nil, err
	}
	if !same {
		return nil, elsewhere
	}
	r.Tell(maasCluster, "MAASMoved", "Connect", "MAAS, which was at %s, is at %s (after # is which API key)",
		elsewhere.Home, elsewhere.There)
	return s, nil
}

// isHome reports whether a MAAS has one of the machines, or the virtual IP. It also returns true if the cluster has
// nothing in MAAS that could be lost.
func isHome(ctx context.Context, s *scope.Cluster, machines []infrav1.MaasMachine) (bool, error) {
	recorded, err := record.OfCluster(s.MaasCluster)
	held := err != nil || recorded.MayAcquire()
	var metal, virtual []maas.MachineFilter
	for i := range machines {
		id := (&scope.Machine{Cluster: s, MaasMachine: &machines[i]}).Identity()
		switch {
		case clusters.NothingAcquired(&machines[i]):
		case machines[i].Spec.IsLXD():
			virtual = append(virtual, maas.MachineFilter{Hostnames: []string{id.Hostname}})
		default:
			metal = append(metal, maas.MachineFilter{AgentNames: []string{id.AgentName}})
		}
	}
	for _, filter := range slices.Concat(maas.JoinFilters(metal), maas.JoinFilters(virtual)) {
		held = true
		found, err := s.Inventory.Client().ListMachines(ctx, filter)
		if err != nil || len(found) > 0 {
			return len(found) > 0, err
		}
	}
	if s.Endpoint() == scope.EndpointVirtualIP && s.MaasCluster.Spec.ControlPlaneEndpoint.Host != "" {
		held = true
		reserved, err := s.DNS.VirtualIP(ctx, s.EndpointName(), "")
		if err != nil || len(reserved) > 0 {
			return len(reserved) > 0, err
		}
	}
	return !held, nil
}

// secretToClusters wakes the clusters whose credentials are in a Secret, so that they use a rotated or corrected key at
// once.
func (r *Reconciler) secretToClusters(ctx context.Context, secret client.Object) []reconcile.Request {
	return list.Each(clusters.WithCredentials(ctx, r.Client, secret), func(c infrav1.MaasCluster) reconcile.Request {
		return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&c)}
	})
}
