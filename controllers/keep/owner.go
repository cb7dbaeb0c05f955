// SPDX-License-Identifier: Apache-2.0

// Package keep leaves bare-metal machines to the next Machine of the same owner: it reports whether one is missing, and
// gives machines back that nobody takes. The record of the MaasCluster names those that wait.
package keep

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
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
// for these. It is 0 if the owner, or the cluster, goes.
func Missing(
	ctx context.Context, c client.Client, live client.Reader, cluster *clusterv1.Cluster, owner string,
) (int, error) {
	wanted, err := replicas(ctx, c.RESTMapper(), live, cluster, owner)
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

// replicas returns how many Machines an owner wants; 0 if it goes, or may not be read.
func replicas(
	ctx context.Context, mapper meta.RESTMapper, live client.Reader, cluster *clusterv1.Cluster, owner string,
) (int, error) {
	if !cluster.DeletionTimestamp.IsZero() {
		return 0, nil
	}
	kind, name, _ := strings.Cut(owner, "/")
	groupKind := schema.GroupKind{Group: clusterv1.GroupVersion.Group}
	switch kind {
	case "machinedeployment":
		groupKind.Kind = "MachineDeployment"
	case "machineset":
		groupKind.Kind = "MachineSet"
	default:
		ref := cluster.Spec.ControlPlaneRef
		groupKind, name = schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind}, ref.Name
	}
	mapping, err := mapper.RESTMapping(groupKind)
	if meta.IsNoMatchError(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("looking for the kind of %s: %w", owner, err)
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(mapping.GroupVersionKind)
	err = live.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: name}, object)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", owner, err)
	}
	if object.GetDeletionTimestamp() != nil {
		return 0, nil
	}
	wanted, found, _ := unstructured.NestedInt64(object.Object, "spec", "replicas")
	if !found {
		wanted = 1
	}
	return int(wanted), nil
}
