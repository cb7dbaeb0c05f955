// SPDX-License-Identifier: Apache-2.0

package controllers

import (
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
