// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// registersNode plays a kubelet: the workload cluster gets the machine's Node.
func (w *world) registersNode(m *infrav1.MaasMachine, change ...func(*corev1.Node)) *corev1.Node {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Status.Hostname, CreationTimestamp: metav1.Now()}}
	for _, c := range change {
		c(node)
	}
	w.must(w.workload.Create(w.t.Context(), node))
	return node
}

// hasIdentity waits until a Node has the machine's provider ID and labels.
func (w *world) hasIdentity(m *infrav1.MaasMachine, node *corev1.Node) {
	w.t.Helper()
	w.poke(m)
	w.eventuallyWorkload(node, func() bool {
		return node.Spec.ProviderID == m.Spec.ProviderID && node.Labels[corev1.LabelTopologyZone] == m.Status.FailureDomain
	})
	w.eventually(m, "known by its Node", func() bool {
		return m.Status.NodeName == node.Name && conditions.Get(m, infrav1.NodeJoinedCondition) == nil &&
			conditions.IsTrue(m, infrav1.ReadyCondition)
	})
}

// hasNoNode waits until a machine says that it has no Node of its own, and why; it runs all the same.
func (w *world) hasNoNode(m *infrav1.MaasMachine, reason string, words ...string) {
	w.t.Helper()
	w.poke(m)
	w.eventually(m, "without a Node of its own", func() bool {
		c := conditions.Get(m, infrav1.NodeJoinedCondition)
		for _, word := range words {
			if c == nil || !strings.Contains(c.Message, word) {
				return false
			}
		}
		return c.Reason == reason && conditions.GetReason(m, infrav1.ReadyCondition) == reason && runs(m)
	})
}

// knownToClusterAPI plays Cluster API, which finds a Node by its provider ID.
func (w *world) knownToClusterAPI(m *infrav1.MaasMachine, node *corev1.Node) {
	w.t.Helper()
	machine := w.machineOf(m.Name)
	w.patchStatus(machine, func() { machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: node.Name} })
}

// A Node has no identity when its kubelet registers it again: Cluster API would never find it.
func TestANodeThatIsRegisteredAgainGetsItsIdentityAgain(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	m := w.deployedMachine("md-0", false, infrav1.MaasMachineSpec{})
	node := w.registersNode(m)
	w.hasIdentity(m, node)
	w.knownToClusterAPI(m, node)

	for range 2 {
		w.must(w.workload.Delete(t.Context(), node))
		w.hasNoNode(m, infrav1.NodeGoneReason, node.Name)
		node = w.registersNode(m)
		w.hasIdentity(m, node)
	}
	t.Run("and what it lost of it", func(t *testing.T) {
		w.must(w.workload.Get(t.Context(), client.ObjectKeyFromObject(node), node))
		node.Labels = nil
		w.must(w.workload.Update(t.Context(), node))
		w.hasIdentity(m, node)
	})
}

// The Node of the server's former life has its name and its provider ID, and may stay as long as a finalizer holds it.
func TestTheNodeOfAServersFormerLifeIsNotItsNode(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, func(w *world) { w.region = strings.Split(region, "  - {names: [metal-b]")[0] })
	first := w.deployedMachine("md-0", false, infrav1.MaasMachineSpec{})
	node := w.registersNode(first, func(n *corev1.Node) {
		n.Finalizers = []string{"example.com/holds"}
		n.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
		n.Status.NodeInfo.BootID = "boot-1"
	})
	w.changeRecord(first, func(d *record.MachineData) {
		d.DeployedSince = ptr.To(metav1.NewTime(time.Now().Add(-2 * time.Hour)))
	})
	w.hasIdentity(first, node)
	w.delete(first)

	second := w.deployedMachine("md-1", false, infrav1.MaasMachineSpec{})
	if second.Spec.ProviderID != first.Spec.ProviderID {
		t.Fatalf("it is another server: %s, not %s", second.Spec.ProviderID, first.Spec.ProviderID)
	}
	w.hasNoNode(second, infrav1.FormerNodeReason, node.Name, "older")
	w.must(w.workload.Delete(t.Context(), node))
	w.hasNoNode(second, infrav1.FormerNodeReason, node.Name, "example.com/holds")
	if second.Status.NodeName != "" {
		t.Errorf("it is known by the Node %s of its former life", second.Status.NodeName)
	}
	w.must(w.workload.Get(t.Context(), client.ObjectKeyFromObject(node), node))
	node.Finalizers = nil
	w.must(w.workload.Update(t.Context(), node))
	w.hasIdentity(second, w.registersNode(second))
}

// A kubelet that finds a Node with its name goes on with it.
func TestANodeThatTheKubeletTookOverIsItsNode(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, func(w *world) { w.region = strings.Split(region, "  - {names: [metal-b]")[0] })
	first := w.deployedMachine("md-0", false, infrav1.MaasMachineSpec{})
	node := w.registersNode(first, func(n *corev1.Node) {
		n.CreationTimestamp, n.Spec.ProviderID = metav1.NewTime(time.Now().Add(-time.Hour)), first.Spec.ProviderID
		n.Status.NodeInfo.BootID = "boot-1"
	})
	w.delete(first)
	second := w.deployedMachine("md-1", false, infrav1.MaasMachineSpec{})
	w.hasNoNode(second, infrav1.FormerNodeReason, "older")

	w.must(w.workload.Get(t.Context(), client.ObjectKeyFromObject(node), node))
	node.Status.NodeInfo.BootID = "boot-2"
	w.must(w.workload.Status().Update(t.Context(), node))
	w.hasIdentity(second, node)
}

// Cluster API deletes a Node with its Machine if it finds it, and it finds it by its provider ID.
func TestANodeThatJoinsAMachineOnItsWayDownCanBeFound(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	for name, spec := range map[string]infrav1.MaasMachineSpec{"metal": {}, "vm": vmWith(infrav1.LXDMachineConfig{})} {
		m := w.deployedMachine(name, false, spec)
		w.must(w.client.Get(t.Context(), client.ObjectKeyFromObject(m), m))
		node := w.registersNode(m)
		w.delete(m)
		w.must(w.workload.Get(t.Context(), client.ObjectKeyFromObject(node), node))
		if node.Spec.ProviderID != m.Spec.ProviderID {
			t.Errorf("%s: the Node has the provider ID %q, want %q", name, node.Spec.ProviderID, m.Spec.ProviderID)
		}
	}
}
