// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const metadataURL = "http://10.10.0.2:5248/MAAS/metadata/"

// metadata asks as a machine does, with the key that its installer left.
func (b *bed) metadata(systemID, path string) answer {
	b.t.Helper()
	files, err := b.InstalledFiles(systemID, metadataURL)
	if err != nil {
		b.t.Fatal(err)
	}
	var config struct {
		Datasource struct {
			MAAS map[string]string
		}
	}
	if err := yaml.Unmarshal(files["/etc/cloud/cloud.cfg.d/90_maas_cloud_config.cfg"], &config); err != nil {
		b.t.Fatal(err)
	}
	source := config.Datasource.MAAS
	if source["metadata_url"] != metadataURL {
		b.t.Errorf("the metadata is at %q", source["metadata_url"])
	}
	request, err := http.NewRequestWithContext(b.t.Context(), get, b.server.URL+metadataRoot+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	own := key{source["consumer_key"], source["token_key"], source["token_secret"]}
	request.Header.Set("Authorization", own.header(fmt.Sprint("m", b.nonce.Add(1)), b.clock.Now()))
	got, err := receive(b.server.Client().Do(request))
	if err != nil {
		b.t.Fatal(err)
	}
	return got
}

// A machine is deployed once it has asked for its user data, whatever else the installer would take.
func TestUserDataEndsADeployment(t *testing.T) {
	b := newBed(t)
	m := b.do(post, "machines/?op=allocate", "system_id", b.named("big").SystemID).object(t)
	id := m["system_id"].(string)
	if got := b.metadata(id, "latest/user-data"); got.status != http.StatusNotFound {
		t.Errorf("before the deployment: %d", got.status)
	}
	data := base64.StdEncoding.EncodeToString([]byte("#cloud-config\n"))
	b.do(post, "machines/"+id+"/?op=deploy", "distro_series", "jammy", "user_data", data).object(t)
	b.pass(b.timings.powerOn())
	if got := b.metadata(id, "2012-03-01/user-data"); got.status != http.StatusOK || got.body != "#cloud-config\n" {
		t.Errorf("%d %q", got.status, got.body)
	}
	if got, _ := b.Machine(id); got.Status != "Deployed" {
		t.Errorf("the machine is %s", got.Status)
	}
}

// netplan's names for what MAAS knows of a bond, a VLAN on it and a bridge on that, and of their addresses.
func TestNetplanOfStackedInterfaces(t *testing.T) {
	b := newBed(t)
	m := b.machineByID(b.do(get, "machines/", "hostname", "big").list(t)[0]["system_id"].(string))
	first := m.ifaces[0]
	second := &iface{name: "eth1", kind: NetworkPhysical, mac: "52:54:00:00:00:99", enabled: true, machine: m, vlan: first.vlan}
	off := &iface{name: "eth2", kind: NetworkPhysical, mac: "52:54:00:00:00:98", machine: m}
	bond := &iface{
		name: "bond0", kind: interfaceBond, mac: first.mac, enabled: true, machine: m, vlan: first.vlan, ports: []string{second.name, first.name},
		params: object{"bond_mode": "active-backup", "bond_miimon": 100, "bond_num_grat_arp": 1, "bond_lacp_rate": "fast"},
	}
	tagged := &vlan{vid: 7, mtu: 9000}
	over := &iface{name: "bond0.7", kind: interfaceVLAN, mac: first.mac, enabled: true, machine: m, vlan: tagged, ports: []string{"bond0"}}
	bridge := &iface{name: "br7", kind: NetworkBridge, mac: first.mac, enabled: true, machine: m, vlan: tagged, ports: []string{"bond0.7"},
		params: object{"bridge_type": "standard", "bridge_stp": true, "bridge_fd": 4}}
	link := *first.links[0]
	link.ip, link.kind, link.iface = link.subnet.cidr.Addr().Next(), allocSticky, bridge
	link.subnet.dnsServers = []string{"10.10.0.2"}
	first.links, bridge.links = nil, []*address{&link}
	m.ifaces = []*iface{first, second, off, bond, over, bridge}
	got, err := yaml.Marshal(b.netplan(m))
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`{version: 2,
		ethernets: {
			%s: {match: {macaddress: "%s"}, set-name: %[1]s, mtu: 9000},
			eth1: {match: {macaddress: "52:54:00:00:00:99"}, set-name: eth1, mtu: 9000}},
		bonds: {bond0: {macaddress: "%[2]s", interfaces: [%[1]s, eth1], mtu: 9000,
			parameters: {mode: active-backup, mii-monitor-interval: 100, %[3]s: 1}}},
		vlans: {bond0.7: {id: 7, link: bond0, mtu: 9000}},
		bridges: {br7: {macaddress: "%[2]s", interfaces: [bond0.7], mtu: 9000, addresses: [10.10.0.1/24], gateway4: 10.10.0.1,
			parameters: {stp: true, forward-delay: 4}, nameservers: {addresses: [10.10.0.2], search: [maas.test]}}}}`, first.name, first.mac, netplanNames["bond_num_grat_arp"])
	var expected, found any
	if err := yaml.Unmarshal([]byte(want), &expected); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(got, &found); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(expected, found); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
