// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// reservedIP is an address that is kept for the interface with a MAC address (maasserver/models/reservedip.py).
type reservedIP struct {
	id     int
	ip     netip.Addr
	subnet *subnet
	mac    string
}

func renderReservedIP(r *reservedIP) object {
	return object{
		"id": r.id, "ip": r.ip.String(), "subnet": renderSubnet(r.subnet), "mac_address": r.mac, "comment": "",
		"resource_uri": fmt.Sprintf("%sreservedips/%d/", apiRoot, r.id),
	}
}

// hasReservedIPs reports whether this MAAS has reserved IPs.
func (s *Simulator) hasReservedIPs() bool { return s.version.AtLeast(3, 6, 0) }

func (rq *request) reservedIPFor() (*reservedIP, error) {
	at := slices.IndexFunc(rq.db.reserved, func(r *reservedIP) bool { return strconv.Itoa(r.id) == rq.vars[0] })
	if at < 0 {
		return nil, notFound("ReservedIP")
	}
	return rq.db.reserved[at], nil
}

// createReservedIP is ReservedIPForm in maasserver/forms/reservedip.py.
func (rq *request) createReservedIP() (any, error) {
	if err := rq.need(editGlobalEntities); err != nil {
		return nil, err
	}
	ip, err := parseIP(rq.data.get("ip"))
	if err != nil {
		return nil, invalidField("ip", "Enter a valid IPv4 or IPv6 address.")
	}
	r := &reservedIP{ip: ip, subnet: rq.subnetOf(ip), mac: strings.ToLower(rq.data.get("mac_address"))}
	if r.subnet == nil {
		return nil, invalidField("subnet", "There is no subnet for %s. Create the subnet and try again.", ip)
	}
	r.id = rq.db.next("reservedip")
	rq.db.reserved = append(rq.db.reserved, r)
	return renderReservedIP(r), nil
}

func (rq *request) deleteReservedIP() (any, error) {
	if err := rq.need(editGlobalEntities); err != nil {
		return nil, err
	}
	r, err := rq.reservedIPFor()
	if err != nil {
		return nil, err
	}
	rq.db.reserved = slices.DeleteFunc(rq.db.reserved, func(o *reservedIP) bool { return o == r })
	return noContent{}, nil
}

// reservedFor returns the address that is kept for an interface, or nil.
func (s *Simulator) reservedFor(nic *iface) *reservedIP {
	at := slices.IndexFunc(s.db.reserved, func(r *reservedIP) bool { return r.mac == nic.mac })
	if at < 0 {
		return nil
	}
	return s.db.reserved[at]
}

// refuseReservedIP refuses a static address that is kept for another interface, or for which the interface has another
// (_link_subnet_static in maasserver/models/interface.py).
func (s *Simulator) refuseReservedIP(nic *iface, ip netip.Addr) error {
	own := s.reservedFor(nic)
	at := slices.IndexFunc(s.db.reserved, func(r *reservedIP) bool { return r.ip == ip && r.mac != nic.mac })
	switch {
	case own != nil && own.ip == ip:
		return nil
	case own != nil && at >= 0:
		return conflict("The MAC address %s or the static IP %s are associated with a reserved IP and cannot be used.", nic.mac, ip)
	case own != nil:
		return conflict("The static IP %s does not match the reserved IP %s for the MAC address %s.", ip, own.ip, nic.mac)
	case at >= 0:
		return conflict("The static IP %s is already reserved for the MAC address %s.", ip, s.db.reserved[at].mac)
	}
	return nil
}

// claimAutoAddresses gives an address to each AUTO link that has none, or returns MAAS's refusal.
func (s *Simulator) claimAutoAddresses(m *machine) error {
	before := joinAddrs(m.addresses())
	defer func() { s.publish(m, ChangeAddresses, before, joinAddrs(m.addresses())) }()
	for _, nic := range m.ifaces {
		if err := s.claimFor(nic); err != nil {
			return err
		}
	}
	return nil
}

// claimFor is claim_auto_ips in maasserver/models/interface.py: an interface gets the address that is kept for it, and no
// other interface does.
func (s *Simulator) claimFor(nic *iface) error {
	own := s.reservedFor(nic)
	var except []netip.Addr
	if own == nil {
		for _, r := range s.db.reserved {
			except = append(except, r.ip)
		}
	}
	wants, gets := false, false
	for _, link := range nic.links {
		if link.kind != allocAuto {
			continue
		}
		wants = true
		switch {
		case link.ip.IsValid():
		case link.subnet == nil:
			return notFoundText("Automatic IP address cannot be configured on interface %s without an associated subnet.", nic.name)
		case own != nil && !gets && own.subnet == link.subnet:
			if a := s.addressInUse(own.ip); a != nil && a.kind != allocDiscovered {
				return notFoundText("The IP address %s is already in use.", own.ip)
			}
			link.ip, gets = own.ip, true
		default:
			ip, free := s.freeAddress(link.subnet, except...)
			if !free {
				return unavailable("No more IPs available in subnet: %s.", link.subnet.cidr)
			}
			link.ip = ip
		}
	}
	if own != nil && wants && !gets {
		return notFoundText("This interface %s has a reserved ip %s but it does not have a link to that subnet", nic.mac, own.ip)
	}
	return nil
}
