// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

func TestNetworkConfig(t *testing.T) {
	nic := func(mac, ip string, subnet *maas.Subnet) *maas.Interface {
		return &maas.Interface{ID: 1, MACAddress: mac, Links: []maas.Link{{Mode: maas.LinkModeStatic, IPAddress: ip, Subnet: subnet}}}
	}
	four := &maas.Subnet{GatewayIP: "10.0.0.1", DNSServers: []string{"10.0.0.2"}}
	device := &maas.Device{FQDN: "cp-0.example.org", Interfaces: []*maas.Interface{
		nic("00:16:3E:00:00:01", "10.0.0.5", four), nic("00:16:3e:00:00:02", "10.1.0.5", &maas.Subnet{GatewayIP: "10.1.0.1"}),
		nic("00:16:3e:00:00:03", "fd00::5", &maas.Subnet{GatewayIP: "fd00::1"}), nic("00:16:3e:00:00:04", "10.0.0.9", four),
		nic("00:16:3e:00:00:05", "fd01::5", &maas.Subnet{GatewayIP: "fd01::1"}),
	}}
	want := registration{Cards: []card{
		{MAC: "00:16:3e:00:00:01", Subnet: netip.MustParsePrefix("10.0.0.0/24")},
		{MAC: "00:16:3e:00:00:02", Subnet: netip.MustParsePrefix("10.1.0.0/16"), Name: "storage0"},
		{MAC: "00:16:3e:00:00:03", Subnet: netip.MustParsePrefix("fd00::/64")},
		{MAC: "00:16:3e:00:00:04"},
		{MAC: "00:16:3e:00:00:05", Subnet: netip.MustParsePrefix("fd01::/64")},
	}}
	text, err := networkConfig(want, device, []string{"10.9.9.9"})
	if err != nil {
		t.Fatal(err)
	}
	var got netplan
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	match := func(mac string) map[string]string { return map[string]string{"macaddress": mac} }
	dns := func(server string) *nameservers {
		return &nameservers{Addresses: []string{server}, Search: []string{"example.org"}}
	}
	wanted := netplan{Version: 2, Ethernets: map[string]ethernet{
		"eth0": {
			Match: match("00:16:3e:00:00:01"), SetName: "eth0", Addresses: []string{"10.0.0.5/24"},
			Routes: []route{{"0.0.0.0/0", "10.0.0.1"}}, Nameservers: dns("10.0.0.2"),
		},
		"storage0": {Match: match("00:16:3e:00:00:02"), SetName: "storage0", Addresses: []string{"10.1.0.5/16"}, Nameservers: dns("10.9.9.9")},
		"eth2": {
			Match: match("00:16:3e:00:00:03"), SetName: "eth2", Addresses: []string{"fd00::5/64"},
			Gateway6: "fd00::1", Nameservers: dns("10.9.9.9"),
		},
		"eth4": {Match: match("00:16:3e:00:00:05"), SetName: "eth4", Addresses: []string{"fd01::5/64"}, Nameservers: dns("10.9.9.9")},
		"eth3": {Match: match("00:16:3e:00:00:04"), SetName: "eth3", Optional: true},
	}}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
