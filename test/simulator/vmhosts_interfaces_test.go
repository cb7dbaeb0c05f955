// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// hasNow lists a machine's interfaces with their links, and the addresses that MAAS has in all.
func hasNow(b *bed, machines ...*machine) map[string][]string {
	out := map[string][]string{}
	for _, m := range machines {
		for _, nic := range m.ifaces {
			line := fmt.Sprintf("%s %s", nic.name, nic.mac)
			for _, link := range nic.links {
				line += fmt.Sprintf(" %s=%s", link.mode(), link.ip)
			}
			out[m.hostname] = append(out[m.hostname], line)
		}
	}
	for _, a := range b.db.addrs {
		if a.ip.IsValid() {
			out["addresses"] = append(out["addresses"], a.ip.String())
		}
	}
	return out
}

// Like models/bmc.py (sync) and builtin_scripts/network.py: MAAS assigns what LXD reports to the machine.
func TestAHostsInterfacesBecomeItsMachines(t *testing.T) {
	const shared = "ee:ee:ee:ee:ee:ee"
	node := func(n int, others ...HostNetwork) []HostNetwork {
		return append([]HostNetwork{
			{Name: "eth0", Kind: NetworkPhysical, MAC: fmt.Sprintf("00:16:3e:00:00:0%d", n)},
			{Name: "br0", Kind: NetworkBridge, MAC: fmt.Sprintf("00:16:3e:00:00:0%d", n), Ports: []string{"eth0"}, Addresses: prefixes(fmt.Sprintf("10.10.0.1%d/24", n))},
		}, others...)
	}
	veth := func(name, mac string, addresses ...string) HostNetwork {
		return HostNetwork{Name: name, Kind: NetworkUnknown, MAC: mac, Addresses: prefixes(addresses...)}
	}
	for name, test := range map[string]struct {
		first, second []HostNetwork
		reserved      string // an address that a user has
		want          map[string][]string
	}{
		"nodes whose interfaces have addresses of their own": {
			first: node(1, veth("vethA", "aa:00:00:00:00:01")), second: node(2, veth("vethB", "aa:00:00:00:00:02")),
			want: map[string][]string{
				"one":       {"eth0 00:16:3e:00:00:01", "br0 00:16:3e:00:00:01 static=10.10.0.11", "vethA aa:00:00:00:00:01"},
				"two":       {"eth0 00:16:3e:00:00:02", "br0 00:16:3e:00:00:02 static=10.10.0.12", "vethB aa:00:00:00:00:02"},
				"addresses": {"10.10.0.11", "10.10.0.12"},
			},
		},
		"nodes with one MAC address for all pods": {
			first: node(1, veth("cali1", shared)), second: node(2, veth("cali2", shared)),
			// The second node's card moved to the first machine, whose own is forgotten, with the address that it uses.
			want: map[string][]string{
				"one":       {"eth0 00:16:3e:00:00:02", "br0 00:16:3e:00:00:02 static=10.10.0.12", "cali2 " + shared},
				"addresses": {"10.10.0.12"},
			},
		},
		"a pod network": {
			first: node(1, HostNetwork{Name: "cni0", Kind: NetworkBridge, MAC: "aa:00:00:00:00:03", Addresses: prefixes("10.244.1.1/24")}), second: node(2),
			want: map[string][]string{
				"one":       {"eth0 00:16:3e:00:00:01", "br0 00:16:3e:00:00:01 static=10.10.0.11", "cni0 aa:00:00:00:00:03 static=10.244.1.1"},
				"two":       {"eth0 00:16:3e:00:00:02", "br0 00:16:3e:00:00:02 static=10.10.0.12"},
				"addresses": {"10.10.0.11", "10.244.1.1", "10.10.0.12"},
			},
		},
		"a reserved address that moves": {
			first:    append(node(1)[:1], HostNetwork{Name: "br0", Kind: NetworkBridge, MAC: "00:16:3e:00:00:01", Ports: []string{"eth0"}, Addresses: prefixes("10.10.0.11/24", "10.10.0.50/32")}),
			second:   append(node(2)[:1], HostNetwork{Name: "br0", Kind: NetworkBridge, MAC: "00:16:3e:00:00:02", Ports: []string{"eth0"}, Addresses: prefixes("10.10.0.12/24", "10.10.0.50/32")}),
			reserved: "10.10.0.50",
			want: map[string][]string{
				"one":       {"eth0 00:16:3e:00:00:01", "br0 00:16:3e:00:00:01 static=10.10.0.11"},
				"two":       {"eth0 00:16:3e:00:00:02", "br0 00:16:3e:00:00:02 static=10.10.0.12 static=10.10.0.50"},
				"addresses": {"10.10.0.50", "10.10.0.11", "10.10.0.12"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.mu.Lock()
			defer b.mu.Unlock()
			b.db.machines, b.db.addrs = nil, nil
			if test.reserved != "" {
				b.db.addrs = append(b.db.addrs, &address{ip: netip.MustParseAddr(test.reserved), kind: allocUserReserved, subnet: b.db.subnets[0]})
			}
			one, two := b.newMachine("one"), b.newMachine("two")
			b.db.machines = []*machine{one, two}
			for n, m := range b.db.machines {
				nic := &iface{name: "eth0", kind: NetworkPhysical, mac: fmt.Sprintf("00:16:3e:00:00:0%d", n+1), machine: m, vlan: b.db.subnets[0].vlan}
				m.ifaces = []*iface{nic}
				b.addLink(nic, allocAuto, b.db.subnets[0], netip.Addr{})
			}
			for _, networks := range [][]HostNetwork{test.first, test.second} {
				b.takeInterfaces(b.machineByMACs(macsOf(networks)), networks)
			}
			if diff := cmp.Diff(test.want, hasNow(b, one, two), cmpopts.SortSlices(strings.Compare)); diff != "" {
				t.Errorf("MAAS has (-want +got):\n%s", diff)
			}
		})
	}
}

// Like release_interface_config in models/node.py: interfaces that MAAS found on a deployed machine are deleted, and a
// bridge's addresses move to its first port.
func TestWhatWasFoundOnAHostGoesWithItsRelease(t *testing.T) {
	const mac = "00:16:3e:00:00:01"
	reported := []HostNetwork{
		{Name: "eth0", Kind: NetworkPhysical, MAC: mac},
		{Name: "eth1", Kind: NetworkPhysical, MAC: "00:16:3e:00:00:02"},
		{Name: "br0", Kind: NetworkBridge, MAC: mac, Ports: []string{"eth0"}, Addresses: prefixes("10.10.0.11/24")},
		{Name: "cni0", Kind: NetworkBridge, MAC: "aa:00:00:00:00:03", Addresses: prefixes("10.244.1.1/24")},
		{Name: "veth1", Kind: NetworkUnknown, MAC: "aa:00:00:00:00:04"},
	}
	for name, test := range map[string]struct {
		ownBridge bool
		want      []string
	}{
		"a bridge of the image": {want: []string{"eth0 " + mac + " static=10.10.0.11"}},
		"a bridge in MAAS":      {ownBridge: true, want: []string{"eth0 " + mac, "br0 " + mac + " static=10.10.0.11"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.mu.Lock()
			defer b.mu.Unlock()
			m := b.newMachine("one")
			b.db.machines = []*machine{m}
			m.ifaces = []*iface{{name: "eth0", kind: NetworkPhysical, mac: mac, machine: m, vlan: b.db.subnets[0].vlan}}
			if test.ownBridge {
				m.ifaces = append(m.ifaces, &iface{name: "br0", kind: NetworkBridge, mac: mac, machine: m, ports: []string{"eth0"}})
			}
			b.takeInterfaces(m, reported)
			b.clearOwnership(m)
			if diff := cmp.Diff(test.want, hasNow(b, m)["one"]); diff != "" {
				t.Errorf("the machine has (-want +got):\n%s", diff)
			}
		})
	}
}
