// SPDX-License-Identifier: Apache-2.0

package orphanaudit

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/orphans"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// ManagementID identifies this management cluster: it is the UID of its namespace kube-system, which is created with
// the cluster and never again.
func ManagementID(ctx context.Context, reader client.Reader) (string, error) {
	namespace := &corev1.Namespace{}
	if err := reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, namespace); err != nil {
		return "", fmt.Errorf("reading the UID of namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return string(namespace.UID), nil
}

// ReadClaims reads the claims on machines in Kubernetes, in one namespace or, with "", in all. Read MAAS first.
// ReadClaims reads the MaasClusters after the machines: a cluster that is being moved away is paused before the first
// of its machines is gone.
func ReadClaims(
	ctx context.Context, reader client.Reader, managementID, namespace string,
) (*orphans.Claims, []infrav1.MaasCluster, error) {
	machines, maasClusters, all := &infrav1.MaasMachineList{}, &infrav1.MaasClusterList{}, &clusterv1.ClusterList{}
	hosts := &infrav1.LXDHostList{} // After the machines: a VM that is left is recorded before its MaasMachine is gone.
	for _, list := range []client.ObjectList{machines, hosts, maasClusters, all} {
		if err := reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, nil, fmt.Errorf("reading the claims on machines in Kubernetes: %w", err)
		}
	}
	byName := map[client.ObjectKey]*clusterv1.Cluster{}
	for i := range all.Items {
		byName[client.ObjectKeyFromObject(&all.Items[i])] = &all.Items[i]
	}
	var known []orphans.Cluster
	var objects []orphans.Object
	for i := range maasClusters.Items {
		c := &maasClusters.Items[i]
		cluster := byName[client.ObjectKey{Namespace: c.Namespace, Name: clusters.NameOf(c)}]
		recorded, err := record.OfCluster(c)
		if err != nil {
			ctrl.LoggerFrom(ctx).Info("No machine of a MaasCluster counts as an orphan, because it is not known which are kept",
				"maasCluster", client.ObjectKeyFromObject(c), "error", err.Error())
		}
		known = append(known, orphans.Cluster{
			Namespace: c.Namespace, Name: c.Name, OwnerID: c.Annotations[infrav1.OwnerIDAnnotation],
			Paused: err != nil || annotations.HasPaused(c) || (cluster != nil && annotations.IsPaused(cluster, c)),
		})
		for _, kept := range recorded.Kept {
			objects = append(objects, orphans.Object{Namespace: c.Namespace, Name: kept.Machine, SystemID: kept.SystemID})
		}
	}
	for i := range hosts.Items {
		recorded, err := record.OfHost(&hosts.Items[i])
		if err != nil {
			ctrl.LoggerFrom(ctx).Info("It is not known which VMs may be left on an LXDHost; these may count as orphans",
				"lxdHost", client.ObjectKeyFromObject(&hosts.Items[i]), "error", err.Error())
		}
		for _, left := range recorded.Left {
			objects = append(objects, orphans.Object{Namespace: left.Namespace, Name: left.Machine, SystemID: left.Device})
		}
	}
	for i := range machines.Items {
		m := &machines.Items[i]
		objects = append(objects, orphans.Object{Namespace: m.Namespace, Name: m.Name, SystemID: m.Spec.SystemID})
	}
	return orphans.NewClaims(managementID, namespace, known, objects), maasClusters.Items, nil
}
