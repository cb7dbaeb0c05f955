// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"context"

	"github.com/onsi/ginkgo/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlcluster "sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/test/framework"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

type (
	ownerChecks     = map[string]func(types.NamespacedName, []metav1.OwnerReference) error
	finalizerChecks = map[string]func(types.NamespacedName) []string
)

// owners are those that our kinds have. In a topology, Cluster API makes the MaasCluster, and controls it.
func owners(topology bool) ownerChecks {
	reference := func(kind string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: kind}
	}
	machine, cluster, class := reference("Machine"), reference("Cluster"), reference("ClusterClass")
	machine.Controller = ptr.To(true)
	ofCluster := cluster
	if topology {
		ofCluster.Controller = ptr.To(true)
	}
	exactly := func(possible ...metav1.OwnerReference) func(types.NamespacedName, []metav1.OwnerReference) error {
		return func(_ types.NamespacedName, found []metav1.OwnerReference) error {
			var each [][]metav1.OwnerReference
			for _, owner := range possible {
				each = append(each, []metav1.OwnerReference{owner})
			}
			return framework.HasOneOfExactOwners(found, each...)
		}
	}
	return ownerChecks{
		"MaasMachine":         exactly(machine),
		"MaasMachineTemplate": exactly(cluster, class),
		"MaasCluster":         exactly(ofCluster),
		"MaasClusterTemplate": exactly(class),
	}
}

// finalizers are those that our kinds have.
var finalizers = finalizerChecks{
	"MaasMachine": func(types.NamespacedName) []string { return []string{infrav1.MachineFinalizer} },
	"MaasCluster": func(types.NamespacedName) []string { return []string{infrav1.ClusterFinalizer} },
}

// resilience removes owners and finalizers of all objects, and checks whether the controllers bring them back and then do
// nothing more. The checks are those of Cluster API's own suite.
func resilience(topology bool) func(framework.ClusterProxy, string, string) {
	return func(proxy framework.ClusterProxy, namespace, cluster string) {
		ctx, ofCluster := context.Background(), clusterctlcluster.FilterClusterObjectsWithNameFilter(cluster)
		checks := []ownerChecks{
			owners(topology), framework.CoreOwnerReferenceAssertion, framework.ExpOwnerReferenceAssertions, framework.KubernetesReferenceAssertions,
			framework.KubeadmBootstrapOwnerReferenceAssertions, framework.KubeadmControlPlaneOwnerReferenceAssertions(topology),
		}
		ginkgo.By("Removing owners")
		framework.ValidateOwnerReferencesResilience(ctx, proxy, namespace, cluster, ofCluster, checks...)
		ginkgo.By("Changing the API version of owners")
		framework.ValidateOwnerReferencesOnUpdate(ctx, proxy, namespace, cluster, ofCluster, checks...)
		ginkgo.By("Removing finalizers")
		core := framework.CoreFinalizersAssertionWithLegacyClusters
		if topology {
			core = framework.CoreFinalizersAssertionWithClassyClusters
		}
		framework.ValidateFinalizersResilience(ctx, proxy, namespace, cluster, ofCluster,
			finalizers, core, framework.KubeadmControlPlaneFinalizersAssertion, framework.ExpFinalizersAssertion)
		ginkgo.By("Watching for changes")
		framework.ValidateResourceVersionStable(ctx, framework.ValidateResourceVersionStableInput{
			ClusterProxy: proxy, Namespace: namespace, OwnerGraphFilterFunction: ofCluster,
			WaitToBecomeStable: here.config.GetIntervals("quick-start", "wait-resource-versions-become-stable"),
			WaitToRemainStable: here.config.GetIntervals("quick-start", "wait-resource-versions-remain-stable"),
		})
	}
}
