// SPDX-License-Identifier: Apache-2.0

// Package keep leaves bare-metal machines to the next Machine of the same owner: it reports whether one is missing, and
// gives machines back that no Machine takes. The record of the MaasCluster names those that wait.
package keep

import (
	"context"
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/controlplane"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/presence"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinesets;machinedeployments,verbs=get

// The kinds of owners, in the order in which a Machine is theirs, with the label of each.
var kinds = []struct{ kind, label string }{
	{"controlplane", clusterv1.MachineControlPlaneNameLabel},
	{"machinedeployment", clusterv1.MachineDeploymentNameLabel},
	{"machineset", clusterv1.MachineSetNameLabel},
}

// OwnerOf returns what makes the next Machine when a Machine or MaasMachine goes: kind/name; "" if nothing does.
func OwnerOf(object client.Object) string {
	for _, k := range kinds {
		if name := object.GetLabels()[k.label]; name != "" {
			return k.kind + "/" + name
		}
	}
	return ""
}

// Missing returns how many MaasMachines of an owner lack a machine, or are still to be made: machines that are kept are
// for these. It is 0 if the owner, or the cluster, goes. An owner that can't be read may make one: that the machine is
// kept in vain ends by itself. The error waits until it is certain that a missing one is gone.
func Missing(
	ctx context.Context, c client.Client, live client.Reader, cluster *clusterv1.Cluster, owner string,
) (int, error) {
	missing, err := lacking(ctx, c, live, cluster, owner)
	var unknown *presence.UnknownError
	switch {
	case !errors.As(err, &unknown):
		return missing, err
	case unknown.IsMissing():
		return 0, report.Later(min(unknown.Remaining, report.CapacityRetry), infrav1.KeepingReason, "%v", unknown)
	}
	return 1, nil
}

// lacking is Missing; *presence.UnknownError: it is not known.
func lacking(
	ctx context.Context, c client.Client, live client.Reader, cluster *clusterv1.Cluster, owner string,
) (int, error) {
	wanted, err := replicas(ctx, c, live, cluster, owner)
	if err != nil || wanted == 0 {
		return 0, err
	}
	machines, err := clusters.Machines(ctx, c, cluster.Namespace, cluster.Name)
	if err != nil {
		return 0, err
	}
	for i := range machines {
		if m := &machines[i]; OwnerOf(m) == owner && m.DeletionTimestamp.IsZero() && m.Spec.SystemID != "" {
			wanted--
		}
	}
	return max(wanted, 0), nil
}

// replicas returns how many Machines an owner wants; 0 if it goes, or is gone.
func replicas(
	ctx context.Context, c client.Client, live client.Reader, cluster *clusterv1.Cluster, owner string,
) (int, error) {
	if !cluster.DeletionTimestamp.IsZero() {
		return 0, nil
	}
	ref := cluster.Spec.ControlPlaneRef
	kind, name := schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind}, ref.Name
	switch of, named, _ := strings.Cut(owner, "/"); of {
	case "machinedeployment":
		kind, name = controlplane.MachineDeployment, named
	case "machineset":
		kind, name = controlplane.MachineSet, named
	}
	of, err := controlplane.Get(ctx, c, live, kind, client.ObjectKey{Namespace: cluster.Namespace, Name: name})
	if err != nil || of == nil || of.GetDeletionTimestamp() != nil {
		return 0, err
	}
	return of.Replicas(), nil
}
