// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// netplan is cloud-init's network configuration, version 2. cloud-init reads JSON, too.
type netplan struct {
	Version   int                 `json:"version"`
	Ethernets map[string]ethernet `json:"ethernets"`
}

type ethernet struct {
	Match     map[string]string `json:"match"`
	SetName   string            `json:"set-name"`
	Addresses []string          `json:"addresses,omitempty"`
	Routes    []route           `json:"routes,omitempty"`
	// Gateway6 is the way to all of IPv6. cloud-init 22.4 makes a route to ::/64 of one to ::/0 where it does not write
	// netplan's files (but those of ifupdown, systemd-networkd, NetworkManager); of this one all four are right. Two
	// halves, ::/1 and 8000::/1, would be no default route to kubelet and kubeadm, which look for one.
	Gateway6    string       `json:"gateway6,omitempty"`
	Nameservers *nameservers `json:"nameservers,omitempty"`
	// Optional: the boot does not wait for it, with netplan. For the others cloud-init 22.4 loses it.
	Optional bool `json:"optional,omitempty"`
}

type route struct {
	To  string `json:"to"`
	Via string `json:"via"`
}

type nameservers struct {
	Addresses []string `json:"addresses"`
	Search    []string `json:"search,omitempty"`
}

// networkConfig returns what cloud-init makes of a VM's cards: their addresses in MAAS, and the gateways and name
// servers of their subnets there. The first card with a gateway has the default route of its family. A subnet without
// name servers of its own gets the others. A card without an address is up, and has none.
func networkConfig(want registration, device *maas.Device, others []string) (string, error) {
	config := netplan{Version: 2, Ethernets: map[string]ethernet{}}
	routed := map[bool]bool{}
	for i, c := range want.Cards {
		name := cmp.Or(c.Name, fmt.Sprintf("eth%d", i))
		config.Ethernets[name] = c.configured(name, device, others, routed)
	}
	text, err := json.Marshal(config)
	if err != nil {
		return "", fmt.Errorf("writing the network configuration: %w", err)
	}
	return string(text), nil
}

// configured returns a card's part. routed are the families, of which true is IPv4, whose default route a card has so
// far.
func (c card) configured(name string, device *maas.Device, others []string, routed map[bool]bool) ethernet {
	each := ethernet{Match: map[string]string{"macaddress": c.MAC}, SetName: name}
	subnet, ip := c.linkOf(device)
	if subnet == nil {
		each.Optional = true
		return each
	}
	each.Addresses = []string{netip.PrefixFrom(ip, c.Subnet.Bits()).String()}
	if subnet.GatewayIP != "" && !routed[ip.Is4()] {
		routed[ip.Is4()] = true
		if ip.Is4() {
			each.Routes = []route{{"0.0.0.0/0", subnet.GatewayIP}}
		} else {
			each.Gateway6 = subnet.GatewayIP
		}
	}
	servers := subnet.DNSServers
	if len(servers) == 0 {
		servers = others
	}
	if len(servers) > 0 {
		each.Nameservers = &nameservers{Addresses: servers}
		if _, domain, _ := strings.Cut(device.FQDN, "."); domain != "" {
			each.Nameservers.Search = []string{domain}
		}
	}
	return each
}

// linkOf returns the subnet and the address of a card; nil if MAAS has none for it.
func (c card) linkOf(device *maas.Device) (*maas.Subnet, netip.Addr) {
	at := c.in(device)
	if at < 0 || !c.Subnet.IsValid() {
		return nil, netip.Addr{}
	}
	for _, link := range device.Interfaces[at].Links {
		if ip, err := netip.ParseAddr(link.IPAddress); err == nil && c.Subnet.Contains(ip) {
			return link.Subnet, ip
		}
	}
	return nil, netip.Addr{}
}
