// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/klog/v2"
)

// bind is the scheduler's part that concerns this node: a pod that may run here does. Where it may run on several
// nodes, the first to bind it has it, for the API server refuses the others.
func (k *Kubelet) bind(ctx context.Context, pod *corev1.Pod) error {
	node, err := k.nodes.Get(k.options.NodeName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the node: %w", err)
	}
	if fits, err := fits(pod, node); !fits || err != nil {
		return err
	}
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node.Name},
	}
	err = k.client.CoreV1().Pods(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // deleted or bound meanwhile
	}
	return err
}

// fits reports whether a pod may run on a node according to selectors, required node affinity and taints.
func fits(pod *corev1.Pod, node *corev1.Node) (bool, error) {
	if !tolerated(pod.Spec.Tolerations, node) || !labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(labels.Set(node.Labels)) {
		return false, nil
	}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true, nil
	}
	var failures []error
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		matches, err := termMatches(term, node)
		if matches {
			return true, nil
		}
		failures = append(failures, err)
	}
	return false, errors.Join(failures...)
}

// tolerated reports whether the tolerations cover all taints that keep pods away.
func tolerated(tolerations []corev1.Toleration, node *corev1.Node) bool {
	taints := slices.Clone(node.Spec.Taints)
	if node.Spec.Unschedulable {
		taints = append(taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	for _, taint := range taints {
		if taint.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		if !slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Background(), &taint, false) }) {
			return false
		}
	}
	return true
}

var selectionOperators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn:           selection.In,
	corev1.NodeSelectorOpNotIn:        selection.NotIn,
	corev1.NodeSelectorOpExists:       selection.Exists,
	corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt:           selection.GreaterThan,
	corev1.NodeSelectorOpLt:           selection.LessThan,
}

// termMatches reports whether a node is all that a term asks for. A term that asks for nothing matches nothing.
func termMatches(term corev1.NodeSelectorTerm, node *corev1.Node) (bool, error) {
	for _, asked := range term.MatchExpressions {
		requirement, err := labels.NewRequirement(asked.Key, selectionOperators[asked.Operator], asked.Values)
		if err != nil {
			return false, fmt.Errorf("reading the node affinity: %w", err)
		}
		if !requirement.Matches(labels.Set(node.Labels)) {
			return false, nil
		}
	}
	for _, asked := range term.MatchFields { // the API server accepts only the key metadata.name, and only these operators
		if slices.Contains(asked.Values, node.Name) != (asked.Operator == corev1.NodeSelectorOpIn) {
			return false, nil
		}
	}
	return len(term.MatchExpressions)+len(term.MatchFields) > 0, nil
}
