// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"context"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	"sigs.k8s.io/cluster-api/test/framework"
)

// networkVariable names a file with the objects of a pod network, for clusters of real machines. In the sandbox Nodes
// are ready without.
const networkVariable = "CAPI_CONFORMANCE_CNI"

// addNetwork has each cluster of a namespace get the pod network.
func (p *place) addNetwork(proxy framework.ClusterProxy, namespace string) {
	file := os.Getenv(networkVariable)
	if file == "" {
		return
	}
	text, err := os.ReadFile(file)
	succeeds(err)
	const name = "pod-network"
	ctx, c := context.Background(), proxy.GetClient()
	succeeds(c.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{name + ".yaml": string(text)},
	}))
	// An empty selector would match no cluster.
	all := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "without-" + name, Operator: metav1.LabelSelectorOpDoesNotExist}}}
	succeeds(c.Create(ctx, &addonsv1.ClusterResourceSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: addonsv1.ClusterResourceSetSpec{
			ClusterSelector: all, Strategy: string(addonsv1.ClusterResourceSetStrategyApplyOnce),
			Resources: []addonsv1.ResourceRef{{Kind: string(addonsv1.ConfigMapClusterResourceSetResourceKind), Name: name}},
		},
	}))
}
