// SPDX-License-Identifier: Apache-2.0

// Package clusters reads facts about a cluster that several reconcilers need: its machines, its owner id, and the
// addresses of its endpoint.
package clusters

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/vmhosts"
)

// BareMetalMaxAge is the maximum age of the list of all machines. The list is long, and changes when an operator adds
// machines.
const BareMetalMaxAge = 10 * time.Minute

// IsControlPlane reports whether an object belongs to a control plane, by its label.
func IsControlPlane(object client.Object) bool {
	_, ok := object.GetLabels()[clusterv1.MachineControlPlaneLabel]
	return ok
}

// Machines lists the MaasMachines of a cluster.
func Machines(ctx context.Context, c client.Client, namespace, cluster string) ([]infrav1.MaasMachine, error) {
	list := &infrav1.MaasMachineList{}
	if err := c.List(ctx, list, client.InNamespace(namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster}); err != nil {
		return nil, fmt.Errorf("listing the cluster's MaasMachines: %w", err)
	}
	return list.Items, nil
}

// NameOf returns the name of the Cluster that a MaasCluster belongs to.
func NameOf(c *infrav1.MaasCluster) string {
	return cmp.Or(c.Spec.ClusterName, OwnerName(c, "Cluster"), c.Labels[clusterv1.ClusterNameLabel])
}

// KeyOf returns namespace and name of the Cluster that a MaasMachine belongs to.
func KeyOf(m *infrav1.MaasMachine) client.ObjectKey {
	return client.ObjectKey{Namespace: m.Namespace, Name: m.Labels[clusterv1.ClusterNameLabel]}
}

// WithCredentials lists the MaasClusters whose credentials are in a Secret.
func WithCredentials(ctx context.Context, c client.Reader, secret client.Object) []infrav1.MaasCluster {
	all := &infrav1.MaasClusterList{}
	if err := c.List(ctx, all, client.InNamespace(secret.GetNamespace())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to find the MaasClusters that use a Secret")
		return nil
	}
	return list.Where(all.Items, func(m infrav1.MaasCluster) bool {
		hosts := m.Spec.LXDConfig
		return isNamed(m.Spec.CredentialsRef, secret) || (hosts != nil && isNamed(hosts.CredentialsRef, secret))
	})
}

func isNamed(ref *infrav1.LocalObjectReference, object client.Object) bool {
	return ref != nil && ref.Name == object.GetName()
}

// NothingAcquired reports whether MAAS was never asked for a machine, or refused, and no VM can exist that MAAS does
// not know, and no machine has a storage layout of ours, or is excluded for it.
func NothingAcquired(m *infrav1.MaasMachine) bool { return m.Spec.SystemID == "" && nothingRecorded(m) }

// OnlyChosen reports whether a machine is no more than one that the spec names: MAAS was not asked for it.
func OnlyChosen(m *infrav1.MaasMachine) bool { return !WasAskedFor(m) && nothingRecorded(m) }

func nothingRecorded(m *infrav1.MaasMachine) bool {
	recorded, err := record.OfMachine(m)
	return err == nil && !recorded.MayAcquire() && !recorded.MayChangeHost() &&
		len(recorded.Hosts) == 0 && !recorded.Registers && recorded.Storage == nil && recorded.Excluded == "" &&
		len(recorded.Unused) == 0
}

// HostCondition returns the condition that the initializer sets on its Node; nil if there is none.
func HostCondition(node *corev1.Node) *corev1.NodeCondition {
	return list.Find(node.Status.Conditions,
		func(c corev1.NodeCondition) bool { return c.Type == infrav1.LXDHostReadyNodeCondition })
}

// BareMetal lists the machines in MAAS that are neither VMs nor VM hosts, including those in use, as they were at most
// maxAge ago. The machines of a host cluster are VM hosts: for the host cluster itself they are listed.
func BareMetal(ctx context.Context, s *scope.Cluster, maxAge time.Duration) ([]*maas.Machine, error) {
	machines, err := s.Inventory.BareMetal(ctx, maxAge)
	if err != nil {
		return nil, fmt.Errorf("listing MAAS's machines: %w", err)
	}
	if s.MaasCluster.Spec.LXDControlPlaneCluster {
		return machines, nil
	}
	hosts, _, err := s.Inventory.AnyVMHosts(ctx, BareMetalMaxAge)
	if err != nil {
		return nil, fmt.Errorf("listing MAAS's VM hosts: %w", err)
	}
	return list.Where(machines, func(m *maas.Machine) bool { return len(vmhosts.OnMachine(hosts, m.SystemID)) == 0 }), nil
}
