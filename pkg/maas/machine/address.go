// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// subnetMaxAge is how old the list of subnets may be: one call serves all machines that get their addresses at about
// the same time.
const subnetMaxAge = time.Minute

// NIC is the wanted connection of an interface.
type NIC struct {
	// Name is the interface's name in MAAS, or a network card's MAC address or tag; "" is the boot interface, or the
	// bond or bridge that contains it.
	Name string `json:"name,omitempty"`
	// Mode is one of maas.LinkMode*.
	Mode string `json:"mode"`
	// Subnet is a CIDR. "": the smallest subnet that contains Address, or the subnet that the interface is on.
	Subnet string `json:"subnet,omitempty"`
	// Address is for static links.
	Address string `json:"address,omitempty"`
}

// AddressProblem is why a static address can't be given to a machine.
type AddressProblem string

const (
	// AddressInUse means that something else has the address.
	AddressInUse AddressProblem = "InUse"
	// AddressOutsideSubnets means that MAAS has no subnet for it.
	AddressOutsideSubnets AddressProblem = "OutsideSubnets"
	// AddressInDynamicRange means that MAAS hands it out by DHCP.
	AddressInDynamicRange AddressProblem = "InDynamicRange"
	// AddressRefused means that it is no address, or MAAS refuses it for another reason.
	AddressRefused AddressProblem = "Refused"
)

// AddressError is a static address that a machine can't have.
type AddressError struct {
	Problem AddressProblem
	Address string
	Message string

	cause error // MAAS's refusal, if it was asked
}

// Error names the address, the problem, and the remedy.
func (e *AddressError) Error() string {
	return fmt.Sprintf("the static address %s %s", e.Address, e.Message)
}

// Unwrap returns MAAS's refusal, or nil if MAAS was not asked.
func (e *AddressError) Unwrap() error { return e.cause }

// NICError is an interface that can't be connected as wanted.
type NICError struct {
	NIC, Message string

	cause error // MAAS's refusal, if it was asked
}

// Unwrap returns MAAS's refusal, or nil if MAAS was not asked.
func (e *NICError) Unwrap() error { return e.cause }

// Error names the interface, the problem, and the remedy.
func (e *NICError) Error() string {
	if e.NIC == "" {
		return "the boot interface " + e.Message
	}
	return fmt.Sprintf("the interface %s %s", e.NIC, e.Message)
}

// HasAddress reports whether an interface of the machine has this static address.
func HasAddress(machine *maas.Machine, address string) bool {
	iface, _ := linkedTo(machine, address)
	return iface != nil
}

// linkedTo returns the interface that has a static address, and the link.
func linkedTo(machine *maas.Machine, address string) (*maas.Interface, maas.Link) {
	for _, iface := range interfacesOf(machine) {
		if link := list.Find(iface.Links, func(link maas.Link) bool { return hasStatic(link, address) }); link != nil {
			return iface, *link
		}
	}
	return nil, maas.Link{}
}

// interfacesOf returns the machine's interfaces, the boot interface first.
func interfacesOf(machine *maas.Machine) []*maas.Interface {
	if machine.BootInterface == nil {
		return machine.Interfaces
	}
	return append([]*maas.Interface{machine.BootInterface},
		slices.DeleteFunc(slices.Clone(machine.Interfaces), func(i *maas.Interface) bool {
			return i.ID == machine.BootInterface.ID
		})...)
}

func hasStatic(link maas.Link, address string) bool {
	return link.Mode == maas.LinkModeStatic && maas.SameAddress(link.IPAddress, address)
}

// Connected reports whether the machine's interfaces are as wanted. It does not call MAAS.
func Connected(machine *maas.Machine, nics []NIC) bool {
	return !slices.ContainsFunc(nics, func(nic NIC) bool {
		iface := find(machine, nic.Name)
		return iface == nil || !isConnected(iface, nic)
	})
}

func find(machine *maas.Machine, name string) *maas.Interface {
	if name == "" {
		return bootCarrier(machine)
	}
	if called := layoutOf(machine, nil).called(name); len(called) > 0 {
		return called[0].iface
	}
	return nil
}

// hasInterface reports whether a machine has an interface of that name.
func hasInterface(machine *maas.Machine, name string) bool {
	return first(machine, func(i *maas.Interface) bool { return i.Name == name }) != nil
}

func first(machine *maas.Machine, wanted func(*maas.Interface) bool) *maas.Interface {
	return list.First(interfacesOf(machine), wanted)
}

// bootCarrier returns the interface with the addresses of the boot interface: itself, or the bond and the bridge on top
// of it.
func bootCarrier(machine *maas.Machine) *maas.Interface {
	carrier := machine.BootInterface
	for range machine.Interfaces { // No more steps than interfaces: MAAS's data might contain a circle.
		above := first(machine, func(i *maas.Interface) bool {
			return carrier != nil && slices.Contains(carrier.Children, i.Name) && (i.Type == "bond" || i.Type == "bridge")
		})
		if above == nil {
			break
		}
		carrier = above
	}
	return carrier
}

// isConnected reports whether an interface is as wanted.
func isConnected(iface *maas.Interface, nic NIC) bool {
	inSubnet := func(link maas.Link) bool {
		return link.Mode == nic.Mode && (nic.Subnet == "" || (link.Subnet != nil && link.Subnet.CIDR == nic.Subnet))
	}
	switch nic.Mode {
	case maas.LinkModeStatic:
		return slices.ContainsFunc(iface.Links, func(link maas.Link) bool { return hasStatic(link, nic.Address) }) &&
			len(beside(iface, nic.Address)) == 0
	case maas.LinkModeLinkUp:
		return len(iface.Links) > 0 && !slices.ContainsFunc(iface.Links, func(link maas.Link) bool { return !inSubnet(link) })
	case maas.LinkModeDHCP:
		// MAAS refuses to replace one dhcp link by another.
		return slices.ContainsFunc(iface.Links, func(link maas.Link) bool { return link.Mode == nic.Mode })
	}
	return slices.ContainsFunc(iface.Links, inSubnet)
}

// beside returns the links that would give an interface a second address of the family of its static one. Links of the
// other family stay: a static IPv4 address does not remove the IPv6 address of an interface.
func beside(iface *maas.Interface, address string) []maas.Link {
	return slices.DeleteFunc(slices.Clone(iface.Links), func(link maas.Link) bool {
		return hasStatic(link, address) || !isOfFamily(link, address)
	})
}

// isOfFamily reports whether a link gives addresses of the family of address. MAAS itself drops dhcp links of the
// family, and link_up, when a static link is made.
func isOfFamily(link maas.Link, address string) bool {
	if link.Subnet == nil {
		return false
	}
	ip, err := netip.ParseAddr(address)
	prefix, bad := netip.ParsePrefix(link.Subnet.CIDR)
	return err == nil && bad == nil && prefix.Addr().Is4() == ip.Is4()
}

// Connect links the machine's interfaces as wanted (POST nodes/{id}/interfaces/{id}/ op=link_subnet). It must come
// before the deployment, and can be repeated. Errors: *AddressError, *NICError, maas.Conflict when the machine's state
// does not allow it.
func (s *Service) Connect(
	ctx context.Context, permit maas.Permit, machine *maas.Machine, nics []NIC,
) (*maas.Machine, error) {
	for _, nic := range nics {
		iface := find(machine, nic.Name)
		if iface == nil {
			return machine, &NICError{NIC: nic.Name, Message: "is not known to MAAS: check the machine's interfaces there"}
		}
		if isConnected(iface, nic) {
			continue
		}
		subnet, err := s.subnetFor(ctx, iface, nic)
		if err != nil {
			return machine, err
		}
		if machine, err = s.link(ctx, permit, machine, iface, nic, subnet); err != nil {
			return machine, err
		}
	}
	return machine, nil
}

// subnetFor returns the subnet to link an interface to; its ID is 0 if none is needed or known.
func (s *Service) subnetFor(ctx context.Context, iface *maas.Interface, nic NIC) (maas.Subnet, error) {
	if nic.Subnet == "" && nic.Address == "" {
		for _, link := range iface.Links {
			if link.Subnet != nil {
				return *link.Subnet, nil
			}
		}
		if nic.Mode != maas.LinkModeAuto {
			return maas.Subnet{}, nil
		}
	}
	subnets, err := s.inventory.Subnets(ctx, subnetMaxAge)
	if err != nil {
		return maas.Subnet{}, fmt.Errorf("listing MAAS's subnets: %w", err)
	}
	if nic.Subnet == "" && nic.Address == "" {
		return subnetOnVLAN(subnets, iface, nic)
	}
	if nic.Mode == maas.LinkModeStatic {
		return subnetOf(subnets, nic.Address, nic.Subnet)
	}
	return subnetNamed(subnets, nic)
}

// subnetNamed returns the subnet that an interface shall be on.
func subnetNamed(subnets []maas.Subnet, nic NIC) (maas.Subnet, error) {
	at := slices.IndexFunc(subnets, func(subnet maas.Subnet) bool { return subnet.CIDR == nic.Subnet })
	if at < 0 {
		missing := &MissingError{Kind: missingSubnet, Name: nic.Subnet, Others: cidrs(subnets)}
		return maas.Subnet{}, &NICError{NIC: nic.Name, Message: "can't be connected: " + missing.Found() +
			": " + missing.Remedy()}
	}
	return subnets[at], nil
}

// subnetOnVLAN returns the first subnet on the VLAN of an interface that has no link.
func subnetOnVLAN(subnets []maas.Subnet, iface *maas.Interface, nic NIC) (maas.Subnet, error) {
	at := slices.IndexFunc(subnets, func(subnet maas.Subnet) bool {
		return iface.VLAN != nil && subnet.VLAN.ID == iface.VLAN.ID
	})
	if at < 0 {
		return maas.Subnet{}, &NICError{NIC: nic.Name, Message: "is on no subnet of MAAS: give it one, or another linkMode"}
	}
	return subnets[at], nil
}

// subnetOf returns the subnet with this CIDR, or the smallest one that contains the address.
func subnetOf(subnets []maas.Subnet, address, cidr string) (maas.Subnet, error) {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return maas.Subnet{}, &AddressError{Problem: AddressRefused, Address: strconv.Quote(address),
			Message: "is not an IP address"}
	}
	best, bits := maas.Subnet{}, -1
	for _, subnet := range subnets {
		prefix, err := netip.ParsePrefix(subnet.CIDR)
		if err == nil && prefix.Contains(ip) && prefix.Bits() > bits && (cidr == "" || cidr == subnet.CIDR) {
			best, bits = subnet, prefix.Bits()
		}
	}
	switch {
	case bits >= 0:
		return best, nil
	case cidr != "":
		return maas.Subnet{}, &AddressError{Problem: AddressOutsideSubnets, Address: address, Message: fmt.Sprintf(
			"is not in the subnet %s of the device that carries it: use an address of it, or another subnet", cidr)}
	}
	return maas.Subnet{}, &AddressError{Problem: AddressOutsideSubnets, Address: address, Message: fmt.Sprintf(
		"lies in no subnet of MAAS (it has %s): add the subnet, or use another address",
		cmp.Or(text.List(cidrs(subnets), maxNames), "none"))}
}

// cidrs are the addresses of subnets.
func cidrs(subnets []maas.Subnet) []string {
	return list.Each(subnets, func(subnet maas.Subnet) string { return subnet.CIDR })
}

// link makes one link, and removes those that it replaces.
func (s *Service) link(
	ctx context.Context, permit maas.Permit, machine *maas.Machine, iface *maas.Interface, nic NIC, subnet maas.Subnet,
) (*maas.Machine, error) {
	static := nic.Mode == maas.LinkModeStatic
	if !static || !slices.ContainsFunc(iface.Links, func(link maas.Link) bool { return hasStatic(link, nic.Address) }) {
		linked, changed, err := s.changeInterface(machine, func(client *maas.Client) (*maas.Interface, error) {
			return client.LinkSubnet(ctx, permit, machine.SystemID, iface.ID, maas.LinkParams{
				Mode: nic.Mode, SubnetID: subnet.ID, IPAddress: nic.Address, Replace: !static ||
					replacesAll(iface, nic.Address, subnet),
			})
		})
		if err != nil {
			return machine, s.linkRefused(ctx, machine, nic, subnet, err)
		}
		machine, iface = changed, linked
	}
	if !static {
		return machine, nil
	}
	for _, link := range beside(iface, nic.Address) {
		_, changed, err := s.changeInterface(machine, func(client *maas.Client) (*maas.Interface, error) {
			return client.UnlinkSubnet(ctx, permit, machine.SystemID, iface.ID, link.ID)
		})
		if err != nil {
			return machine, fmt.Errorf("taking a link that %s replaces from machine %s: %w", nic.Address, machine.SystemID, err)
		}
		machine = changed
	}
	return machine, nil
}

// replacesAll reports whether a static link may replace all links of an interface: none is of the other family, or the
// subnet is on another VLAN, for which MAAS allows nothing else.
func replacesAll(iface *maas.Interface, address string, subnet maas.Subnet) bool {
	return !slices.ContainsFunc(iface.Links, func(link maas.Link) bool {
		return link.Subnet != nil && !isOfFamily(link, address) && link.Subnet.VLAN.ID == subnet.VLAN.ID
	})
}

// changeInterface makes a call that changes an interface, and returns it, and the machine with it.
func (s *Service) changeInterface(
	machine *maas.Machine, call func(*maas.Client) (*maas.Interface, error),
) (iface *maas.Interface, changed *maas.Machine, err error) {
	changed, err = s.inventory.Change(machine.SystemID, func(client *maas.Client) (*maas.Machine, error) {
		if iface, err = call(client); err != nil {
			return nil, err
		}
		return withInterface(machine, iface), nil
	})
	return iface, changed, err
}

// withInterface returns a machine with a changed interface.
func withInterface(machine *maas.Machine, iface *maas.Interface) *maas.Machine {
	changed := *machine
	if changed.BootInterface != nil && changed.BootInterface.ID == iface.ID {
		changed.BootInterface = iface
	}
	changed.Interfaces = slices.Clone(changed.Interfaces)
	if at := slices.IndexFunc(changed.Interfaces, func(i *maas.Interface) bool { return i.ID == iface.ID }); at >= 0 {
		changed.Interfaces[at] = iface
	}
	return &changed
}

// linkRefused returns why MAAS did not make a link. It asks MAAS again if a status has two meanings.
func (s *Service) linkRefused(
	ctx context.Context, machine *maas.Machine, nic NIC, subnet maas.Subnet, cause error,
) error {
	what := fmt.Errorf("connecting the interface %s of machine %s: %w", cmp.Or(nic.Name, "to boot from"), machine.SystemID,
		cause)
	if nic.Mode != maas.LinkModeStatic {
		if errors.Is(cause, maas.Invalid) {
			return &NICError{NIC: nic.Name, Message: "can't be connected: " + maas.Message(cause), cause: cause}
		}
		return what
	}
	refused := &AddressError{Problem: AddressRefused, Address: nic.Address,
		Message: "is refused by MAAS: " + maas.Message(cause), cause: cause}
	switch {
	case errors.Is(cause, maas.NotFound), errors.Is(cause, maas.Conflict):
		if is, err := s.isAddressRefused(ctx, machine.SystemID, cause); err != nil || !is {
			return errors.Join(what, err)
		}
		return s.takenMeanwhile(ctx, machine, nic, subnet, cause)
	case maas.InvalidField(cause, "ip_address"), errors.Is(cause, maas.Forbidden):
		dynamic, err := s.isDynamic(ctx, subnet, nic.Address)
		if err != nil {
			return errors.Join(what, err)
		}
		if dynamic {
			refused.Problem = AddressInDynamicRange
			refused.Message = "lies in a dynamic range, which MAAS gives away by DHCP: use an address outside of it, or make " +
				"the range smaller (MAAS: " + maas.Message(cause) + ")"
		} else if errors.Is(cause, maas.Forbidden) {
			return what
		}
		return refused
	case errors.Is(cause, maas.Invalid):
		return refused
	}
	return what
}

// takenMeanwhile returns the error of an address that MAAS refuses because something else has it, with who that is.
func (s *Service) takenMeanwhile(
	ctx context.Context, machine *maas.Machine, nic NIC, subnet maas.Subnet, cause error,
) error {
	by := ""
	if use, err := s.inventory.SubnetUse(ctx, subnet.ID, 0); err == nil {
		own := func(a maas.SubnetAddress) bool { return a.Node.SystemID == machine.SystemID }
		by = holderOf(use.Addresses, nic.Address, own)
	}
	refused := Taken(nic.Address, cmp.Or(by, "something else in MAAS"))
	refused.Message += " (MAAS: " + maas.Message(cause) + ")"
	refused.cause = cause
	return refused
}

// isAddressRefused reports whether MAAS refused a link because something has its address (404), or because that is
// reserved for another MAC address (409). Both may also mean a machine that is gone, or in no state for it: MAAS is
// asked how the machine is now. The error is of that.
func (s *Service) isAddressRefused(ctx context.Context, systemID string, cause error) (bool, error) {
	isGone, isConflict := errors.Is(cause, maas.NotFound), errors.Is(cause, maas.Conflict)
	if !isGone && !isConflict {
		return false, nil
	}
	now, err := s.inventory.Client().GetMachine(ctx, systemID)
	if err != nil {
		return false, fmt.Errorf("reading machine %s again: %w", systemID, err)
	}
	return isGone || slices.Contains(linkable, now.Status), nil
}

// linkable are the states in which MAAS changes the links of a machine.
var linkable = []maas.Status{maas.StatusNew, maas.StatusReady, maas.StatusAllocated, maas.StatusBroken,
	maas.StatusFailedTesting}

// isDynamic reports whether an address lies in a dynamic range of a subnet.
func (s *Service) isDynamic(ctx context.Context, subnet maas.Subnet, address string) (bool, error) {
	ranges, err := s.inventory.Client().UsedRanges(ctx, subnet.ID)
	if err != nil {
		return false, fmt.Errorf("reading the ranges of the subnet %s: %w", subnet.CIDR, err)
	}
	return slices.ContainsFunc(ranges, func(r maas.Range) bool { return r.GivesAway(address) }), nil
}

// removeStatic removes a static address from a machine. MAAS chooses another one in its place.
func (s *Service) removeStatic(ctx context.Context, permit maas.Permit, machine *maas.Machine, address string) error {
	iface, link := linkedTo(machine, address)
	if iface == nil {
		return nil
	}
	if link.Subnet == nil {
		return errNoSubnet
	}
	others := slices.DeleteFunc(slices.Clone(iface.Links), func(l maas.Link) bool { return l.ID == link.ID })
	isBack := slices.ContainsFunc(others, func(l maas.Link) bool {
		return l.Mode == maas.LinkModeAuto && l.Subnet != nil && l.Subnet.ID == link.Subnet.ID
	})
	_, _, err := s.changeInterface(machine, func(client *maas.Client) (changed *maas.Interface, err error) {
		if !isBack {
			changed, err = client.LinkSubnet(ctx, permit, machine.SystemID, iface.ID, maas.LinkParams{
				Mode: maas.LinkModeAuto, SubnetID: link.Subnet.ID, Replace: len(others) == 0,
			})
		}
		if err == nil && len(others) > 0 {
			changed, err = client.UnlinkSubnet(ctx, permit, machine.SystemID, iface.ID, link.ID)
		}
		return changed, err
	})
	return err
}
