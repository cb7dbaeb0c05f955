// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// A provider ID counts as proof that the machine was deployed before only together with the system id, which is recorded before it.
func TestWhatAMachineWaitsFor(t *testing.T) {
	const providerID = "maas://zone-a/abc123"
	for name, tc := range map[string]struct {
		spec        infrav1.MaasMachineSpec
		provisioned bool // the cluster's infrastructure
		data        bool // the bootstrap provider made the user data
		want        string
	}{
		"the infrastructure":                         {want: infrav1.WaitingForClusterInfrastructureReason},
		"the user data":                              {provisioned: true, want: infrav1.WaitingForBootstrapDataReason},
		"nothing":                                    {provisioned: true, data: true},
		"nothing: it was deployed before a move":     {spec: infrav1.MaasMachineSpec{SystemID: "abc123", ProviderID: providerID}},
		"the user data, though it has a system id":   {spec: infrav1.MaasMachineSpec{SystemID: "abc123"}, provisioned: true, want: infrav1.WaitingForBootstrapDataReason},
		"the infrastructure, with a provider ID":     {spec: infrav1.MaasMachineSpec{ProviderID: providerID}, want: infrav1.WaitingForClusterInfrastructureReason},
		"the user data, though it has a provider ID": {spec: infrav1.MaasMachineSpec{ProviderID: providerID}, provisioned: true, want: infrav1.WaitingForBootstrapDataReason},
	} {
		t.Run(name, func(t *testing.T) {
			m := &owners{
				cluster: &clusterv1.Cluster{}, machine: &clusterv1.Machine{}, maasMachine: &infrav1.MaasMachine{Spec: tc.spec}, maasCluster: &infrav1.MaasCluster{},
			}
			m.maasCluster.Annotations = map[string]string{infrav1.OwnerIDAnnotation: "abcdefghijkl"}
			m.cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(tc.provisioned)
			if tc.data {
				m.machine.Spec.Bootstrap.DataSecretName = ptr.To("data")
			}
			got := ""
			if waiting := blocker(m); waiting != nil {
				got = waiting.reason
			}
			if got != tc.want {
				t.Errorf("it waits: %q, want %q", got, tc.want)
			}
		})
	}
}

// Whoever manages the MaasCluster gives it what the provider would.
func TestMachinesOfAMaasClusterThatIsManagedExternally(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster := w.newCluster(func(c *infrav1.MaasCluster) {
		c.Annotations = map[string]string{clusterv1.ManagedByAnnotation: "terraform"}
		c.Spec.ControlPlaneEndpoint = infrav1.APIEndpoint{Host: "api.example.com", Port: 6443}
	})
	w.patchStatus(cluster, func() { cluster.Status.Initialization.Provisioned = ptr.To(true) })
	w.provisioned(cluster)
	m := w.newMachine("md-0", false, vm)
	w.refused(m, infrav1.MachineDeployedCondition, infrav1.WaitingForClusterInfrastructureReason)
	for _, word := range []string{clusterv1.ManagedByAnnotation, infrav1.OwnerIDAnnotation} {
		if message := conditions.GetMessage(m, infrav1.ReadyCondition); !strings.Contains(message, word) {
			t.Errorf("the message %q does not mention %s", message, word)
		}
	}
	before := cluster.DeepCopy()
	cluster.Annotations[infrav1.OwnerIDAnnotation] = "0a1b2c3d4e5f"
	if err := w.client.Patch(t.Context(), cluster, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.deployed(m)
	w.delete(m)
	if left := w.machines(); strings.Contains(left, "md-0") {
		t.Errorf("something is left in MAAS:\n%s", left)
	}
}
