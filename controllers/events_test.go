// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// What is told of a machine names it as people know it: by its name in MAAS, and a VM with its host.
func TestEventsNameMachines(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	metal, composed := w.newMachine("metal", false, infrav1.MaasMachineSpec{}), w.newMachine("vm", false, vm)
	w.deployed(metal)
	w.deployed(composed)
	if name := w.metal(metal.Spec.SystemID).Hostname; metal.Status.Hardware == nil || metal.Status.Hardware.Hostname != name {
		t.Errorf("the hardware of %s is %+v", name, metal.Status.Hardware)
	}
	w.delete(metal)
	w.delete(composed)
	w.eventsOf(metal, "Deleted", metal.Status.Hostname, metal.Spec.SystemID)
	w.eventsOf(composed, "Deleted", composed.Status.Hostname, composed.Status.LXDHost)
}

// An object that a person made by hand, without a Machine, says why nothing happens.
func TestAMaasMachineWithoutAMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := &infrav1.MaasMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "alone"}, Spec: infrav1.MaasMachineSpec{Image: "ubuntu/jammy"},
	}
	w.create(m)
	w.eventsOf(m, "NoMachine", "infrastructureRef")
	c := &infrav1.MaasCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "alone"}, Spec: infrav1.MaasClusterSpec{DNSDomain: "maas.test"},
	}
	w.create(c)
	waits := func(object conditions.Getter, kind string) func(context.Context) bool {
		return func(ctx context.Context) bool {
			o := object.(client.Object)
			if w.client.Get(ctx, client.ObjectKeyFromObject(o), o) != nil {
				return false
			}
			ready := conditions.Get(object, infrav1.ReadyCondition)
			return ready != nil && ready.Reason == infrav1.WaitingForOwnerReason &&
				strings.Contains(ready.Message, kind+" in namespace "+w.namespace)
		}
	}
	w.await("the MaasMachine says that it waits for its Machine", m, waits(m, "Machine"))
	w.await("the MaasCluster says that it waits for its Cluster", c, waits(c, "Cluster"))
}
