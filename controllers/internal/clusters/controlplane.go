// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// The kinds whose MaasMachineTemplate is known before their first machine. The provider may not read others.
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=kubeadmcontrolplanes;kthreescontrolplanes;rke2controlplanes;ck8scontrolplanes;microk8scontrolplanes,verbs=get

// ControlPlaneTemplate returns the name of the MaasMachineTemplate of the cluster's control planes: the one that the
// control plane names (live reads it), or else the one that its newest machine was made from. It returns "" if there is
// none to read.
func ControlPlaneTemplate(
	ctx context.Context, c client.Client, live client.Reader, cluster *clusterv1.Cluster,
) (string, error) {
	name, err := namedTemplate(ctx, c.RESTMapper(), live, cluster)
	if err != nil || name != "" {
		return name, err
	}
	return clonedTemplate(ctx, c, cluster)
}

func namedTemplate(
	ctx context.Context, mapper meta.RESTMapper, reader client.Reader, cluster *clusterv1.Cluster,
) (string, error) {
	ref := cluster.Spec.ControlPlaneRef
	if !ref.IsDefined() {
		return "", nil
	}
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind})
	if meta.IsNoMatchError(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("looking for the kind of the control plane: %w", err)
	}
	controlPlane := &unstructured.Unstructured{}
	controlPlane.SetGroupVersionKind(mapping.GroupVersionKind)
	err = reader.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}, controlPlane)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the control plane: %w", err)
	}
	return InfrastructureTemplate(controlPlane), nil
}

// clonedTemplate returns what Cluster API noted on the newest control-plane machine, or "".
func clonedTemplate(ctx context.Context, c client.Client, cluster *clusterv1.Cluster) (string, error) {
	machines, err := Machines(ctx, c, cluster.Namespace, cluster.Name)
	if err != nil {
		return "", err
	}
	name, newest := "", time.Time{}
	for i := range machines {
		m := &machines[i]
		from := m.Annotations[clusterv1.TemplateClonedFromNameAnnotation]
		if from != "" && IsControlPlane(m) && m.CreationTimestamp.After(newest) {
			name, newest = from, m.CreationTimestamp.Time
		}
	}
	return name, nil
}

// InfrastructureTemplate returns the name of the MaasMachineTemplate that a control plane uses, or "": where Cluster
// API's contract has it, in either version, and where providers have it that are older than the contract.
func InfrastructureTemplate(controlPlane *unstructured.Unstructured) string {
	for _, path := range [][]string{
		{"spec", "machineTemplate", "spec", "infrastructureRef"}, {"spec", "machineTemplate", "infrastructureRef"},
		{"spec", "machineTemplate", "infrastructureTemplate"}, {"spec", "infrastructureTemplate"},
		{"spec", "infrastructureRef"},
	} {
		ref, _, _ := unstructured.NestedStringMap(controlPlane.Object, path...)
		if name := MachineTemplate(ref); name != "" {
			return name
		}
	}
	return ""
}

// Peers returns the VMs of the cluster's control planes, or of its workers, that are on a host already.
func Peers(ctx context.Context, c client.Client, s *scope.Cluster, controlPlanes bool) ([]lxd.Peer, error) {
	machines, err := Machines(ctx, c, s.MaasCluster.Namespace, s.Cluster.Name)
	if err != nil {
		return nil, err
	}
	var peers []lxd.Peer
	for i := range machines {
		if m := &machines[i]; IsControlPlane(m) == controlPlanes && m.Status.LXDHost != "" {
			peers = append(peers, lxd.Peer{VM: maas.Hostname(m.Name, s.OwnerID()), Host: m.Status.LXDHost,
				Zone: m.Status.FailureDomain})
		}
	}
	return peers, nil
}
