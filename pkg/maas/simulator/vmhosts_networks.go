// SPDX-License-Identifier: Apache-2.0

package simulator

import "slices"

// vlanOf is the VLAN that a host's network device is on, as far as MAAS can know: by its addresses, by the machine's
// interface with its MAC address, or, for a bridge, by its ports. nil: unknown.
func (s *Simulator) vlanOf(h *vmHost, n hostNetwork) *vlan {
	for _, ip := range n.addresses {
		for _, sn := range s.db.subnets {
			if sn.cidr.Contains(ip) {
				return sn.vlan
			}
		}
	}
	if h.machine != nil && n.mac != "" {
		for _, nic := range h.machine.ifaces {
			if nic.mac == n.mac {
				return nic.vlan
			}
		}
	}
	for _, other := range h.networks {
		if n.kind == networkBridge && other.kind != networkBridge && slices.Contains(n.ports, other.name) {
			if v := s.vlanOf(h, other); v != nil {
				return v
			}
		}
	}
	return nil
}

// attachments are where MAAS hangs a VM's network cards on a real host: on the bridge that is on the subnet's VLAN, or
// else on a device there (macvlan). A card without a subnet goes to the first such network with DHCP. nil: there is no
// network to hang anything on, or the host is simulated.
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
		case n.kind == networkBridge:
			return attachment{kind: "bridged", parent: n.name}, true
		case device.parent == "":
			device = attachment{kind: "macvlan", parent: n.name}
		}
	}
	return device, device.parent != ""
}
