// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/netip"
	"strings"
)

// listAddresses lists what the caller has reserved, or an address of it.
func (rq *request) listAddresses() (any, error) {
	out := []any{}
	for _, a := range sortedAddresses(rq.db.addrs) {
		if a.user == rq.user && a.kind == allocUserReserved && (!rq.query.has("ip") || rq.query.get("ip") == a.ip.String()) {
			out = append(out, renderAddress(a))
		}
	}
	return out, nil
}

// reserveAddress reserves an address for the caller.
func (rq *request) reserveAddress() (any, error) {
	f := rq.data
	sn, ip, err := rq.reservation(f.get("subnet"), f.get("ip"))
	if err != nil {
		return nil, err
	}
	var r *dnsResource
	if hostname := f.get("hostname"); hostname != "" {
		if r, err = rq.nameForAddress(hostname); err != nil {
			return nil, err
		}
	}
	a := &address{
		id: rq.db.next("ip"), ip: ip, kind: allocUserReserved, subnet: sn, user: rq.user, created: rq.time.clock.Now().UTC(),
	}
	rq.db.addrs = append(rq.db.addrs, a)
	if r != nil {
		r.addrs = append(r.addrs, a)
	}
	return renderAddress(a), nil
}

// reservation returns the address: the named one, or a free one of the subnet.
func (rq *request) reservation(subnetText, ipText string) (*subnet, netip.Addr, error) {
	if subnetText == "" && ipText == "" {
		return nil, noAddress, badRequest("Must supply either the 'subnet' or the 'ip' parameter.")
	}
	var sn *subnet
	if subnetText != "" && ipText == "" {
		if sn = rq.subnetBySpecifier(subnetText); sn == nil {
			return nil, noAddress, badRequest("Unable to identify subnet: %s.", subnetText)
		}
	}
	if ipText == "" {
		ip, free := rq.freeAddress(sn)
		if !free {
			return nil, noAddress, unavailable("No more IPs available in subnet: %s.", sn.cidr)
		}
		return sn, ip, nil
	}
	ip, err := parseIP(ipText)
	if err != nil {
		return nil, noAddress, invalidField("ip_address", "Enter a valid IPv4 or IPv6 address.")
	}
	if sn == nil {
		if sn = rq.subnetOf(ip); sn == nil {
			return nil, noAddress, badRequest("No known subnet for IP address: %s.", ip)
		}
	}
	if rq.dynamicRangeOf(ip) != nil {
		return nil, noAddress, forbidden("IP address " + ip.String() + " belongs to an existing dynamic range. To reserve this IP address, a MAC address is required. (Create a device instead.)")
	}
	if err := rq.refuseStatic(ip); err != nil {
		return nil, noAddress, err
	}
	return sn, ip, nil
}

// refuseStatic refuses an address that MAAS does not allocate (allocate_new in maasserver/models/staticipaddress.py).
func (s *Simulator) refuseStatic(ip netip.Addr) error {
	if a := s.addressInUse(ip); a != nil && a.kind != allocDiscovered {
		return notFoundText("The IP address %s is already in use.", ip)
	}
	for _, kind := range []string{rangeDynamic, rangeReserved} {
		for _, r := range s.db.ranges {
			if r.kind == kind && r.contains(ip) {
				return notFoundText("%s is within the %s range from %s to %s", ip, kind, r.start, r.end)
			}
		}
	}
	return nil
}

// nameForAddress finds or makes the DNS resource of a reservation.
func (rq *request) nameForAddress(hostname string) (*dnsResource, error) {
	name, d := hostname, rq.defaultDomain()
	if strings.Contains(hostname, ".") {
		var domainName string // The part after the first dot, even if it is no domain of MAAS.
		name, domainName, _ = strings.Cut(hostname, ".")
		if d = rq.domainByName(domainName); d == nil {
			return nil, notFound("Domain")
		}
		if err := rq.need(viewGlobalEntities); err != nil {
			return nil, err
		}
	}
	for _, r := range rq.db.dns {
		if r.name == name && r.domain == d {
			return r, nil
		}
	}
	r := &dnsResource{id: rq.db.next("dnsresource"), name: name, domain: d}
	rq.db.dns = append(rq.db.dns, r)
	return r, nil
}

func (rq *request) releaseAddress() (any, error) {
	text := rq.data.get("ip")
	if text == "" {
		return nil, badRequest("No provided ip!")
	}
	ip, err := parseIP(text)
	if err != nil {
		return nil, invalidField("ip", "Enter a valid IPv4 or IPv6 address.")
	}
	force, err := rq.data.boolean("force", false)
	if err != nil {
		return nil, err
	}
	if force && !rq.may(rq.user, editGlobalEntities) {
		return nil, forbidden("Force-releasing an IP address requires admin privileges.")
	}
	a := rq.addressInUse(ip)
	if a == nil && force {
		return nil, badRequest("IP address %s does not exist.", ip)
	}
	if a == nil || !force && (a.kind != allocUserReserved || a.user != rq.user) {
		return nil, badRequest("IP address %s does not exist, is not the correct type of address, or does not belong to the requesting user.\nIf you are sure you want to release this address, use force=true as a MAAS administrator.", ip)
	}
	rq.dropAddress(a)
	return noContent{}, nil
}
