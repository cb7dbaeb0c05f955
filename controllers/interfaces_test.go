// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"
	"testing"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// bonded is a bond of the only card of a machine, which has an address.
var bonded = []infrav1.MachineInterface{{Name: "bond0", Type: infrav1.InterfaceTypeBond, Parents: []string{"enp1s0"}, Subnet: "10.77.0.0/24"}}

// interfacesOf are the names of a machine's interfaces in MAAS.
func (w *world) interfacesOf(systemID string) (names []string) {
	w.t.Helper()
	for _, nic := range w.metal(systemID).Interfaces {
		names = append(names, nic.Name)
	}
	return names
}

func TestInterfacesThatAMachineCannotHaveAreRefusedBeforeAnyChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.provisioned(w.newCluster())
	before := w.maas.State()
	m := w.newMachine("md-0", false, infrav1.MaasMachineSpec{Interfaces: append(slices.Clone(bonded), infrav1.MachineInterface{
		Name: "storage", Type: infrav1.InterfaceTypeVLAN, Parents: []string{"bond0"}, VID: 7,
	})})
	w.refused(m, infrav1.MachineDeployedCondition, infrav1.NetworkDeviceInvalidReason)
	if got := w.interfacesOf(m.Spec.SystemID); !slices.Equal(got, []string{"enp1s0"}) {
		t.Errorf("the machine has the interfaces %v", got)
	}
	w.delete(m)
	w.unchanged(before)
}
