// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

func renderUser(u *user) any {
	if u == nil {
		return nil
	}
	return object{
		"username": u.name, "email": u.email, "is_superuser": u.admin, "is_local": true,
		"resource_uri": apiRoot + "users/" + u.name + "/",
	}
}

func renderZone(z *zone) object {
	return object{
		"id": z.id, "name": z.name, "description": z.description, "resource_uri": apiRoot + "zones/" + z.name + "/",
	}
}

func renderPool(p *pool) object {
	return object{
		"id": p.id, "name": p.name, "description": p.description,
		"resource_uri": fmt.Sprintf("%sresourcepool/%d/", apiRoot, p.id),
	}
}

func (s *Simulator) renderDomain(d *domain) object {
	records := 0
	for _, r := range s.db.dns {
		if r.domain == d {
			records += len(recordTypes(r.addrs))
		}
	}
	for _, m := range s.nodes() {
		if m.domain == d {
			records += len(m.addresses())
		}
	}
	return object{
		"id": d.id, "name": d.name, "authoritative": d.authoritative, "ttl": d.ttl, "is_default": d.isDefault,
		"resource_record_count": records, "resource_uri": fmt.Sprintf("%sdomains/%d/", apiRoot, d.id),
	}
}

func renderVLAN(v *vlan) any {
	if v == nil {
		return nil
	}
	var rack any
	if v.dhcpOn {
		rack = v.rack
	}
	return object{
		"id": v.id, "vid": v.vid, "name": nilIfEmpty(v.name), "mtu": v.mtu, "dhcp_on": v.dhcpOn, "external_dhcp": nil,
		"relay_vlan": nil, "fabric": v.fabric, "fabric_id": v.fabricID, "space": v.space, "primary_rack": rack,
		"secondary_rack": nil, "resource_uri": fmt.Sprintf("%svlans/%d/", apiRoot, v.id),
	}
}

func renderSubnet(sn *subnet) any {
	if sn == nil {
		return nil
	}
	dns := sn.dnsServers
	if dns == nil {
		dns = []string{}
	}
	return object{
		"id": sn.id, "name": sn.name, "description": sn.description, "cidr": sn.cidr.String(), "vlan": renderVLAN(sn.vlan),
		"gateway_ip": textOrNil(sn.gateway), "dns_servers": dns, "rdns_mode": 2, "allow_dns": true, "allow_proxy": true,
		"active_discovery": false, "managed": sn.managed, "disabled_boot_architectures": []string{}, "space": sn.vlan.space,
		"resource_uri": fmt.Sprintf("%ssubnets/%d/", apiRoot, sn.id),
	}
}

func renderAddress(a *address) object {
	interfaces := []any{}
	if a.iface != nil {
		interfaces = append(interfaces, renderInterface(a.iface))
	}
	return object{
		"ip": textOrNil(a.ip), "alloc_type": a.kind, "alloc_type_name": allocTypeNames[a.kind], "created": httpTime(a.created),
		"subnet": renderSubnet(a.subnet), "owner": renderUser(a.user), "interface_set": interfaces,
		"resource_uri": apiRoot + "ipaddresses/",
	}
}

func renderInterface(nic *iface) object {
	params := object{}
	maps.Copy(params, nic.params)
	if nic.mtu > 0 {
		params["mtu"] = nic.mtu
	}
	children := []string{}
	for _, child := range nic.children() {
		children = append(children, child.name)
	}
	slices.Sort(children)
	parents := slices.Clone(orNone(nic.ports))
	slices.Sort(parents)
	var discovered any
	if nic.leased != nil {
		discovered = []any{object{"subnet": renderSubnet(nic.leased.subnet), "ip_address": nic.leased.ip.String()}}
	}
	links := []any{}
	for _, link := range nic.links {
		links = append(links, renderLink(link))
	}
	m := nic.machine
	return object{
		"id": nic.id, "name": nic.name, "type": nic.kind, "mac_address": nic.mac, "enabled": nic.enabled,
		"vlan": renderVLAN(nic.vlan), "links": links, "tags": orNone(nic.tags), "parents": parents, "children": children,
		"effective_mtu": nic.effectiveMTU(), "params": params, "system_id": m.systemID, "link_connected": true, "link_speed": 0,
		"interface_speed": 0, "vendor": nil, "product": nil, "firmware_version": nil, "numa_node": 0, "sriov_max_vf": 0,
		"discovered":   discovered,
		"resource_uri": fmt.Sprintf("%snodes/%s/interfaces/%d/", apiRoot, m.systemID, nic.id),
	}
}

// orNone makes a nil list [] in JSON.
func orNone(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

func renderLink(a *address) object {
	link := object{"id": a.id, "mode": a.mode()}
	if a.subnet != nil {
		link["subnet"] = renderSubnet(a.subnet)
	}
	if a.ip.IsValid() {
		link["ip_address"] = a.ip.String()
	} else if a.kind == allocDHCP && a.iface.leased != nil {
		link["ip_address"] = a.iface.leased.ip.String()
	}
	return link
}

func renderDNSResource(d *dnsResource) object {
	addrs := []any{}
	for _, a := range sortedAddresses(d.addrs) {
		addrs = append(addrs, renderAddress(a))
	}
	return object{
		"id": d.id, "fqdn": d.fqdn(), "address_ttl": d.ttl, "ip_addresses": addrs, "resource_records": []any{},
		"resource_uri": fmt.Sprintf("%sdnsresources/%d/", apiRoot, d.id),
	}
}

func sortedAddresses(addrs []*address) []*address {
	out := slices.Clone(addrs)
	slices.SortFunc(out, func(a, b *address) int { return a.id - b.id })
	return out
}

func textOrNil(ip netip.Addr) any {
	if !ip.IsValid() {
		return nil
	}
	return ip.String()
}

func nilIfEmpty(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func nilIfZero(n int) any {
	if n == 0 {
		return nil
	}
	return n
}

// pyFloat is a float in Python's form: never without a point.
type pyFloat float64

// MarshalJSON writes the number.
func (f pyFloat) MarshalJSON() ([]byte, error) { return []byte(pythonFloat(float64(f))), nil }
