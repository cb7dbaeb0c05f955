// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
)

const (
	internal = clusterv1.MachineInternalIP
	external = clusterv1.MachineExternalIP
)

func typed(pairs ...any) []clusterv1.MachineAddress {
	var list []clusterv1.MachineAddress
	for pair := range slices.Chunk(pairs, 2) {
		list = append(list, clusterv1.MachineAddress{Type: pair[0].(clusterv1.MachineAddressType), Address: pair[1].(string)})
	}
	return list
}

func TestMachineAddresses(t *testing.T) {
	for name, tc := range map[string]struct {
		addresses, preferred, notIts []string
		want                         []clusterv1.MachineAddress
	}{
		"MAAS's order where nothing is preferred": {
			addresses: []string{"10.1.0.1", "10.0.0.1"}, want: typed(internal, "10.1.0.1", internal, "10.0.0.1"),
		},
		"preferred subnets first, in their order": {
			addresses: []string{"10.2.0.1", "10.1.0.1", "10.0.0.1"}, preferred: []string{"10.0.0.0/24", "10.1.0.0/24"},
			want: typed(internal, "10.0.0.1", internal, "10.1.0.1", internal, "10.2.0.1"),
		},
		"what is no CIDR counts for nothing": {
			addresses: []string{"10.0.0.1", "fd00::1"}, preferred: []string{"nonsense", " fd00::/64 "},
			want: typed(internal, "fd00::1", internal, "10.0.0.1"),
		},
		"each once, however it is written": {
			addresses: []string{"2001:DB8::1", "2001:db8:0::1", "10.0.0.1", "::ffff:10.0.0.1", "10.0.0.1", ""},
			want:      typed(internal, "2001:db8::1", internal, "10.0.0.1"),
		},
		"what only the machine can use is left out": {
			addresses: []string{"fe80::1%eth0", "169.254.10.1", "127.0.0.1", "::1", "0.0.0.0", "ff02::1", "10.0.0.1"}, want: typed(internal, "10.0.0.1"),
		},
		"link-local alone is no address":                     {addresses: []string{"fe80::1"}, want: nil},
		"a public address beside a private one is external":  {addresses: []string{"203.0.113.9", "10.0.0.1"}, want: typed(internal, "10.0.0.1", external, "203.0.113.9")},
		"a public address that is all there is, is internal": {addresses: []string{"203.0.113.9"}, want: typed(internal, "203.0.113.9")},
		"each family by itself":                              {addresses: []string{"10.0.0.1", "2001:db8::1"}, want: typed(internal, "10.0.0.1", internal, "2001:db8::1")},
		"a public IPv6 address beside a unique local one":    {addresses: []string{"2001:db8::1", "fd00::1"}, want: typed(internal, "fd00::1", external, "2001:db8::1")},
		"carriers' shared addresses are internal":            {addresses: []string{"203.0.113.9", "100.64.0.7"}, want: typed(internal, "100.64.0.7", external, "203.0.113.9")},
		"a public address in a preferred subnet is internal": {addresses: []string{"10.0.0.1", "203.0.113.9"}, preferred: []string{"203.0.113.0/24"}, want: typed(internal, "203.0.113.9", internal, "10.0.0.1")},
		"one that is written in another way":                 {addresses: []string{"fd00::9", "fd00::1"}, notIts: []string{"FD00:0::9"}, want: typed(internal, "fd00::1")},
		"an address that is not the machine's own":           {addresses: []string{"10.0.0.9", "10.0.0.1"}, notIts: []string{"10.0.0.9"}, want: typed(internal, "10.0.0.1")},
		"none": {want: nil},
		"a preferred subnet in which the machine has nothing": {addresses: []string{"10.0.0.1"}, preferred: []string{"10.9.0.0/24"}, want: typed(internal, "10.0.0.1")},
	} {
		t.Run(name, func(t *testing.T) {
			got := MachineAddresses(&maas.Machine{IPAddresses: tc.addresses}, Preference{Subnets: parsePrefixes(tc.preferred)}, tc.notIts...)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("the addresses differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMachineAddressesByInterface(t *testing.T) {
	// The address of eth1 is on the bridge that is on the bond on it, and MAAS has only discovered that of eth2.
	m := &maas.Machine{
		IPAddresses: []string{"10.0.0.1", "10.1.0.1", "10.2.0.1", "203.0.113.9"},
		Interfaces: []*maas.Interface{
			{Name: "eth0", Tags: []string{"pxe"}, Links: []maas.Link{{IPAddress: "10.0.0.1"}, {IPAddress: "203.0.113.9"}}},
			{Name: "eth1", Tags: []string{"api", "fast"}, Children: []string{"bond0"}},
			{Name: "bond0", Children: []string{"br0"}},
			{Name: "br0", Links: []maas.Link{{IPAddress: "10.1.0.1"}}},
			{Name: "eth2", Tags: []string{"fast"}, Discovered: []maas.Link{{IPAddress: "10.2.0.1"}}},
		},
	}
	for name, tc := range map[string]struct {
		interfaces, subnets, want []string
	}{
		"none":                                 {nil, nil, []string{"10.0.0.1", "10.1.0.1", "10.2.0.1", "203.0.113.9"}},
		"by name":                              {[]string{"eth2"}, nil, []string{"10.2.0.1", "10.0.0.1", "10.1.0.1", "203.0.113.9"}},
		"by tag, on the bridge":                {[]string{"api"}, nil, []string{"10.1.0.1", "10.0.0.1", "10.2.0.1", "203.0.113.9"}},
		"by the bridge's name":                 {[]string{"br0"}, nil, []string{"10.1.0.1", "10.0.0.1", "10.2.0.1", "203.0.113.9"}},
		"several with the tag":                 {[]string{"fast"}, nil, []string{"10.1.0.1", "10.2.0.1", "10.0.0.1", "203.0.113.9"}},
		"in their order":                       {[]string{"eth2", "api"}, nil, []string{"10.2.0.1", "10.1.0.1", "10.0.0.1", "203.0.113.9"}},
		"the machine has no such interface":    {[]string{"eth9"}, nil, []string{"10.0.0.1", "10.1.0.1", "10.2.0.1", "203.0.113.9"}},
		"before the subnets":                   {[]string{"api"}, []string{"10.2.0.0/24"}, []string{"10.1.0.1", "10.2.0.1", "10.0.0.1", "203.0.113.9"}},
		"a subnet of the interface":            {[]string{"pxe"}, []string{"203.0.113.0/24"}, []string{"203.0.113.9", "10.0.0.1", "10.1.0.1", "10.2.0.1"}},
		"a public address on it is internal":   {[]string{"eth0"}, nil, []string{"10.0.0.1", "203.0.113.9", "10.1.0.1", "10.2.0.1"}},
		"a subnet, and none of the interfaces": {[]string{"eth9"}, []string{"10.2.0.0/24"}, []string{"10.2.0.1", "10.0.0.1", "10.1.0.1", "203.0.113.9"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, address := range MachineAddresses(m, Preference{Interfaces: tc.interfaces, Subnets: parsePrefixes(tc.subnets)}) {
				got = append(got, address.Address)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("the addresses differ (-want +got):\n%s", diff)
			}
		})
	}
}

// A cycle, which MAAS does not allow, ends.
func TestInterfacesInACycle(t *testing.T) {
	m := &maas.Machine{IPAddresses: []string{"10.0.0.1"}, Interfaces: []*maas.Interface{
		{Name: "a", Children: []string{"b"}, Links: []maas.Link{{IPAddress: "10.0.0.1"}}}, {Name: "b", Children: []string{"a"}},
	}}
	if got := MachineAddresses(m, Preference{Interfaces: []string{"c"}}); len(got) != 1 {
		t.Errorf("it has the addresses %v, want one", got)
	}
}

func TestMachineAddressesHaveTheNames(t *testing.T) {
	m := &maas.Machine{IPAddresses: []string{"10.0.0.1"}, Hostname: "cp-0", FQDN: "cp-0.maas"}
	want := typed(internal, "10.0.0.1", clusterv1.MachineHostName, "cp-0", clusterv1.MachineInternalDNS, "cp-0.maas")
	if diff := cmp.Diff(want, MachineAddresses(m, Preference{})); diff != "" {
		t.Errorf("the addresses differ (-want +got):\n%s", diff)
	}
	m.FQDN = m.Hostname
	if diff := cmp.Diff(want[:2], MachineAddresses(m, Preference{})); diff != "" {
		t.Errorf("without a domain the addresses differ (-want +got):\n%s", diff)
	}
}

func TestNICs(t *testing.T) {
	static := func(name, subnet string) machine.NIC {
		return machine.NIC{Name: name, Mode: maas.LinkModeStatic, Subnet: subnet, Address: "10.0.0.5"}
	}
	for name, tc := range map[string]struct {
		devices []infrav1.LXDNetworkDevice
		address string
		want    []machine.NIC
	}{
		"nothing asked for":                                   {},
		"the boot interface carries the address":              {address: "10.0.0.5", want: []machine.NIC{static("", "")}},
		"the first device carries the address":                {devices: []infrav1.LXDNetworkDevice{{Name: "eth0", Bridge: "br0"}, {Name: "eth1", Bridge: "br1"}}, address: "10.0.0.5", want: []machine.NIC{static("eth0", "")}},
		"the device that is marked carries it, on its subnet": {devices: []infrav1.LXDNetworkDevice{{Name: "eth0", Bridge: "br0"}, {Name: "eth1", Subnet: "10.0.0.9/24", LinkMode: infrav1.LinkModeStatic}}, address: "10.0.0.5", want: []machine.NIC{static("eth1", "10.0.0.0/24")}},
		"modes without an address":                            {devices: []infrav1.LXDNetworkDevice{{Name: "eth0", Bridge: "br0", LinkMode: infrav1.LinkModeDHCP}, {Name: "eth1", Bridge: "br1", LinkMode: infrav1.LinkModeLinkUp}}, want: []machine.NIC{{Name: "eth0", Mode: maas.LinkModeDHCP}, {Name: "eth1", Mode: maas.LinkModeLinkUp}}},
		"a subnet is made sure of, a bridge's is MAAS's work": {devices: []infrav1.LXDNetworkDevice{{Name: "eth0", Bridge: "br0"}, {Name: "eth1", Subnet: "10.1.0.0/24"}}, want: []machine.NIC{{Name: "eth1", Mode: maas.LinkModeAuto, Subnet: "10.1.0.0/24"}}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &Machine{MaasMachine: &infrav1.MaasMachine{}}
			if tc.devices != nil {
				m.MaasMachine.Spec.LXDConfig = &infrav1.LXDMachineConfig{Network: infrav1.LXDNetwork{Devices: tc.devices}}
			}
			if diff := cmp.Diff(tc.want, m.NICs(tc.address)); diff != "" {
				t.Errorf("the interfaces differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNICsOfBareMetal(t *testing.T) {
	static := machine.NIC{Mode: maas.LinkModeStatic, Address: "10.0.0.5"}
	onBridge := machine.NIC{Name: "br0", Mode: maas.LinkModeStatic, Subnet: "10.0.0.0/24", Address: "10.0.0.5"}
	bond := infrav1.MachineInterface{Name: "bond0", Type: infrav1.InterfaceTypeBond, Parents: []string{"eth0"}}
	for name, tc := range map[string]struct {
		interfaces []infrav1.MachineInterface
		address    string
		want       []machine.NIC
	}{
		"nothing connected":             {interfaces: []infrav1.MachineInterface{bond}},
		"the boot interface carries it": {interfaces: []infrav1.MachineInterface{bond}, address: "10.0.0.5", want: []machine.NIC{static}},
		"the marked one carries it":     {interfaces: []infrav1.MachineInterface{bond, {Name: "br0", Subnet: "10.0.0.9/24", LinkMode: infrav1.LinkModeStatic}}, address: "10.0.0.5", want: []machine.NIC{onBridge}},
		"a subnet alone is automatic":   {interfaces: []infrav1.MachineInterface{{Name: "eth0", Subnet: "10.1.0.0/24"}}, want: []machine.NIC{{Name: "eth0", Mode: maas.LinkModeAuto, Subnet: "10.1.0.0/24"}}},
		"a mode alone":                  {interfaces: []infrav1.MachineInterface{{Name: "eth0", LinkMode: infrav1.LinkModeDHCP}}, want: []machine.NIC{{Name: "eth0", Mode: maas.LinkModeDHCP}}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &Machine{MaasMachine: &infrav1.MaasMachine{Spec: infrav1.MaasMachineSpec{Interfaces: tc.interfaces}}}
			if diff := cmp.Diff(tc.want, m.NICs(tc.address)); diff != "" {
				t.Errorf("the interfaces differ (-want +got):\n%s", diff)
			}
		})
	}
}

// MAAS adds the networks of a VM host's pods to the machine's.
func TestForeignAddressesAreThoseOffTheBootVLAN(t *testing.T) {
	on := func(vlan int, ips ...string) *maas.Interface {
		nic := &maas.Interface{VLAN: &maas.VLAN{ID: vlan}}
		for _, ip := range ips {
			nic.Links = append(nic.Links, maas.Link{IPAddress: ip})
		}
		return nic
	}
	storage := []netip.Prefix{netip.MustParsePrefix("10.88.0.0/24")}
	for name, tc := range map[string]struct {
		machine   maas.Machine
		preferred []netip.Prefix
		want      []string
	}{
		"its own":                    {maas.Machine{BootInterface: on(1), Interfaces: []*maas.Interface{on(1, "10.77.0.5"), on(1, "10.77.0.6")}}, nil, nil},
		"pods":                       {maas.Machine{BootInterface: on(1), Interfaces: []*maas.Interface{on(1, "10.77.0.5"), on(2, "10.244.1.0", "10.244.1.1"), {VLAN: nil}}}, nil, []string{"10.244.1.0", "10.244.1.1"}},
		"a VLAN without any network": {maas.Machine{BootInterface: on(1), Interfaces: []*maas.Interface{{Links: []maas.Link{{IPAddress: "10.244.1.1"}}}}}, nil, []string{"10.244.1.1"}},
		"a preferred network":        {maas.Machine{BootInterface: on(1), Interfaces: []*maas.Interface{on(2, "10.88.0.5"), on(3, "10.244.1.1")}}, storage, []string{"10.244.1.1"}},
		"no boot interface":          {maas.Machine{Interfaces: []*maas.Interface{on(2, "10.244.1.1")}}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, ForeignAddresses(&tc.machine, Preference{Subnets: tc.preferred})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
