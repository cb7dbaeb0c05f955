// SPDX-License-Identifier: Apache-2.0

package maascluster

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// The API server asks for delete when an owner is added (the admission plugin OwnerReferencesPermissionEnforcement).
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=maasclusters,verbs=delete

// join makes the Cluster that a MaasCluster names in spec.clusterName its owner, as Cluster API does with a Cluster's
// infrastructure: `clusterctl move` takes it along, and it goes when the Cluster is gone. A Cluster that was made anew
// does not get what the former one has in MAAS.
func (r *Reconciler) join(ctx context.Context, maasCluster *infrav1.MaasCluster) error {
	name := maasCluster.Spec.ClusterName
	cluster, err := util.GetClusterByName(ctx, r.Client, maasCluster.Namespace, name)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the Cluster of spec.clusterName: %w", err)
	}
	why := ""
	switch {
	case annotations.HasPaused(maasCluster), err == nil && annotations.IsPaused(cluster, maasCluster):
		return nil
	case apierrors.IsNotFound(err):
		why = fmt.Sprintf("spec.clusterName is %s, and there is no Cluster of this name in namespace %s: make it, or delete "+
			"this MaasCluster", name, maasCluster.Namespace)
	case hadAnother(maasCluster):
		why = fmt.Sprintf("it belongs to a former Cluster %s: delete it and make it anew; or, if it is the same Cluster, "+
			"restored, set its uid %s in metadata.ownerReferences", name, cluster.UID)
	}
	if why != "" {
		return client.IgnoreNotFound(objects.PatchConditions(ctx, r.Client, maasCluster, func() {
			report.SetFalse(maasCluster, infrav1.ReadyCondition, infrav1.WaitingForOwnerReason, "%s", why)
		}, infrav1.ReadyCondition))
	}
	return client.IgnoreNotFound(objects.PatchLocked(ctx, r.Client, maasCluster, func(c *infrav1.MaasCluster) {
		c.OwnerReferences = append(c.OwnerReferences, metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(),
			Kind: clusters.ClusterKind.Kind, Name: cluster.Name, UID: cluster.UID})
		metav1.SetMetaDataLabel(&c.ObjectMeta, clusterv1.ClusterNameLabel, cluster.Name)
	}))
}

// hadAnother reports whether a MaasCluster that its Cluster does not own was another one's: that has not left without
// a trace. What something else manages may have got its owner id before.
func hadAnother(c *infrav1.MaasCluster) bool {
	owned := slices.ContainsFunc(clusters.OwnersOf(c, clusters.ClusterKind),
		func(ref metav1.OwnerReference) bool { return ref.Name == c.Spec.ClusterName })
	return owned || (c.Annotations[infrav1.OwnerIDAnnotation] != "" && !annotations.IsExternallyManaged(c))
}

// reconcileJoined leaves the endpoint to the Cluster's infrastructure, which the MaasCluster must not be.
func (r *Reconciler) reconcileJoined(s *scope.Cluster) error {
	if key, is := clusters.MaasClusterKey(s.Cluster); is && key.Name == s.MaasCluster.Name {
		report.SetFalse(s.MaasCluster, infrav1.DNSReadyCondition, infrav1.ExternalEndpointReason,
			"spec.infrastructureRef of Cluster %s names it, and it has spec.clusterName, with which it provides no API "+
				"endpoint: replace it by a MaasCluster without spec.clusterName", s.Cluster.Name)
		return nil
	}
	r.provisioned(s.MaasCluster)
	report.SetTrue(s.MaasCluster, infrav1.DNSReadyCondition, infrav1.ExternalEndpointReason)
	return nil
}
