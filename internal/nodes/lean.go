// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// Labels are the provider's, of which it sets those that a machine has.
var Labels = []string{corev1.LabelTopologyZone, infrav1.ResourcePoolLabel, infrav1.HostLabel}

// What else is kept of a Node's annotations and conditions.
var (
	annotations = []string{infrav1.LXDKeysAnnotation}
	conditions  = []corev1.NodeConditionType{corev1.NodeReady, infrav1.LXDHostReadyNodeCondition}
)

// lean returns what is read of a Node: some hundred bytes of some ten thousand. A patch that is made of it changes
// nothing else.
func lean(node *corev1.Node) *corev1.Node {
	kept := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion,
			CreationTimestamp: node.CreationTimestamp, DeletionTimestamp: node.DeletionTimestamp,
			Finalizers: node.Finalizers,
			Labels:     those(node.Labels, Labels), Annotations: those(node.Annotations, annotations),
		},
		Spec: corev1.NodeSpec{ProviderID: node.Spec.ProviderID},
	}
	kept.Status.NodeInfo.BootID = node.Status.NodeInfo.BootID
	for _, condition := range node.Status.Conditions {
		if slices.Contains(conditions, condition.Type) {
			kept.Status.Conditions = append(kept.Status.Conditions, condition)
		}
	}
	return kept
}

// those returns the values that have one of the keys.
func those(values map[string]string, keys []string) map[string]string {
	var kept map[string]string
	for _, key := range keys {
		value, has := values[key]
		if !has {
			continue
		}
		if kept == nil {
			kept = map[string]string{}
		}
		kept[key] = value
	}
	return kept
}
