// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
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
		"it has not joined":                    {},
		"it joined":                            {node: "metal-a", want: "metal-a", patched: providerID},
		"it joined under its full name":        {node: "metal-a.maas.sim", want: "metal-a.maas.sim", patched: providerID},
		"it has it, after a move":              {node: "metal-a", providerID: providerID, want: "metal-a", patched: providerID},
		"it has one from another provider":     {node: "metal-a", providerID: "aws:///z/i-1", patched: "aws:///z/i-1"},
		"Cluster API found it by another name": {node: "other", providerID: providerID, ref: "other", want: "other", patched: providerID},
		"Cluster API found it":                 {node: "metal-a", providerID: providerID, ref: "metal-a", want: "metal-a", patched: providerID},
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
				maas:    &maas.Machine{Hostname: "metal-a", FQDN: "metal-a.maas.sim", Zone: maas.Ref{Name: "zone-a"}},
			}
			recorder := events.NewFakeRecorder(10)
			r := &Reconciler{Base: reconciler.Base{Recorder: recorder}, ClusterCache: clustercache.NewFakeClusterCache(workload, client.ObjectKeyFromObject(cluster), NodeWatch)}
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
			ours := tc.patched == providerID
			if (node.Labels[corev1.LabelTopologyZone] == "zone-a") != ours {
				t.Errorf("the Node is labelled %v; it is ours: %t", node.Labels, ours)
			}
			if got := len(recorder.Events); (got == 0) != ours {
				t.Errorf("there are %d events; the Node is ours: %t", got, ours)
			}
		})
	}
}

func TestLabels(t *testing.T) {
	for name, tc := range map[string]struct {
		machine maas.Machine
		host    string
		before  map[string]string
		want    map[string]string
	}{
		"bare metal": {
			machine: maas.Machine{Zone: maas.Ref{Name: "zone-a"}, Pool: maas.Ref{Name: "metal"}},
			want:    map[string]string{corev1.LabelTopologyZone: "zone-a", infrav1.ResourcePoolLabel: "metal"},
		},
		"a VM": {
			machine: maas.Machine{Zone: maas.Ref{Name: "zone-a"}, Pool: maas.Ref{Name: "vms"}}, host: "lxd-a",
			want: map[string]string{corev1.LabelTopologyZone: "zone-a", infrav1.ResourcePoolLabel: "vms", infrav1.HostLabel: "lxd-a"},
		},
		"names that are no values": {
			machine: maas.Machine{Zone: maas.Ref{Name: "zone a"}, Pool: maas.Ref{Name: "metal"}},
			want:    map[string]string{infrav1.ResourcePoolLabel: "metal"},
		},
		"somebody else's": {
			machine: maas.Machine{Zone: maas.Ref{Name: "zone-a"}, Pool: maas.Ref{Name: "metal"}},
			before:  map[string]string{corev1.LabelTopologyZone: "hall-1", "a": "b"},
			want:    map[string]string{corev1.LabelTopologyZone: "hall-1", "a": "b", infrav1.ResourcePoolLabel: "metal"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: tc.before}}
			m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(tc.before)}, Status: infrav1.MaasMachineStatus{LXDHost: tc.host}}
			label(node, &life{Machine: &scope.Machine{MaasMachine: m}, maas: &tc.machine})
			for what, got := range map[string]map[string]string{"Node": node.Labels, "MaasMachine": m.Labels} {
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("labels of the %s (-want +got):\n%s", what, diff)
				}
			}
		})
	}
}
