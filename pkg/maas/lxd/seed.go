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
	Match       map[string]string `json:"match"`
	SetName     string            `json:"set-name"`
	Addresses   []string          `json:"addresses,omitempty"`
	Routes      []route           `json:"routes,omitempty"`
	Nameservers *nameservers      `json:"nameservers,omitempty"`
	// Optional: the boot does not wait for it.
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
	routed := map[string]bool{}
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

// configured returns a card's part. routed are the default routes that cards have so far.
func (c card) configured(name string, device *maas.Device, others []string, routed map[string]bool) ethernet {
	each := ethernet{Match: map[string]string{"macaddress": c.MAC}, SetName: name}
	subnet, ip := c.linkOf(device)
	if subnet == nil {
		each.Optional = true
		return each
	}
	each.Addresses = []string{netip.PrefixFrom(ip, c.Subnet.Bits()).String()}
	if to := defaultOf(ip); subnet.GatewayIP != "" && !routed[to] {
		routed[to] = true
		each.Routes = []route{{to, subnet.GatewayIP}}
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

// defaultOf is the default route of an address's family.
func defaultOf(ip netip.Addr) string {
	if ip.Is4() {
		return "0.0.0.0/0"
	}
	return "::/0"
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
