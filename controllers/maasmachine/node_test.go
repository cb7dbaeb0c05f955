// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// Cluster API may have read the Node before it had the provider ID. It reads it again when the MaasMachine changes.
func TestTheStatusNamesTheNodeWithTheProviderID(t *testing.T) {
	const providerID = "maas://zone-a/abc123"
	for name, tc := range map[string]struct {
		node, providerID string // "" is none
		ref              string // the Machine's
		want, patched    string
	}{
		"it has not joined":                       {},
		"it joined":                               {node: "metal-a", want: "metal-a", patched: providerID},
		"it joined under its full name":           {node: "metal-a.maas.sim", want: "metal-a.maas.sim", patched: providerID},
		"it has it, after a move":                 {node: "metal-a", providerID: providerID, want: "metal-a", patched: providerID},
		"it has one from another provider":        {node: "metal-a", providerID: "aws:///z/i-1", patched: "aws:///z/i-1"},
		"Cluster API found it by another name":    {node: "other", providerID: providerID, ref: "other", want: "other", patched: providerID},
		"Cluster API found it: it is not changed": {node: "metal-a", ref: "metal-a", want: "metal-a"},
	} {
		t.Run(name, func(t *testing.T) {
			workload := fake.NewClientBuilder().Build()
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: tc.node}, Spec: corev1.NodeSpec{ProviderID: tc.providerID}}
			if tc.node != "" {
				if err := workload.Create(t.Context(), node); err != nil {
					t.Fatal(err)
				}
			}
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Namespace: "ns"}}
			machine := &clusterv1.Machine{}
			machine.Status.NodeRef.Name = tc.ref
			m := &infrav1.MaasMachine{Spec: infrav1.MaasMachineSpec{ProviderID: providerID}}
			l := &life{
				Machine: &scope.Machine{Cluster: &scope.Cluster{Cluster: cluster}, Machine: machine, MaasMachine: m},
				maas:    &maas.Machine{Hostname: "metal-a", FQDN: "metal-a.maas.sim"},
			}
			r := &Reconciler{ClusterCache: clustercache.NewFakeClusterCache(workload, client.ObjectKeyFromObject(cluster), NodeWatch)}
			if _, err := r.node(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			if m.Status.NodeName != tc.want {
				t.Errorf("the status names the Node %q, want %q", m.Status.NodeName, tc.want)
			}
			if tc.node == "" {
				return
			}
			if err := workload.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
				t.Fatal(err)
			}
			if node.Spec.ProviderID != tc.patched {
				t.Errorf("the Node's provider ID is %q, want %q", node.Spec.ProviderID, tc.patched)
			}
		})
	}
}
