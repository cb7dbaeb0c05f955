// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// createMixed makes a cluster of another provider with workers in MAAS, plays the kubelets of these, and waits until it
// is available.
func (s *story) createMixed(ctx context.Context) error {
	ctx, cancel := s.bounded(ctx, s.createTimeout)
	defer cancel()
	s.begin = s.book.Mark()
	started := time.Now()
	if err := s.box.ApplyMixedCluster(ctx, clusterName, workers); err != nil {
		return fmt.Errorf("creating the cluster: %w", err)
	}
	joined := map[string]bool{}
	err := eventually.Wait(ctx, "the workers to be deployed", func() (done bool, status string, err error) {
		machines := &infrav1.MaasMachineList{}
		if err := s.box.Client.List(ctx, machines, client.InNamespace(clusterName.Namespace)); err != nil {
			return false, "", fmt.Errorf("listing MaasMachines: %w", err)
		}
		for _, m := range machines.Items {
			status += m.Name + ": " + sandbox.Conditions(m.Status.Conditions) + "; "
			if m.Labels[clusterv1.ClusterNameLabel] != clusterName.Name || m.Spec.ProviderID == "" || joined[m.Name] {
				continue
			}
			if err := s.box.JoinNode(ctx, clusterName, m.Status.Hostname); err != nil {
				return false, status, err
			}
			joined[m.Name] = true
		}
		return len(joined) == workers, status, nil
	})
	if err != nil {
		return err
	}
	if err := s.box.WaitAvailable(ctx, clusterName, 1+workers); err != nil {
		return err
	}
	s.came, s.up = time.Since(started), s.book.Mark()
	return nil
}
