// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// noAddress stands for a link that has none.
var noAddress netip.Addr

// addressInUse finds who has an address.
func (s *Simulator) addressInUse(ip netip.Addr) *address {
	for _, a := range s.db.addrs {
		if a.ip == ip {
			return a
		}
	}
	return nil
}

// dynamicRangeOf finds the dynamic range that the address is in.
func (s *Simulator) dynamicRangeOf(ip netip.Addr) *ipRange {
	for _, r := range s.db.ranges {
		if r.kind == rangeDynamic && r.contains(ip) {
			return r
		}
	}
	return nil
}

// subnetOf finds the subnet that contains the address.
func (s *Simulator) subnetOf(ip netip.Addr) *subnet {
	for _, sn := range s.db.subnets {
		if sn.cidr.Contains(ip) {
			return sn
		}
	}
	return nil
}

// freeAddress finds the address that MAAS would give away next: the first one of the subnet's smallest run of free ones;
// false when there is none.
func (s *Simulator) freeAddress(sn *subnet) (netip.Addr, bool) {
	free := s.unusedRanges(sn)
	if len(free) == 0 {
		return noAddress, false
	}
	return slices.MinFunc(free, func(a, b usedRange) int {
		return cmp.Or(cmp.Compare(a.count(), b.count()), a.start.Compare(b.start))
	}).start, true
}

// claimAutoAddresses gives an address to each AUTO link that has none; false when a subnet is exhausted.
func (s *Simulator) claimAutoAddresses(m *machine) bool {
	before := joinAddrs(m.addresses())
	ok := true
	for _, nic := range m.ifaces {
		for _, link := range nic.links {
			if link.kind != allocAuto || link.ip.IsValid() || link.subnet == nil {
				continue
			}
			ip, free := s.freeAddress(link.subnet)
			if !free {
				ok = false
				continue
			}
			link.ip = ip
		}
	}
	s.tell(m, ChangeAddresses, before, joinAddrs(m.addresses()))
	return ok
}

// releaseAutoAddresses takes the addresses from AUTO links; the links stay, also in the DNS resources that name them: those lead to the
// machine again when it is deployed the next time, by whomever.
func (s *Simulator) releaseAutoAddresses(m *machine) {
	before := joinAddrs(m.addresses())
	for _, nic := range m.ifaces {
		for _, link := range nic.links {
			if link.kind == allocAuto {
				link.ip = noAddress
			}
		}
	}
	s.tell(m, ChangeAddresses, before, joinAddrs(m.addresses()))
}

// leaseDHCP gives addresses to interfaces that are configured by DHCP, from the dynamic range.
func (s *Simulator) leaseDHCP(m *machine) {
	before := joinAddrs(m.addresses())
	for _, nic := range m.ifaces {
		for _, link := range nic.links {
			if link.kind == allocDHCP && nic.leased == nil && link.subnet != nil {
				s.lease(nic, link.subnet)
			}
		}
	}
	s.tell(m, ChangeAddresses, before, joinAddrs(m.addresses()))
}

func (s *Simulator) lease(nic *iface, sn *subnet) {
	for _, r := range s.db.ranges {
		if r.subnet != sn || r.kind != rangeDynamic {
			continue
		}
		for ip := r.start; r.contains(ip); ip = ip.Next() {
			if s.addressInUse(ip) == nil {
				nic.leased = &address{
					id: s.db.next("ip"), kind: allocDiscovered, subnet: sn, ip: ip, iface: nic,
					created: s.time.clock.Now().UTC(),
				}
				s.db.addrs = append(s.db.addrs, nic.leased)
				return
			}
		}
	}
}

func (s *Simulator) dropLease(nic *iface) {
	if nic.leased != nil {
		s.dropAddress(nic.leased)
		nic.leased = nil
	}
}

// dropAddress forgets an address, and the link that it was.
func (s *Simulator) dropAddress(a *address) {
	s.leaveDNS(a)
	s.db.addrs = slices.DeleteFunc(s.db.addrs, func(other *address) bool { return other == a })
	if a.iface == nil {
		return
	}
	a.iface.links = slices.DeleteFunc(a.iface.links, func(other *address) bool { return other == a })
	if m := a.iface.machine; m.gatewayLink == a {
		m.gatewayLink = nil
	}
}

// leaveDNS takes an address out of the DNS resources that name it; one that has none left goes too.
func (s *Simulator) leaveDNS(a *address) {
	for _, d := range slices.Clone(s.db.dns) {
		if !slices.Contains(d.addrs, a) {
			continue
		}
		d.addrs = slices.DeleteFunc(d.addrs, func(other *address) bool { return other == a })
		if len(d.addrs) == 0 {
			s.db.dns = slices.DeleteFunc(s.db.dns, func(other *dnsResource) bool { return other == d })
		}
	}
}

func lastAddr(p netip.Prefix) netip.Addr {
	raw := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(raw)*8; bit++ {
		raw[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(raw)
	return last
}

func joinAddrs(addrs []netip.Addr) string {
	texts := make([]string, 0, len(addrs))
	for _, ip := range addrs {
		texts = append(texts, ip.String())
	}
	return strings.Join(texts, ",")
}
