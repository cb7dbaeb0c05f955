// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

// WaitAvailable waits until a cluster is Available, with as many running machines as were asked for.
func (s *Sandbox) WaitAvailable(ctx context.Context, name client.ObjectKey, machines int) error {
	return eventually.Wait(ctx, name.String()+" to be available", func() (bool, string, error) {
		cluster := &clusterv1.Cluster{}
		if err := s.Client.Get(ctx, name, cluster); err != nil {
			return false, "", fmt.Errorf("reading the cluster: %w", err)
		}
		list := &clusterv1.MachineList{}
		if err := s.Client.List(ctx, list, client.InNamespace(name.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: name.Name}); err != nil {
			return false, "", fmt.Errorf("listing machines: %w", err)
		}
		running := 0
		for i := range list.Items {
			if conditions.IsTrue(&list.Items[i], clusterv1.MachineReadyCondition) {
				running++
			}
		}
		status := fmt.Sprintf("%d machines, %d ready; %s", len(list.Items), running, Conditions(cluster.Status.Conditions))
		done := conditions.IsTrue(cluster, clusterv1.ClusterAvailableCondition) && running == machines && len(list.Items) == machines
		return done, status, nil
	})
}

// WaitUpgraded waits until a cluster is Available, with as many running machines, whose kubelets all have a version.
func (s *Sandbox) WaitUpgraded(ctx context.Context, name client.ObjectKey, machines int, version string) error {
	err := eventually.Wait(ctx, fmt.Sprintf("%s to run %s", name, version), func() (bool, string, error) {
		list := &clusterv1.MachineList{}
		if err := s.Client.List(ctx, list, client.InNamespace(name.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: name.Name}); err != nil {
			return false, "", fmt.Errorf("listing machines: %w", err)
		}
		upgraded := 0
		for i := range list.Items {
			if node := list.Items[i].Status.NodeInfo; node != nil && node.KubeletVersion == version && conditions.IsTrue(&list.Items[i], clusterv1.MachineReadyCondition) {
				upgraded++
			}
		}
		return upgraded == machines && len(list.Items) == machines, fmt.Sprintf("%d machines, %d upgraded", len(list.Items), upgraded), nil
	})
	if err != nil {
		return err
	}
	return s.WaitAvailable(ctx, name, machines)
}

// whenTrue are Cluster API's conditions that are worth reporting when they are True.
var whenTrue = []string{
	clusterv1.DeletingCondition, clusterv1.PausedCondition, clusterv1.RemediatingCondition, clusterv1.ScalingUpCondition, clusterv1.ScalingDownCondition,
	clusterv1.RollingOutCondition, clusterv1.MachineUpdatingCondition,
}

// Conditions returns, in one line, the conditions that are not in their final state, with their reasons.
func Conditions(all []metav1.Condition) string {
	var lines []string
	for _, condition := range all {
		want := metav1.ConditionTrue
		if slices.Contains(whenTrue, condition.Type) {
			want = metav1.ConditionFalse
		}
		if condition.Status != want {
			lines = append(lines, fmt.Sprintf("%s=%s (%s: %s)", condition.Type, condition.Status, condition.Reason, strings.ReplaceAll(condition.Message, "\n", " ")))
		}
	}
	return strings.Join(lines, "; ")
}
