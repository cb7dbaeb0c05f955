// SPDX-License-Identifier: Apache-2.0

package maascluster

import (
	"context"
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
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
	return r.recordHome(ctx, s.MaasCluster, s.Home)
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
	machines, err := clusters.MachinesOf(ctx, r.Client, cluster, maasCluster)
	if err != nil {
		return nil, err
	}
	same, nothing, err := isHome(ctx, s, machines)
	if nothing {
		same, err = r.leave(ctx, cluster, maasCluster, elsewhere.Home)
	}
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

// leave reports whether the cluster has nothing in a MAAS that could be lost, and will not have: a machine may be about
// to ask for something there, and the cache may not have it yet. See life.Ask.
func (r *Reconciler) leave(
	ctx context.Context, cluster *clusterv1.Cluster, maasCluster *infrav1.MaasCluster, home string,
) (bool, error) {
	if err := r.recordHome(ctx, maasCluster, scope.Leaving(home)); err != nil {
		return false, err
	}
	machines, err := r.machinesNow(ctx, cluster, maasCluster)
	asked := slices.ContainsFunc(machines, func(m infrav1.MaasMachine) bool { return !clusters.NothingAcquired(&m) })
	return err == nil && !asked, err
}

func (r *Reconciler) recordHome(ctx context.Context, maasCluster *infrav1.MaasCluster, home string) error {
	return objects.PatchNow(ctx, r.Client, maasCluster, func(c *infrav1.MaasCluster) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, infrav1.MAASAnnotation, home)
	})
}

// isHome reports whether a MAAS has something of the cluster, or else that the cluster has nothing in MAAS that could
// be lost, as far as is known.
func isHome(ctx context.Context, s *scope.Cluster, machines []infrav1.MaasMachine) (is, nothing bool, err error) {
	recorded, unreadable := record.OfCluster(s.MaasCluster)
	for _, kept := range recorded.Kept {
		former := infrav1.MaasMachine{Spec: kept.Spec}
		former.Name, former.Spec.SystemID = kept.Machine, kept.SystemID
		machines = append(machines, former)
	}
	looks := machineLooks(s, machines)
	if len(looks) == 0 { // Each user of a MAAS can read its DNS: a record does not prove that the machines can be seen.
		looks = endpointLooks(s, recorded.Published)
	}
	for _, look := range looks {
		if found, err := look(ctx); err != nil || found {
			return found, false, err
		}
	}
	return false, len(looks) == 0 && unreadable == nil && !recorded.MayAcquire(), nil
}

// look asks MAAS for something that the cluster may have there, and reports whether MAAS has it.
type look func(context.Context) (found bool, err error)

// machineLooks look for the cluster's machines: those that MAAS has as devices, too, and those from which MAAS took the
// agent name when they were released.
func machineLooks(s *scope.Cluster, machines []infrav1.MaasMachine) (looks []look) {
	var marked, named, known []maas.MachineFilter
	for i := range machines {
		m := &machines[i]
		id := (&scope.Machine{Cluster: s, MaasMachine: m}).Identity()
		switch {
		case clusters.NothingAcquired(m):
			continue
		case m.Spec.IsLXD():
			named = append(named, maas.MachineFilter{Hostnames: []string{id.Hostname}})
		default:
			marked = append(marked, maas.MachineFilter{AgentNames: []string{id.AgentName}})
		}
		if m.Spec.SystemID != "" {
			known = append(known, maas.MachineFilter{SystemIDs: []string{m.Spec.SystemID}})
		}
	}
	there, all := s.Inventory.Client(), func(*maas.Machine) bool { return true }
	for _, f := range maas.JoinFilters(named) {
		looks = append(looks, func(ctx context.Context) (bool, error) {
			found, err := there.ListDevices(ctx, maas.DeviceFilter{Hostnames: f.Hostnames})
			return len(found) > 0, err
		}, lookFor(there, f, all))
	}
	for _, f := range maas.JoinFilters(marked) {
		looks = append(looks, lookFor(there, f, all))
	}
	for _, f := range maas.JoinFilters(known) {
		looks = append(looks, lookFor(there, f, func(m *maas.Machine) bool {
			return m.Owner != "" && m.WorkloadAnnotations[ownership.AnnotationOwner] == s.OwnerID()
		}))
	}
	return looks
}

// lookFor looks for machines that match a filter and are ours.
func lookFor(there *maas.Client, filter maas.MachineFilter, ours func(*maas.Machine) bool) look {
	return func(ctx context.Context) (bool, error) {
		found, err := there.ListMachines(ctx, filter)
		return slices.ContainsFunc(found, ours), err
	}
}

// endpointLooks look for the endpoint's name in MAAS's DNS, which a virtual IP has, too.
func endpointLooks(s *scope.Cluster, published bool) []look {
	reserved := s.Endpoint() == scope.EndpointVirtualIP && s.MaasCluster.Spec.ControlPlaneEndpoint.Host != ""
	if !published && !reserved {
		return nil
	}
	return []look{func(ctx context.Context) (bool, error) { return s.DNS.Has(ctx, s.EndpointName()) }}
}

// secretToClusters wakes the clusters whose credentials are in a Secret, so that they use a rotated or corrected key at
// once.
func (r *Reconciler) secretToClusters(ctx context.Context, secret client.Object) []reconcile.Request {
	return list.Each(clusters.WithCredentials(ctx, r.Client, secret), func(c infrav1.MaasCluster) reconcile.Request {
		return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&c)}
	})
}
