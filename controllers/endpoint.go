// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// publishEndpoint makes the endpoint's DNS record hold the addresses of the control planes that can serve the API. It answers
// what the record holds, and whether it was written.
func publishEndpoint(ctx context.Context, c client.Client, s *scope.Cluster) (published []string, wrote bool, err error) {
	return s.DNS.Ensure(ctx, s.EndpointName(), func(current []string) ([]string, error) {
		machines, err := clusterMachines(ctx, c, s.MaasCluster.Namespace, s.Cluster.Name)
		if err != nil {
			return nil, err
		}
		return endpointAddresses(ctx, c, s.Cluster, machines, current), nil
	})
}

// endpointAddresses are what the record should hold, given what it holds.
func endpointAddresses(ctx context.Context, c client.Client, cluster *clusterv1.Cluster, machines []infrav1.MaasMachine, current []string) []string {
	var desired []string
	for i := range machines {
		m := &machines[i]
		if !isControlPlane(m) || !m.DeletionTimestamp.IsZero() {
			continue
		}
		if provisionedButUnseen(m) {
			// After a move the status is still empty: the record stays until every control plane was seen again.
			return current
		}
		address := endpointAddress(m)
		if address != "" && (slices.Contains(current, address) || servesAPI(ctx, c, cluster, m)) {
			desired = append(desired, address)
		}
	}
	slices.Sort(desired)
	return slices.Compact(desired)
}

// provisionedButUnseen tells that the machine had been provisioned, but its addresses are not known now.
func provisionedButUnseen(m *infrav1.MaasMachine) bool {
	return m.Spec.ProviderID != "" && len(m.Status.Addresses) == 0 && m.Status.FailureReason == ""
}

// endpointAddress is the address of a control plane that is published: the first, in the order of the preferred subnets.
func endpointAddress(m *infrav1.MaasMachine) string {
	if !ptr.Deref(m.Status.Initialization.Provisioned, false) {
		return ""
	}
	for _, address := range m.Status.Addresses {
		if address.Type == clusterv1.MachineInternalIP {
			return address.Address
		}
	}
	return ""
}

// servesAPI tells whether clients may be led to a control plane: the first one always, for kubeadm needs the endpoint to
// initialize the cluster; others once they joined.
func servesAPI(ctx context.Context, c client.Client, cluster *clusterv1.Cluster, m *infrav1.MaasMachine) bool {
	if !ptr.Deref(cluster.Status.Initialization.ControlPlaneInitialized, false) {
		return true
	}
	machine, err := util.GetOwnerMachine(ctx, c, m.ObjectMeta)
	return err == nil && machine != nil && machine.Status.NodeRef.IsDefined()
}

func isControlPlane(object client.Object) bool {
	_, ok := object.GetLabels()[clusterv1.MachineControlPlaneLabel]
	return ok
}

// clusterMachines lists the MaasMachines of a cluster.
func clusterMachines(ctx context.Context, c client.Client, namespace, cluster string) ([]infrav1.MaasMachine, error) {
	list := &infrav1.MaasMachineList{}
	if err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster}); err != nil {
		return nil, fmt.Errorf("listing the cluster's MaasMachines: %w", err)
	}
	return list.Items, nil
}
