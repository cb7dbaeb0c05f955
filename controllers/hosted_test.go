// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// withoutDomain makes a MaasCluster whose endpoint MAAS has nothing to do with.
func withoutDomain(c *infrav1.MaasCluster) { c.Spec.DNSDomain = "" }

// The provider of a hosted control plane sets the Cluster's endpoint when its load balancer has an address. The
// MaasCluster waits for that, takes it, and touches no DNS.
func TestAnEndpointOfTheControlPlaneProvider(t *testing.T) {
	t.Parallel()
	for name, changes := range map[string][]func(*infrav1.MaasCluster){
		"the annotation":                    {annotated},
		"the annotation, and no domain":     {annotated, withoutDomain},
		"no domain":                         {withoutDomain},
		"the annotation, and a port before": {annotated, func(c *infrav1.MaasCluster) { c.Spec.ControlPlaneEndpoint.Port = 6443 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			before := w.maas.State()
			cluster := w.newCluster(changes...)
			w.eventually(cluster, "waiting for the endpoint", func() bool {
				return conditions.IsFalse(cluster, infrav1.DNSReadyCondition) &&
					conditions.GetReason(cluster, infrav1.DNSReadyCondition) == infrav1.ExternalEndpointReason
			})
			w.stored(cluster)
			if ptr.Deref(cluster.Status.Initialization.Provisioned, false) {
				t.Error("it is provisioned without an endpoint")
			}
			for _, word := range []string{"spec.controlPlaneEndpoint", "Cluster " + clusterName} {
				if message := conditions.GetMessage(cluster, infrav1.DNSReadyCondition); !strings.Contains(message, word) {
					t.Errorf("the message %q does not name %s", message, word)
				}
			}
			w.patchCluster(map[string]any{"controlPlaneEndpoint": map[string]any{"host": "192.0.2.10", "port": 30443}})
			w.provisioned(cluster)
			if diff := cmp.Diff(infrav1.APIEndpoint{Host: "192.0.2.10", Port: 30443}, cluster.Spec.ControlPlaneEndpoint); diff != "" {
				t.Errorf("the endpoint differs (-want +got):\n%s", diff)
			}
			w.eventually(cluster, "ready", func() bool { return cluster.Status.Ready })
			w.unchanged(before)
			w.deployedMachine("worker", false, infrav1.MaasMachineSpec{})
			if n := w.recordWrites(); n != 0 {
				t.Errorf("MAAS's DNS was written %d times", n)
			}
		})
	}
}

// infrastructure makes the Cluster name an object of another kind, or of another group, that has the MaasCluster's name.
func (w *world) infrastructure(group, kind string) {
	w.t.Helper()
	w.patchCluster(map[string]any{"infrastructureRef": map[string]any{"apiGroup": group, "kind": kind, "name": clusterName}})
}

// A MaasCluster counts for a Cluster only if the Cluster names it, by kind and group: another provider's cluster may have
// an object of the same name.
func TestAMaasClusterThatTheClusterDoesNotName(t *testing.T) {
	t.Parallel()
	for name, ref := range map[string][2]string{
		"another kind":  {infrav1.GroupVersion.Group, "DockerCluster"},
		"another group": {"infrastructure.example.com", "MaasCluster"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := clusterWorld(t)
			w.infrastructure(ref[0], ref[1])
			before := w.maas.State()
			m := w.newMachine("m", false, infrav1.MaasMachineSpec{})
			w.refused(m, infrav1.MachineDeployedCondition, infrav1.WaitingForClusterInfrastructureReason)
			for _, word := range []string{"infrastructureRef", ref[0], ref[1]} {
				if message := conditions.GetMessage(m, infrav1.MachineDeployedCondition); !strings.Contains(message, word) {
					t.Errorf("the message %q does not name %s", message, word)
				}
			}
			w.unchanged(before)
			w.delete(m)
		})
	}
}

// A machine whose Cluster names another provider's object by now is not given up: nothing says whose credentials are right.
func TestAMachineIsHeldWhileItsClusterNamesNoMaasCluster(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	m := w.deployedMachine("m", false, infrav1.MaasMachineSpec{})
	w.infrastructure("infrastructure.example.com", "MaasCluster")
	w.beginDeletion(m)
	w.eventually(m, "held", func() bool {
		return conditions.GetReason(m, infrav1.MachineDeployedCondition) == infrav1.WaitingForClusterInfrastructureReason
	})
	w.infrastructure(infrav1.GroupVersion.Group, "MaasCluster")
	w.poke(m)
	w.goes(m)
}

// The machines of a MaasCluster that something else manages say what that must do, one thing after the other.
func TestMachinesSayWhatTheManagerOfTheirClusterMustDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster := w.newCluster(func(c *infrav1.MaasCluster) {
		c.Annotations = map[string]string{clusterv1.ManagedByAnnotation: "k0smotron"}
	})
	m := w.newMachine("m", false, infrav1.MaasMachineSpec{})
	says := func(words ...string) {
		t.Helper()
		w.eventually(m, "waiting for "+strings.Join(words, ", "), func() bool {
			message := conditions.GetMessage(m, infrav1.MachineDeployedCondition)
			for _, word := range append(words, clusterv1.ManagedByAnnotation, "k0smotron") {
				if !strings.Contains(message, word) {
					return false
				}
			}
			return conditions.GetReason(m, infrav1.MachineDeployedCondition) == infrav1.WaitingForClusterInfrastructureReason
		})
	}
	says(infrav1.OwnerIDAnnotation)
	w.patch(cluster, func() { metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, infrav1.OwnerIDAnnotation, "abcdefghijkl") })
	says("status.initialization.provisioned")
	w.patchStatus(w.cluster, func() { w.cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true) })
	w.deployed(m)
}
