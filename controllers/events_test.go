// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
}
