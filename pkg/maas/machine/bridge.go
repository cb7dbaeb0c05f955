// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
)

// HasBridge reports whether a machine has a bridge of this name, whatever it contains: its maker may have wanted
// another network.
func HasBridge(machine *maas.Machine, name string) bool {
	return first(machine, func(i *maas.Interface) bool { return i.Name == name && i.Type == "bridge" }) != nil
}

// MakeBridge puts the boot interface of an Allocated machine into a new bridge, which gets its links and is
// deleted when the machine is released (POST nodes/{id}/interfaces/ op=create_bridge). The inventory must poll the
// machine afterwards. Errors: *NICError; maas.Conflict when the machine's state does not allow it.
func (s *Service) MakeBridge(ctx context.Context, permit maas.Permit, machine *maas.Machine, name string) error {
	port := bootCarrier(machine)
	switch {
	case port == nil:
		return &NICError{Message: "is not known to MAAS: commission the machine"}
	case port.Type == "bridge":
		return &NICError{NIC: port.Name, Message: "is the bridge of the boot interface already: name it in " +
			"lxdConfig.networkBridge, or delete it in MAAS"}
	}
	_, err := s.inventory.Change(machine.SystemID, func(client *maas.Client) (*maas.Machine, error) {
		_, err := client.CreateInterface(ctx, permit, machine.SystemID, maas.InterfaceSpec{
			Type: maas.InterfaceBridge, Name: name, Parents: []int{port.ID},
		})
		return nil, err
	})
	switch {
	case errors.Is(err, maas.Forbidden):
		return &NICError{NIC: name, Message: "is missing, and only " + rights.HostBridge.Users(machine.Pool.Name) +
			" may make it: make that bridge in MAAS, or give the cluster the key of one", cause: err}
	case errors.Is(err, maas.Invalid):
		return &NICError{NIC: name, Message: "can't be made in MAAS: " + maas.Message(err), cause: err}
	case err != nil:
		return fmt.Errorf("making the bridge %s on machine %s: %w", name, machine.SystemID, err)
	}
	return nil
}
