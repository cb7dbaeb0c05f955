// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// takeInterfaces gives a machine the interfaces and addresses that the LXD on it reports. MAAS treats all of them as
// the machine's own, also those of pods, and removes the others (metadata server, builtin_scripts/network.py:
// update_node_interfaces). Bonds and VLANs stay as they are.
func (s *Simulator) takeInterfaces(m *machine, networks []HostNetwork) {
	before := joinAddrs(m.addresses())
	networks = slices.Clone(networks)
	slices.SortFunc(networks, func(a, b HostNetwork) int { // A bridge comes after its ports.
		return cmp.Or(cmp.Compare(len(a.Ports), len(b.Ports)), cmp.Compare(a.Name, b.Name))
	})
	var reported []*iface
	for _, n := range networks {
		switch {
		case n.MAC == "":
		case n.isDevice():
			nic := s.takeDevice(m, n)
			s.takeAddresses(nic, n.Addresses)
			reported = append(reported, nic)
		case n.Kind == NetworkBridge:
			nic := s.takeBridge(m, n)
			s.takeAddresses(nic, n.Addresses)
			reported = append(reported, nic)
		default:
			reported = append(reported, m.interfaceNamed(n.Name))
		}
	}
	for _, nic := range slices.Clone(m.ifaces) {
		if !slices.Contains(reported, nic) {
			s.removeInterface(nic)
		}
	}
	s.publish(m, ChangeAddresses, before, joinAddrs(m.addresses()))
}

// takeDevice finds a machine's network card by its MAC address, or makes it. If another machine has it, it moves from
// there, with all its addresses (update_physical_interface).
func (s *Simulator) takeDevice(m *machine, n HostNetwork) *iface {
	if nic := m.interfaceNamed(n.Name); nic != nil && nic.kind == NetworkPhysical && nic.mac != n.MAC {
		s.removeInterface(nic)
	}
	for _, other := range s.db.machines {
		at := slices.IndexFunc(other.ifaces, func(nic *iface) bool { return nic.kind == NetworkPhysical && nic.mac == n.MAC })
		if at < 0 {
			continue
		}
		if nic := other.ifaces[at]; other == m {
			nic.name = n.Name
			return nic
		}
		s.removeInterface(other.ifaces[at])
		break
	}
	return s.newInterface(m, n, NetworkPhysical, s.knownVLAN(n.Addresses))
}

// takeBridge finds a machine's bridge by its name, or makes it. Its VLAN is that of its addresses, or of its first port
// (update_child_interface).
func (s *Simulator) takeBridge(m *machine, n HostNetwork) *iface {
	nic := m.interfaceNamed(n.Name)
	if nic == nil || nic.kind != NetworkBridge {
		if nic != nil {
			s.removeInterface(nic)
		}
		nic = s.newInterface(m, n, NetworkBridge, nil)
	}
	nic.mac, nic.ports = n.MAC, n.Ports
	if v := s.knownVLAN(n.Addresses); v != nil {
		nic.vlan = v
	} else if len(n.Ports) > 0 {
		if port := m.interfaceNamed(n.Ports[0]); port != nil {
			nic.vlan = port.vlan
		}
	}
	return nic
}

// newInterface makes an interface that MAAS did not know.
func (s *Simulator) newInterface(m *machine, n HostNetwork, kind string, on *vlan) *iface {
	nic := &iface{
		id: s.db.next("interface"), name: n.Name, kind: kind, mac: n.MAC, enabled: true, machine: m, vlan: on,
		acquired: true,
	}
	m.ifaces = append(m.ifaces, nic)
	return nic
}

// takeAddresses sets the reported addresses of an interface, as static ones, whatever they were before: automatic, or
// reserved by a user. Their former holders lose them; other addresses of the interface are removed (update_links).
func (s *Simulator) takeAddresses(nic *iface, reported []netip.Prefix) {
	s.dropLease(nic)
	var links []*address
	for _, p := range reported {
		sn := s.subnetFor(nic, p)
		a := s.addressInUse(p.Addr())
		switch {
		case a == nil:
			a = s.addLink(nic, allocSticky, sn, p.Addr())
		case a.iface != nil:
			s.detach(a)
		}
		a.kind, a.subnet, a.iface = allocSticky, sn, nic
		links = append(links, a)
	}
	for _, old := range slices.Clone(nic.links) {
		if !slices.Contains(links, old) {
			s.dropAddress(old)
		}
	}
	nic.links = links
}

// detach removes an address from its interface.
func (s *Simulator) detach(a *address) {
	if a.iface.leased == a {
		a.iface.leased = nil
	}
	a.iface.links = slices.DeleteFunc(a.iface.links, func(other *address) bool { return other == a })
}

// subnetFor returns the subnet of an address; for a single address, the smallest that contains it. MAAS makes unknown
// ones, on the interface's VLAN or in a new fabric.
func (s *Simulator) subnetFor(nic *iface, p netip.Prefix) *subnet {
	var around *subnet
	for _, sn := range s.db.subnets {
		if sn.cidr == p.Masked() {
			return sn
		}
		if p.IsSingleIP() && sn.cidr.Contains(p.Addr()) && (around == nil || sn.cidr.Bits() > around.cidr.Bits()) {
			around = sn
		}
	}
	if around != nil {
		return around
	}
	if nic.vlan == nil {
		id := s.db.next("fabric") - 1
		nic.vlan = &vlan{id: s.db.next("vlan"), fabricID: id, fabric: fmt.Sprintf("fabric-%d", id), name: untaggedName, mtu: 1500, space: "undefined"}
		s.db.vlans = append(s.db.vlans, nic.vlan)
	}
	cidr := p.Masked()
	made := &subnet{id: s.db.next("subnet"), name: cidr.String(), cidr: cidr, managed: true, vlan: nic.vlan}
	s.db.subnets = append(s.db.subnets, made)
	return made
}

// knownVLAN returns the VLAN of the first of the addresses whose subnet MAAS knows; nil: none.
func (s *Simulator) knownVLAN(addresses []netip.Prefix) *vlan {
	for _, p := range addresses {
		for _, sn := range s.db.subnets {
			if sn.cidr == p.Masked() {
				return sn.vlan
			}
		}
	}
	return nil
}

// removeInterface removes an interface from its machine, and frees its addresses. What has no other part than it goes
// with it (delete_children_interface_handler in models/signals/interfaces.py).
func (s *Simulator) removeInterface(nic *iface) {
	for _, child := range nic.children() {
		if child.ports = slices.DeleteFunc(slices.Clone(child.ports), func(name string) bool { return name == nic.name }); len(child.ports) == 0 {
			s.removeInterface(child)
		}
	}
	for _, link := range slices.Clone(nic.links) {
		s.dropAddress(link)
	}
	s.dropLease(nic)
	nic.machine.ifaces = slices.DeleteFunc(nic.machine.ifaces, func(other *iface) bool { return other == nic })
}

// removeAcquired removes from a machine what was found on it while it was deployed. The addresses of a bridge move to
// its first port (release_interface_config in models/node.py).
func (s *Simulator) removeAcquired(m *machine) {
	before := joinAddrs(m.addresses())
	for _, nic := range slices.Clone(m.ifaces) {
		if !nic.acquired {
			continue
		}
		if len(nic.ports) > 0 {
			if port := m.interfaceNamed(nic.ports[0]); port != nil {
				s.moveLinks(nic, port)
			}
		}
		s.removeInterface(nic)
	}
	s.publish(m, ChangeAddresses, before, joinAddrs(m.addresses()))
}

func (s *Simulator) moveLinks(from, to *iface) {
	for _, link := range from.links {
		link.iface = to
	}
	to.links = append(to.links, from.links...)
	from.links = nil
}
