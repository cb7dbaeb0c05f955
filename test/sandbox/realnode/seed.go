// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
)

// errNotYet is for machines that real nodes can't be yet.
var errNotYet = errors.New("real nodes can't have it yet")

// seedDir is where cloud-init finds what the installer left.
const seedDir = "/var/lib/cloud/seed/nocloud"

// seed is what MAAS's installer leaves for cloud-init, by file name.
func seed(m simulator.MachineSnapshot, dns netip.Addr) (map[string][]byte, error) {
	metadata, err := yaml.Marshal(map[string]string{"instance-id": m.SystemID, "local-hostname": m.Hostname, "availability-zone": m.Zone})
	if err != nil {
		return nil, fmt.Errorf("writing the metadata of %s: %w", m.Hostname, err)
	}
	network, err := networkConfig(m, dns)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"user-data": m.UserData, "meta-data": metadata, "network-config": network}, nil
}

type (
	netplan struct {
		Version   int                 `json:"version"`
		Ethernets map[string]ethernet `json:"ethernets"`
	}
	ethernet struct {
		Match       map[string]string `json:"match"`
		SetName     string            `json:"set-name"`
		Addresses   []string          `json:"addresses,omitempty"`
		Routes      []route           `json:"routes,omitempty"`
		Nameservers *nameservers      `json:"nameservers,omitempty"`
	}
	route struct {
		To  string `json:"to"`
		Via string `json:"via"`
	}
	nameservers struct {
		Addresses []string `json:"addresses"`
		Search    []string `json:"search"`
	}
)

// networkConfig is what MAAS makes of the machine's interfaces: cards alone, so far.
func networkConfig(m simulator.MachineSnapshot, dns netip.Addr) ([]byte, error) {
	_, domain, _ := strings.Cut(m.FQDN, ".")
	config := netplan{Version: 2, Ethernets: map[string]ethernet{}}
	for _, nic := range m.Interfaces {
		if len(nic.Ports) > 0 {
			return nil, fmt.Errorf("the interface %s of %s, made of others: %w", nic.Name, m.Hostname, errNotYet)
		}
		card := ethernet{Match: map[string]string{"macaddress": nic.MAC}, SetName: nic.Name}
		for _, address := range nic.Addresses {
			card.Addresses = append(card.Addresses, address.String())
		}
		if nic.Gateway != "" {
			card.Routes = []route{{To: "0.0.0.0/0", Via: nic.Gateway}}
		}
		if len(nic.Addresses) > 0 {
			card.Nameservers = &nameservers{Addresses: []string{dns.String()}, Search: []string{domain}}
		}
		config.Ethernets[nic.Name] = card
	}
	return yaml.Marshal(config)
}

// cards are the machine's network cards, as devices of a container.
func cards(m simulator.MachineSnapshot, bridge string) map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, nic := range m.Interfaces {
		all[nic.Name] = map[string]string{"type": "nic", "nictype": "bridged", "parent": bridge, "name": nic.Name, "hwaddr": nic.MAC}
	}
	return all
}
