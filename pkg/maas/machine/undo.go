// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Arrangement is what is done to a machine's interfaces, and how they were before: all that is needed to undo it, also
// by another object that gets the machine.
type Arrangement struct {
	// Owner is the mark of the object that does it.
	Owner string `json:"owner"`
	// Made are the names of the bonds, VLANs and bridges that are made.
	Made []string `json:"made,omitempty"`
	// Links and MTUs are those that interfaces get.
	Links []NIC `json:"links,omitempty"`
	MTUs  []int `json:"mtus,omitempty"`
	// Before are the interfaces as they were.
	Before []InterfaceBefore `json:"before"`
	// Reread is that MAAS reads the machine's interfaces from the machine while it runs, and makes static links of all
	// addresses that it finds, also of virtual ones and those of pods. All links that were not there before are undone.
	Reread bool `json:"reread,omitempty"`
}

// InterfaceBefore is an interface before it is changed. VLAN and MTU are 0 if it has none.
type InterfaceBefore struct {
	ID    int          `json:"id"`
	VLAN  int          `json:"vlan,omitempty"`
	MTU   int          `json:"mtu,omitempty"`
	Links []LinkBefore `json:"links,omitempty"`
}

// LinkBefore is a link of an interface; only that of a static one has an address.
type LinkBefore struct {
	Mode    string `json:"mode"`
	Subnet  int    `json:"subnet,omitempty"` // its id
	Address string `json:"address,omitempty"`
}

// NewArrangement returns what the wanted interfaces and their links would change on a machine.
func NewArrangement(owner string, machine *maas.Machine, wanted []WantedInterface, links []NIC) *Arrangement {
	a := &Arrangement{Owner: owner, Links: links}
	for _, w := range wanted {
		if w.Type != "" && !hasInterface(machine, w.Name) {
			a.Made = append(a.Made, w.Name)
		}
		if w.MTU != 0 {
			a.MTUs = append(a.MTUs, w.MTU)
		}
	}
	for _, iface := range machine.Interfaces {
		a.Before = append(a.Before, InterfaceBefore{ID: iface.ID, VLAN: vlanOf(iface), MTU: iface.MTU(),
			Links: linksOf(iface)})
	}
	return a
}

func vlanOf(iface *maas.Interface) int {
	if iface.VLAN == nil {
		return 0
	}
	return iface.VLAN.ID
}

func linksOf(iface *maas.Interface) []LinkBefore { return list.Each(iface.Links, linkBefore) }

func linkBefore(link maas.Link) LinkBefore {
	out := LinkBefore{Mode: link.Mode}
	if link.Subnet != nil {
		out.Subnet = link.Subnet.ID
	}
	if link.Mode == maas.LinkModeStatic {
		out.Address = link.IPAddress
	}
	return out
}

// Undo returns the next call that undoes the arrangement on a machine; nil: it is undone. What is neither as it was nor
// as the arrangement made it is another user's, and stays. address is the machine's static address, or "".
func (a *Arrangement) Undo(machine *maas.Machine, address string) *InterfaceChange {
	for _, iface := range machine.Interfaces {
		if a.isMade(iface) && !a.isUsed(machine, iface) {
			return &InterfaceChange{Interface: iface.ID, Delete: true, About: iface.Name}
		}
	}
	for _, before := range a.Before {
		at := slices.IndexFunc(machine.Interfaces, func(i *maas.Interface) bool { return i.ID == before.ID })
		if at < 0 {
			continue
		}
		if change := a.restore(machine, machine.Interfaces[at], before, address); change != nil {
			change.Interface, change.About = before.ID, machine.Interfaces[at].Name
			return change
		}
	}
	return nil
}

func (a *Arrangement) isMade(iface *maas.Interface) bool {
	return slices.Contains(a.Made, iface.Name) && iface.Type != maas.InterfacePhysical &&
		!slices.ContainsFunc(a.Before, func(b InterfaceBefore) bool {
			return b.ID == iface.ID
		})
}

// isUsed reports whether another user has made an interface on one that we made: it would be deleted, too.
func (a *Arrangement) isUsed(machine *maas.Machine, iface *maas.Interface) bool {
	return slices.ContainsFunc(iface.Children, func(name string) bool {
		child := first(machine, func(i *maas.Interface) bool { return i.Name == name })
		return child != nil && !a.isMade(child)
	})
}

// restore returns the next call that makes an interface as it was.
func (a *Arrangement) restore(
	machine *maas.Machine, now *maas.Interface, before InterfaceBefore, address string,
) *InterfaceChange {
	if mtu := now.MTU(); mtu != before.MTU && slices.Contains(a.MTUs, mtu) {
		return &InterfaceChange{Update: &maas.InterfaceUpdate{MTU: &before.MTU}}
	}
	isPart := first(machine, func(i *maas.Interface) bool {
		return slices.Contains(now.Children, i.Name) && (i.Type == maas.InterfaceBond || i.Type == maas.InterfaceBridge)
	}) != nil
	if isPart || slices.ContainsFunc(now.Links, func(link maas.Link) bool { return !a.isOurs(link, before, address) }) {
		return nil
	}
	return relink(now, before)
}

// isOurs reports whether a link was there before, or is one that we make, or that MAAS makes where there is none, or of
// what it found on the machine.
func (a *Arrangement) isOurs(link maas.Link, before InterfaceBefore, address string) bool {
	if a.Reread || slices.Contains(before.Links, linkBefore(link)) ||
		linkBefore(link) == (LinkBefore{Mode: maas.LinkModeLinkUp}) {
		return true
	}
	if link.Mode == maas.LinkModeStatic && address != "" && maas.SameAddress(link.IPAddress, address) {
		return true
	}
	return slices.ContainsFunc(a.Links, func(nic NIC) bool {
		return nic.Mode == link.Mode && (link.Mode != maas.LinkModeStatic || maas.SameAddress(nic.Address, link.IPAddress)) &&
			(nic.Subnet == "" || (link.Subnet != nil && link.Subnet.CIDR == nic.Subnet))
	})
}

// relink returns the next call that brings an interface to its former VLAN and links. In another VLAN it loses its
// links.
func relink(now *maas.Interface, before InterfaceBefore) *InterfaceChange {
	if vlanOf(now) != before.VLAN {
		return &InterfaceChange{Update: &maas.InterfaceUpdate{VLANID: &before.VLAN}}
	}
	extra := list.Where(now.Links,
		func(link maas.Link) bool { return !slices.Contains(before.Links, linkBefore(link)) })
	missing := slices.IndexFunc(before.Links, func(link LinkBefore) bool { return !slices.Contains(linksOf(now), link) })
	isDHCP := func(link maas.Link) bool { return link.Mode == maas.LinkModeDHCP }
	switch at := slices.IndexFunc(extra, isDHCP); {
	case missing >= 0 && at >= 0: // MAAS refuses to replace one dhcp link by another.
		return &InterfaceChange{Unlink: extra[at].ID}
	case missing >= 0:
		link := before.Links[missing]
		return &InterfaceChange{Link: &maas.LinkParams{
			Mode: link.Mode, SubnetID: link.Subnet, IPAddress: link.Address, Replace: len(extra) > 0 &&
				len(extra) == len(now.Links),
		}}
	// Only without a VLAN does MAAS not make a link instead of the last one.
	case len(before.Links) == 0 && len(extra) > 0:
		return &InterfaceChange{Update: &maas.InterfaceUpdate{VLANID: new(int)}}
	case len(extra) > 0:
		return &InterfaceChange{Unlink: extra[0].ID}
	}
	return nil
}

// Undone reports whether nothing is left to undo on a machine. It does not call MAAS. What MAAS may read anew is never
// undone before the machine is in the pool.
func (a *Arrangement) Undone(machine *maas.Machine, address string) bool {
	return (!a.Reread || isFree(machine)) && a.Undo(machine, address) == nil
}

// NotRestoredError is that MAAS refuses to make an interface as it was: its address or its subnet is gone, for example.
type NotRestoredError struct {
	NIC   string
	Cause error
}

func (e *NotRestoredError) Error() string {
	return fmt.Sprintf("the interface %s can't be restored: %s", e.NIC, maas.Message(e.Cause))
}

var errUnchanged = errors.New("MAAS accepts the change and does not store it")

// Unwrap returns MAAS's refusal.
func (e *NotRestoredError) Unwrap() error { return e.Cause }

// RestoreInterfaces undoes an arrangement on a machine that is ours and not deployed. *NotRestoredError: MAAS refuses.
func (s *Service) RestoreInterfaces(
	ctx context.Context, permit maas.Permit, systemID string, a *Arrangement, address string,
) error {
	machine, err := s.inventory.Read(ctx, systemID)
	if err != nil {
		return fmt.Errorf("reading machine %s again: %w", systemID, err)
	}
	var made []*InterfaceChange
	for next := a.Undo(machine, address); next != nil; next = a.Undo(machine, address) {
		if slices.ContainsFunc(made, func(earlier *InterfaceChange) bool { return reflect.DeepEqual(earlier, next) }) {
			return &NotRestoredError{NIC: next.About, Cause: errUnchanged}
		}
		made = append(made, next)
		if machine, err = s.changeAndRead(ctx, permit, machine, next); err == nil {
			continue
		}
		refused, unread := errors.Is(err, maas.Invalid), error(nil)
		if next.Link != nil && !refused {
			refused, unread = s.isAddressRefused(ctx, systemID, err)
		}
		if refused {
			return &NotRestoredError{NIC: next.About, Cause: err}
		}
		return fmt.Errorf("restoring the interface %s of machine %s: %w", next.About, systemID, errors.Join(err, unread))
	}
	return nil
}
