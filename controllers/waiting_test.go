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

// A test in the role of the external manager of the MaasCluster sets its status.
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
