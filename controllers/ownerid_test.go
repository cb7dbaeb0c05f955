// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// copyInto makes another namespace, for copies of the world's objects.
func (w *world) copyInto() *world {
	w.t.Helper()
	other := *w
	other.namespace = w.second
	other.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other.namespace}})
	other.createCredentials()
	return &other
}

// Manifests of a live cluster, or its backup, are applied in another namespace, and deleted there when that turns out
// to be a mistake.
func TestACopyOfAClusterTakesNothingFromIt(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t, func(w *world) { w.second = w.namespace + "-copy" })
	m := w.deployedMachine("cp-0", true, vm)
	w.eventually(m, "in the endpoint", func() bool { return m.Status.DNSAttached })
	before := string(w.maas.State())
	other := w.copyInto()
	second := other.newCluster(func(c *infrav1.MaasCluster) {
		c.Annotations = map[string]string{infrav1.OwnerIDAnnotation: cluster.Annotations[infrav1.OwnerIDAnnotation]}
		c.Spec.ControlPlaneEndpoint = cluster.Spec.ControlPlaneEndpoint
	})
	other.eventually(second, "refused", func() bool {
		return conditions.GetReason(second, infrav1.FailureDomainsReadyCondition) == infrav1.OwnerIDTakenReason
	})
	if message := conditions.GetMessage(second, infrav1.ReadyCondition); !strings.Contains(message, client.ObjectKeyFromObject(cluster).String()) {
		t.Errorf("Ready is %q, want whose owner id it is", message)
	}
	copied := other.newMachine("cp-0", true, infrav1.MaasMachineSpec{
		ProvisioningMode: vm.ProvisioningMode, LXDConfig: vm.LXDConfig, SystemID: m.Spec.SystemID,
	})
	other.eventually(copied, "left alone", func() bool {
		return conditions.GetReason(copied, infrav1.MachineDeployedCondition) == infrav1.WaitingForClusterInfrastructureReason
	})
	// Also one that was provisioned in its backup.
	restored := copied.DeepCopy()
	restored.Spec.ProviderID = m.Spec.ProviderID
	w.must(w.client.Patch(t.Context(), restored, client.MergeFrom(copied)))
	other.eventually(copied, "not known to be deployed", func() bool {
		return conditions.GetReason(copied, infrav1.MachineDeployedCondition) == infrav1.OwnerIDTakenReason
	})
	other.delete(copied)
	other.delete(second)
	if after := string(w.maas.State()); after != before {
		t.Errorf("MAAS was\n%s\nand is\n%s", before, after)
	}
	w.delete(m)
	w.delete(cluster)
	w.noVMs()
}

// Nor does it say that it gives back a server that the original keeps.
func TestACopyOfAClusterKeepsNoServer(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t, func(w *world) { w.second, w.region = w.namespace+"-copy", oneServer })
	_, id := w.keepsServer(infrav1.MaasMachineSpec{})
	w.waits(cluster, id)
	before := string(w.maas.State())
	other := w.copyInto()
	second := other.newCluster(func(c *infrav1.MaasCluster) {
		c.Annotations = map[string]string{}
		for _, key := range []string{infrav1.OwnerIDAnnotation, infrav1.MAASAnnotation, infrav1.RecordAnnotation} {
			c.Annotations[key] = cluster.Annotations[key]
		}
		c.Spec.ControlPlaneEndpoint = cluster.Spec.ControlPlaneEndpoint
	})
	other.await("the copy keeps none", second, func(context.Context) bool { return other.keptIn(second) == 0 })
	other.delete(second)
	list := &corev1.EventList{}
	w.must(w.client.List(t.Context(), list, client.InNamespace(other.namespace)))
	for _, e := range list.Items {
		if e.Reason == "KeptMachineGivenBack" {
			t.Errorf("the copy says: %s", e.Message)
		}
	}
	w.waits(cluster, id)
	if after := string(w.maas.State()); after != before {
		t.Errorf("MAAS was\n%s\nand is\n%s", before, after)
	}
	w.deleteCluster(cluster)
}

// When the original is gone, a copy restored elsewhere takes its place.
func TestARestoredClusterTakesOverWhenTheOriginalIsGone(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t, func(w *world) { w.second = w.namespace + "-copy" })
	other := w.copyInto()
	second := other.newCluster(func(c *infrav1.MaasCluster) {
		c.Annotations = map[string]string{infrav1.OwnerIDAnnotation: cluster.Annotations[infrav1.OwnerIDAnnotation]}
	})
	other.eventually(second, "refused", func() bool {
		return conditions.GetReason(second, infrav1.FailureDomainsReadyCondition) == infrav1.OwnerIDTakenReason
	})
	w.delete(cluster)
	// This triggers a reconcile at once; its retry is due within a minute.
	w.patch(second, func() { second.Labels["woken"] = "" })
	other.provisioned(second)
	other.delete(second)
}
