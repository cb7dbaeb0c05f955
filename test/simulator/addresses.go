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

// addressInUse returns the record of an address.
func (s *Simulator) addressInUse(ip netip.Addr) *address {
	for _, a := range s.db.addrs {
		if a.ip == ip {
			return a
		}
	}
	return nil
}

// dynamicRangeOf returns the dynamic range of an address.
func (s *Simulator) dynamicRangeOf(ip netip.Addr) *ipRange {
	for _, r := range s.db.ranges {
		if r.kind == rangeDynamic && r.contains(ip) {
			return r
		}
	}
	return nil
}

// subnetOf returns the subnet that contains the address.
func (s *Simulator) subnetOf(ip netip.Addr) *subnet {
	for _, sn := range s.db.subnets {
		if sn.cidr.Contains(ip) {
			return sn
		}
	}
	return nil
}

// freeAddress returns the address that MAAS would allocate next: the first one of the subnet's smallest free range;
// false if there is none.
func (s *Simulator) freeAddress(sn *subnet, except ...netip.Addr) (netip.Addr, bool) {
	free := s.unusedRanges(sn)
	for _, ip := range except {
		free = without(free, ip)
	}
	if len(free) == 0 {
		return noAddress, false
	}
	return slices.MinFunc(free, func(a, b usedRange) int {
		return cmp.Or(cmp.Compare(a.count(), b.count()), a.start.Compare(b.start))
	}).start, true
}

// without returns free ranges without an address.
func without(free []usedRange, ip netip.Addr) (out []usedRange) {
	for _, r := range free {
		if ip.Less(r.start) || r.end.Less(ip) {
			out = append(out, r)
			continue
		}
		if r.start.Less(ip) {
			out = append(out, usedRange{r.start, ip.Prev(), r.purpose})
		}
		if ip.Less(r.end) {
			out = append(out, usedRange{ip.Next(), r.end, r.purpose})
		}
	}
	return out
}

// releaseAutoAddresses removes the addresses of AUTO links; the links stay, also in the DNS resources that name them:
// those contain the machine's address again when any user deploys it.
func (s *Simulator) releaseAutoAddresses(m *machine) {
	before := joinAddrs(m.addresses())
	for _, nic := range m.ifaces {
		for _, link := range nic.links {
			if link.kind == allocAuto {
				link.ip = noAddress
			}
		}
	}
	s.publish(m, ChangeAddresses, before, joinAddrs(m.addresses()))
}

// leaseDHCP gives addresses from the dynamic range to interfaces that are configured by DHCP.
func (s *Simulator) leaseDHCP(m *machine) {
	before := joinAddrs(m.addresses())
	for _, nic := range m.ifaces {
		for _, link := range nic.links {
			if link.kind == allocDHCP && nic.leased == nil && link.subnet != nil {
				s.lease(nic, link.subnet)
			}
		}
	}
	s.publish(m, ChangeAddresses, before, joinAddrs(m.addresses()))
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

// dropAddress deletes an address and its link.
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

// leaveDNS removes an address from the DNS resources that name it; a resource without addresses is deleted.
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
