// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// InstalledFiles are the files that MAAS's installer leaves on a machine's disk for cloud-init, by path: its network, and
// where it finds its metadata. metadataURL is the address of the metadata API in the machine's network.
func (s *Simulator) InstalledFiles(systemID, metadataURL string) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machineByID(systemID)
	if m == nil {
		return nil, fmt.Errorf("there is no machine %s", systemID)
	}
	network, err := yaml.Marshal(object{"network": s.netplan(m)})
	if err != nil {
		return nil, fmt.Errorf("writing the network of machine %s: %w", systemID, err)
	}
	files := map[string][]byte{"/etc/cloud/cloud.cfg.d/50-curtin-networking.cfg": network}
	cloudConfig, err := s.cloudConfig(m, metadataURL)
	if err != nil {
		return nil, err
	}
	for _, file := range cloudConfig {
		files[file.Path] = []byte(file.Content)
	}
	return files, nil
}

// curtinFile is a file that curtin writes.
type curtinFile struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

// cloudConfig tells cloud-init where it finds its metadata (get_curtin_cloud_config in maasserver/preseed.py). That it
// reports to MAAS what it does is left out.
func (s *Simulator) cloudConfig(m *machine, metadataURL string) (map[string]curtinFile, error) {
	key := s.keyOf(m)
	source, err := yaml.Marshal(object{"datasource": object{"MAAS": object{
		"consumer_key": key.consumer, "token_key": key.token, "token_secret": key.secret, "metadata_url": metadataURL,
	}}})
	if err != nil {
		return nil, fmt.Errorf("writing the datasource of machine %s: %w", m.systemID, err)
	}
	const dir = "/etc/cloud/cloud.cfg.d/90_maas_"
	return map[string]curtinFile{
		"maas-datasource":   {dir + "datasource.cfg", "datasource_list: [ MAAS ]"},
		"maas-cloud-config": {dir + "cloud_config.cfg", "#cloud-config\n" + string(source)},
	}, nil
}

// netplanSections are where netplan has the kinds of interfaces.
var netplanSections = map[string]string{
	NetworkPhysical: "ethernets", interfaceVLAN: "vlans", interfaceBond: "bonds", NetworkBridge: "bridges",
}

// netplan is the machine's network as MAAS has it configured (NodeNetworkConfiguration in maasserver/preseed_network.py),
// without static routes and source routing. The gateway of each family is that of set_default_gateway, or the first.
func (s *Simulator) netplan(m *machine) object {
	out, gateways := object{"version": 2}, m.gateways()
	for _, nic := range m.ifaces {
		if !nic.enabled {
			continue
		}
		section := netplanSections[nic.kind]
		if out[section] == nil {
			out[section] = object{}
		}
		config := nic.netplan()
		s.addNetplanAddresses(config, nic, gateways)
		out[section].(object)[nic.name] = config
	}
	return out
}

// gateways are the links whose subnets' gateways are the machine's, at most one of each family.
func (m *machine) gateways() (chosen []*address) {
	var all []*address
	if m.gatewayLink != nil {
		all = append(all, m.gatewayLink)
	}
	for _, nic := range m.ifaces {
		all = append(all, nic.links...)
	}
	for _, link := range all {
		if !link.isStatic() || !link.subnet.gateway.IsValid() {
			continue
		}
		if !slices.ContainsFunc(chosen, func(other *address) bool { return other.ip.Is4() == link.ip.Is4() }) {
			chosen = append(chosen, link)
		}
	}
	return chosen
}

// isStatic reports whether MAAS has the machine configure the address.
func (a *address) isStatic() bool { return a.ip.IsValid() && a.subnet != nil && a.kind != allocDHCP }

// netplan is what an interface is, without its addresses (InterfaceConfiguration).
func (nic *iface) netplan() object {
	config := object{"mtu": nic.effectiveMTU()}
	if nic.vlan == nil {
		config["optional"] = true
	}
	ports := slices.Sorted(slices.Values(nic.ports))
	switch nic.kind {
	case NetworkPhysical:
		config["match"], config["set-name"] = object{"macaddress": nic.mac}, nic.name
	case interfaceVLAN:
		config["id"], config["link"] = nic.vlan.vid, nic.ports[0]
	case interfaceBond, NetworkBridge:
		config["macaddress"], config["interfaces"] = nic.mac, ports
		if nic.params["bridge_type"] == "ovs" {
			config["openvswitch"], config["optional"] = object{}, false
		}
		if parameters := nic.netplanParameters(); len(parameters) > 0 {
			config["parameters"] = parameters
		}
	}
	return config
}

// netplanNames are netplan's for MAAS's parameters of bonds and bridges (provisioningserver/utils/netplan.py). Others are
// left out.
var netplanNames = map[string]string{
	"bond_mode": "mode", "bond_miimon": "mii-monitor-interval", "bond_downdelay": "down-delay", "bond_updelay": "up-delay",
	"bond_num_grat_arp": "gratuitious-arp", //nolint:misspell // netplan has both
	"bond_lacp_rate":    "lacp-rate", "bond_xmit_hash_policy": "transmit-hash-policy",
	"bridge_stp": "stp", "bridge_fd": "forward-delay",
}

// netplanParameters leaves out what belongs to another mode of a bond (_get_bond_params).
func (nic *iface) netplanParameters() object {
	params := maps.Clone(nic.params)
	mode := params["bond_mode"]
	if mode != "802.3ad" {
		delete(params, "bond_lacp_rate")
	}
	if mode != "active-backup" {
		delete(params, "bond_num_grat_arp")
	}
	out := object{}
	for name, value := range params {
		if name := netplanNames[name]; name != "" {
			out[name] = value
		}
	}
	return out
}

// addNetplanAddresses adds the addresses that MAAS gave an interface, and what belongs to their subnets
// (_generate_addresses).
func (s *Simulator) addNetplanAddresses(config object, nic *iface, gateways []*address) {
	var addresses, servers []string
	for _, link := range nic.links {
		family := "4"
		if link.subnet != nil && link.subnet.cidr.Addr().Is6() {
			family = "6"
		}
		if link.kind == allocDHCP {
			config["dhcp"+family] = true
		}
		if !link.isStatic() {
			continue
		}
		addresses = append(addresses, fmt.Sprintf("%s/%d", link.ip, link.subnet.cidr.Bits()))
		servers = append(servers, link.subnet.dnsServers...)
		if slices.Contains(gateways, link) {
			config["gateway"+family] = link.subnet.gateway.String()
		}
	}
	if len(addresses) > 0 {
		config["addresses"] = addresses
	}
	if slices.Sort(servers); len(servers) > 0 {
		config["nameservers"] = object{"addresses": slices.Compact(servers), "search": s.searchPaths(nic.machine)}
	}
}

// searchPaths are the machine's domain, and the others that MAAS is authoritative for (get_dns_search_paths).
func (s *Simulator) searchPaths(m *machine) []string {
	out := []string{m.domain.name}
	for _, d := range s.db.domains {
		if d.authoritative && d != m.domain {
			out = append(out, d.name)
		}
	}
	slices.SortFunc(out[1:], strings.Compare)
	return out
}
