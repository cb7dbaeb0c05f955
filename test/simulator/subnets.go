// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/netip"
	"slices"
)

func (rq *request) listSubnets() (any, error) {
	out := []any{}
	for _, sn := range rq.db.subnets {
		out = append(out, renderSubnet(sn))
	}
	return out, nil
}

func (rq *request) subnetFor() (*subnet, error) {
	if sn := rq.subnetBySpecifier(rq.vars[0]); sn != nil {
		return sn, rq.need(viewGlobalEntities)
	}
	return nil, notFound("Subnet")
}

func (rq *request) readSubnet() (any, error) {
	sn, err := rq.subnetFor()
	if err != nil {
		return nil, err
	}
	return renderSubnet(sn), nil
}

func (rq *request) createSubnet() (any, error) {
	if err := rq.check(editGlobalEntities, adminOnly()); err != nil {
		return nil, err
	}
	cidr, err := netip.ParsePrefix(rq.data.get("cidr"))
	if err != nil {
		return nil, invalidField("cidr", "Invalid network: %s.", rq.data.get("cidr"))
	}
	cidr = cidr.Masked()
	if len(rq.db.vlans) == 0 {
		rq.buildVLAN(RegionSubnet{})
	}
	sn := &subnet{id: rq.db.next("subnet"), name: cidr.String(), cidr: cidr, managed: true, vlan: rq.db.vlans[0]}
	rq.db.subnets = append(rq.db.subnets, sn)
	return renderSubnet(sn), nil
}

func (rq *request) deleteSubnet() (any, error) {
	sn, err := rq.subnetFor()
	if err != nil {
		return nil, err
	}
	if err := rq.need(editGlobalEntities); err != nil {
		return nil, err
	}
	for _, a := range slices.Clone(rq.db.addrs) {
		if a.subnet == sn {
			rq.dropAddress(a)
		}
	}
	rq.db.ranges = slices.DeleteFunc(rq.db.ranges, func(r *ipRange) bool { return r.subnet == sn })
	rq.db.subnets = slices.DeleteFunc(rq.db.subnets, func(o *subnet) bool { return o == sn })
	return noContent{}, nil
}

// usedRange is a range of addresses that are not free, with the reason.
type usedRange struct {
	start, end netip.Addr
	purpose    []string
}

func (u usedRange) render() object {
	return object{
		"start": u.start.String(), "end": u.end.String(), "num_addresses": u.count(), "purpose": u.purpose,
	}
}

func (u usedRange) count() int64 { return addrNumber(u.end) - addrNumber(u.start) + 1 }

// addrNumber returns an address as a number for differences; IPv6 by its last 8 bytes.
func addrNumber(ip netip.Addr) int64 {
	raw := ip.AsSlice()
	var n int64
	for _, b := range raw[max(0, len(raw)-8):] {
		n = n<<8 | int64(b)
	}
	return n
}

// usedRanges returns the ranges of the subnet's addresses that MAAS would not allocate, in order. Overlapping ranges
// are joined with all their purposes, and so are adjacent ones with the same purposes (_condense in
// provisioningserver/utils/network.py).
func (s *Simulator) usedRanges(sn *subnet) []usedRange {
	var merged []usedRange
	for _, u := range s.uses(sn) {
		if n := len(merged); n > 0 && !merged[n-1].end.Less(u.start) {
			last := &merged[n-1]
			if last.end.Less(u.end) {
				last.end = u.end
			}
			last.purpose = append(last.purpose, u.purpose...)
			slices.Sort(last.purpose)
			last.purpose = slices.Compact(last.purpose)
			continue
		}
		merged = append(merged, u)
	}
	var out []usedRange
	for _, u := range merged {
		if n := len(out); n > 0 && out[n-1].end.Next() == u.start && slices.Equal(out[n-1].purpose, u.purpose) {
			out[n-1].end = u.end
			continue
		}
		out = append(out, u)
	}
	return out
}

// uses returns the uses of the subnet's addresses, one by one, in order.
func (s *Simulator) uses(sn *subnet) []usedRange {
	var out []usedRange
	add := func(start, end netip.Addr, purpose string) {
		if start.IsValid() && sn.cidr.Contains(start) {
			out = append(out, usedRange{start, end, []string{purpose}})
		}
	}
	add(sn.gateway, sn.gateway, "gateway-ip")
	for _, text := range sn.dnsServers {
		if ip, err := netip.ParseAddr(text); err == nil {
			add(ip, ip, "dns-server")
		}
	}
	for _, r := range s.db.ranges {
		if r.subnet == sn {
			add(r.start, r.end, r.kind)
		}
	}
	for _, a := range s.db.addrs {
		if a.subnet == sn {
			add(a.ip, a.ip, "assigned-ip")
		}
	}
	slices.SortStableFunc(out, func(a, b usedRange) int { return a.start.Compare(b.start) })
	return out
}

// unusedRanges returns the gaps between the used ones.
func (s *Simulator) unusedRanges(sn *subnet) []usedRange {
	var out []usedRange
	last := lastAddr(sn.cidr)
	next := sn.cidr.Addr().Next()
	for _, u := range s.usedRanges(sn) {
		if next.Less(u.start) {
			out = append(out, usedRange{next, u.start.Prev(), []string{"unused"}})
		}
		if !u.end.Less(next) {
			next = u.end.Next()
		}
	}
	if next.Less(last) {
		out = append(out, usedRange{next, last.Prev(), []string{"unused"}})
	}
	return out
}

func (rq *request) subnetReservedRanges() (any, error) { return rq.subnetRanges(rq.usedRanges) }

func (rq *request) subnetUnreservedRanges() (any, error) {
	value, err := rq.subnetRanges(rq.unusedRanges)
	if list, ok := value.([]any); ok {
		for _, item := range list {
			delete(item.(object), "purpose")
		}
	}
	return value, err
}

func (rq *request) subnetRanges(of func(*subnet) []usedRange) (any, error) {
	sn, err := rq.subnetFor()
	if err != nil {
		return nil, err
	}
	out := []any{}
	for _, u := range of(sn) {
		out = append(out, u.render())
	}
	return out, nil
}

func (rq *request) subnetAddresses() (any, error) {
	sn, err := rq.subnetFor()
	if err != nil {
		return nil, err
	}
	out := []any{}
	for _, a := range sortedAddresses(rq.db.addrs) {
		if a.subnet != sn || !a.ip.IsValid() {
			continue
		}
		entry := object{"ip": a.ip.String(), "alloc_type": a.kind, "created": httpTime(a.created), "updated": httpTime(a.created)}
		if a.user != nil {
			entry["user"] = a.user.name
		}
		if a.iface != nil {
			m := a.iface.machine
			entry["node_summary"] = object{
				"system_id": m.systemID, "node_type": m.nodeType(), "fqdn": m.fqdn(), "hostname": m.hostname, "via": a.iface.name,
				"is_container": false,
			}
		}
		var names []any
		for _, r := range rq.db.dns {
			if slices.Contains(r.addrs, a) {
				names = append(names, object{"id": r.id, "name": r.name, "domain": r.domain.name})
			}
		}
		if len(names) > 0 {
			entry["dns_records"] = names
		}
		out = append(out, entry)
	}
	return out, nil
}
