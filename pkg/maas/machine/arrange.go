// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
)

// Arranged reports whether a machine's interfaces are as wanted, apart from their links. It does not call MAAS.
func Arranged(machine *maas.Machine, wanted []WantedInterface) bool {
	next, err := NextInterface(machine, wanted, nil)
	return next == nil && err == nil
}

// Arrange makes and changes the interfaces of an acquired machine as wanted, and returns the machine. It can be
// repeated. Errors: *NICError, when the machine can't have one of them; nothing was changed, unless MAAS alone knew.
func (s *Service) Arrange(
	ctx context.Context, permit maas.Permit, machine *maas.Machine, wanted []WantedInterface,
) (*maas.Machine, error) {
	vlans, err := s.vlansFor(ctx, machine, wanted)
	if err != nil {
		return machine, err
	}
	var last *InterfaceChange
	for {
		next, err := NextInterface(machine, wanted, vlans)
		if err != nil || next == nil {
			return machine, err
		}
		if reflect.DeepEqual(next, last) {
			return machine, &NICError{NIC: next.About, Message: "stays as it is: MAAS accepts a value and does not store it"}
		}
		last = next
		changed, err := s.changeAndRead(ctx, permit, machine, next)
		if errors.Is(err, maas.Invalid) && s.isOver(ctx, machine, wanted, vlans, next) {
			changed, err = s.inventory.Read(ctx, machine.SystemID)
		}
		if err != nil {
			return machine, arrangementRefused(machine, next, err)
		}
		machine = changed
	}
}

// isOver reports whether a refused change is not wanted any more: an earlier call, whose response was lost, has made it
// meanwhile.
func (s *Service) isOver(
	ctx context.Context, machine *maas.Machine, wanted []WantedInterface, vlans []maas.VLAN, refused *InterfaceChange,
) bool {
	now, err := s.inventory.Read(ctx, machine.SystemID)
	if err != nil {
		return false
	}
	next, err := NextInterface(now, wanted, vlans)
	return err == nil && !reflect.DeepEqual(next, refused)
}

// vlansFor returns the VLANs of the machine's fabrics, if any is needed.
func (s *Service) vlansFor(ctx context.Context, machine *maas.Machine, wanted []WantedInterface) ([]maas.VLAN, error) {
	isMissing := func(w WantedInterface) bool { return w.Type == maas.InterfaceVLAN && !hasInterface(machine, w.Name) }
	if !slices.ContainsFunc(wanted, isMissing) {
		return nil, nil
	}
	var fabrics []int
	for _, iface := range machine.Interfaces {
		if iface.VLAN != nil && !slices.Contains(fabrics, iface.VLAN.FabricID) {
			fabrics = append(fabrics, iface.VLAN.FabricID)
		}
	}
	var vlans []maas.VLAN
	for _, fabric := range fabrics {
		more, err := s.inventory.Client().ListVLANs(ctx, fabric)
		if err != nil {
			return nil, fmt.Errorf("listing the VLANs of fabric %d: %w", fabric, err)
		}
		vlans = append(vlans, more...)
	}
	return vlans, nil
}

// changeAndRead makes a call that changes the machine's interfaces, and reads it again: one call changes several of
// them.
func (s *Service) changeAndRead(
	ctx context.Context, permit maas.Permit, machine *maas.Machine, change *InterfaceChange,
) (*maas.Machine, error) {
	_, err := s.inventory.Change(machine.SystemID, func(client *maas.Client) (*maas.Machine, error) {
		return nil, change.send(ctx, client, permit, machine.SystemID)
	})
	if err != nil {
		return machine, err
	}
	now, err := s.inventory.Read(ctx, machine.SystemID)
	if err != nil {
		return machine, fmt.Errorf("reading machine %s again: %w", machine.SystemID, err)
	}
	return now, nil
}

func (c *InterfaceChange) send(
	ctx context.Context, client *maas.Client, permit maas.Permit, systemID string,
) (err error) {
	switch {
	case c.Create != nil:
		_, err = client.CreateInterface(ctx, permit, systemID, *c.Create)
	case c.Update != nil:
		_, err = client.UpdateInterface(ctx, permit, systemID, c.Interface, *c.Update)
	case c.Link != nil:
		_, err = client.LinkSubnet(ctx, permit, systemID, c.Interface, *c.Link)
	case c.Unlink != 0:
		_, err = client.UnlinkSubnet(ctx, permit, systemID, c.Interface, c.Unlink)
	case c.Delete:
		err = client.DeleteInterface(ctx, permit, systemID, c.Interface)
	}
	return err
}

// arrangementRefused returns why MAAS did not change an interface.
func arrangementRefused(machine *maas.Machine, change *InterfaceChange, err error) error {
	switch {
	case errors.Is(err, maas.Forbidden):
		return &NICError{NIC: change.About, Message: "is not as wanted, and only " + rights.Interfaces.Users(
			machine.Pool.Name) +
			" may change it: change it in MAAS, or give the cluster the key of one", cause: err}
	case errors.Is(err, maas.Invalid):
		return &NICError{NIC: change.About, Message: "can't be as wanted: " + maas.Message(err), cause: err}
	}
	return fmt.Errorf("changing the interface %s of machine %s: %w", change.About, machine.SystemID, err)
}
