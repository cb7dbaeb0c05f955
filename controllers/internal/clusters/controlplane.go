// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/controlplane"
	"github.com/capmaas/cluster-api-provider-maas/internal/presence"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// The kinds whose MaasMachineTemplate is known before their first machine. The provider may not read others.
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=kubeadmcontrolplanes;kthreescontrolplanes;rke2controlplanes;ck8scontrolplanes;microk8scontrolplanes,verbs=get

// ControlPlaneTemplate returns the name of the MaasMachineTemplate of the cluster's control planes: the one that the
// control plane names (live reads it), or else, if that can't be read, the one that its newest machine was made from.
// It returns "" if there is none to read.
func ControlPlaneTemplate(
	ctx context.Context, c client.Client, live client.Reader, cluster *clusterv1.Cluster,
) (string, error) {
	if !cluster.Spec.ControlPlaneRef.IsDefined() {
		return clonedTemplate(ctx, c, cluster)
	}
	owner, err := controlplane.Of(ctx, c, live, cluster)
	if err != nil && !presence.IsUnknown(err) {
		return "", err
	}
	if owner != nil {
		if name := owner.Template(); name != "" {
			return name, nil
		}
	}
	return clonedTemplate(ctx, c, cluster)
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

// Peers returns those of a cluster's machines that others of its control plane, or of its workers, are kept apart from:
// those that have a host or a zone already, but the one that is placed.
func Peers(machines []infrav1.MaasMachine, ownerID string, controlPlane bool, but string) (peers []lxd.Peer) {
	for i := range machines {
		m := &machines[i]
		if IsControlPlane(m) == controlPlane && m.Name != but && (m.Status.LXDHost != "" || m.Status.FailureDomain != "") {
			recorded, _ := record.OfMachine(m) // One that can't be read says nothing.
			peers = append(peers, lxd.Peer{VM: maas.Hostname(m.Name, ownerID), Host: m.Status.LXDHost,
				Ref: recorded.HostOf(m.Status.LXDHost), Zone: m.Status.FailureDomain})
		}
	}
	return peers
}
