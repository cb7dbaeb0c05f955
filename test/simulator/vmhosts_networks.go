// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/netip"
	"slices"
)

// Kinds of networks in LXD.
const (
	NetworkBridge   = "bridge"
	NetworkPhysical = "physical"
	NetworkUnknown  = "unknown" // such as a veth pair's end
)

// HostNetwork is a network interface of an LXD host, as LXD reports it.
type HostNetwork struct {
	Name, Kind, MAC string
	Addresses       []netip.Prefix // global ones
	Ports           []string       // a bridge's
}

// isDevice reports whether MAAS treats it as a network card.
func (n HostNetwork) isDevice() bool { return n.Kind == NetworkPhysical || n.Kind == NetworkUnknown }

// vlanOf returns the VLAN of a host's network device, as far as MAAS can know: by its addresses, by the machine's
// interface with its MAC address, or, for a bridge, by its ports. nil: unknown.
func (s *Simulator) vlanOf(h *vmHost, n HostNetwork) *vlan {
	for _, ip := range n.Addresses {
		for _, sn := range s.db.subnets {
			if sn.cidr.Contains(ip.Addr()) {
				return sn.vlan
			}
		}
	}
	if h.machine != nil && n.MAC != "" {
		for _, nic := range h.machine.ifaces {
			if nic.mac == n.MAC {
				return nic.vlan
			}
		}
	}
	for _, other := range h.networks {
		if n.Kind == NetworkBridge && other.Kind != NetworkBridge && slices.Contains(n.Ports, other.Name) {
			if v := s.vlanOf(h, other); v != nil {
				return v
			}
		}
	}
	return nil
}

// attachments returns what MAAS attaches a VM's network cards to on a real host: the bridge on the subnet's VLAN, or
// else a device there (macvlan). A card without a subnet gets the first such network with DHCP. nil: there is no such
// network, or the host is simulated.
func (s *Simulator) attachments(h *vmHost, subnets []*subnet) []attachment {
	var out []attachment
	for _, sn := range subnets {
		found, ok := s.attachmentOn(h, sn)
		if !ok {
			return nil
		}
		out = append(out, found)
	}
	return out
}

func (s *Simulator) attachmentOn(h *vmHost, sn *subnet) (attachment, bool) {
	var device attachment
	for _, n := range h.networks {
		v := s.vlanOf(h, n)
		if v == nil || sn == nil && !v.dhcpOn || sn != nil && v != sn.vlan {
			continue
		}
		switch {
		case n.Kind == NetworkBridge:
			return attachment{kind: "bridged", parent: n.Name}, true
		case device.parent == "":
			device = attachment{kind: "macvlan", parent: n.Name}
		}
	}
	return device, device.parent != ""
}
