// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// A Cluster of Cluster API's own provider, with a KubeadmControlPlane of its DevMachines, has workers in MAAS: they get
// user data, Nodes and provider IDs, and go with the cluster, and the MaasCluster after them. The test plays their
// kubelets alone.
func TestMixedCluster(t *testing.T) {
	require(t, sandbox.Dev)
	l := life.Begin(t, box, "mixed")
	if err := box.ApplyMixedCluster(l.Context(), l.Key, 2); err != nil {
		t.Fatal(err)
	}
	l.Wait("the workers to be deployed", func() (bool, string, error) {
		_, workers := l.MaasMachines()
		running, text := 0, ""
		for _, m := range workers {
			text += m.Name + ": " + sandbox.Conditions(m.Status.Conditions) + "; "
			if m.Status.Ready || m.Spec.ProviderID != "" {
				running++
			}
		}
		return running == 2, text, nil
	})
	workload, err := box.WorkloadClient(l.Context(), l.Key)
	if err != nil {
		t.Fatal(err)
	}
	_, workers := l.MaasMachines()
	for _, m := range workers {
		if err := box.JoinNode(l.Context(), l.Key, m.Status.Hostname); err != nil {
			t.Fatal(err)
		}
	}
	if err := box.WaitAvailable(l.Within(5*time.Minute), l.Key, 3); err != nil {
		t.Fatal(err)
	}
	for _, m := range workers {
		node := &corev1.Node{}
		if err := workload.Get(l.Context(), client.ObjectKey{Name: m.Status.Hostname}, node); err != nil {
			t.Fatal(err)
		}
		if node.Spec.ProviderID != m.Spec.ProviderID || node.Spec.ProviderID == "" {
			t.Errorf("Node %s has the provider ID %q, want %q", node.Name, node.Spec.ProviderID, m.Spec.ProviderID)
		}
	}
	l.Delete()
	maasCluster := client.ObjectKey{Namespace: l.Key.Namespace, Name: l.Key.Name + "-maas"}
	l.Wait("the MaasCluster to be collected", func() (bool, string, error) {
		c := &infrav1.MaasCluster{}
		err := box.Client.Get(l.Context(), maasCluster, c)
		return apierrors.IsNotFound(err), sandbox.Conditions(c.Status.Conditions), client.IgnoreNotFound(err)
	})
}
