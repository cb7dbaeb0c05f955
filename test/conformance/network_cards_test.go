// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// network is a network of a VM host: a subnet of one of the host's interfaces, its VLAN, and that VLAN's first subnet.
type network struct{ cidr, vlan, first string }

// twoNetworks finds a VM host that is on two VLANs; machines can boot on the first of the two.
func (m *maas) twoNetworks(t *testing.T) (host object, boot, other network) {
	t.Helper()
	m.needs(t, vmHosts)
	subnets := m.get(t, "subnets/").list(t)
	firstOn := func(vlan string) string {
		return find(subnets, func(o object) bool { return o.id("vlan", "id") == vlan }).str("cidr")
	}
	for _, host := range m.get(t, "vm-hosts/").list(t) {
		if !canTake(host) || host.str("host", "system_id") == "" {
			continue
		}
		boot, other = network{}, network{}
		for _, iface := range m.machine(t, host.str("host", "system_id")).objects("interface_set") {
			links := iface.objects("links")
			if len(links) == 0 || links[0].at("subnet") == nil {
				continue
			}
			vlan := iface.id("vlan", "id")
			found := network{links[0].str("subnet", "cidr"), vlan, firstOn(vlan)}
			switch {
			case iface.flag("vlan", "dhcp_on") && boot.cidr == "":
				boot = found
			case vlan != boot.vlan && other.cidr == "":
				other = found
			}
		}
		if boot.cidr != "" && other.cidr != "" {
			return host, boot, other
		}
	}
	lacks(t, "no VM host with room is on two VLANs, one of them with MAAS's DHCP")
	return nil, boot, other
}

// onTwoNetworks composes a VM with two interfaces.
func (m *maas) onTwoNetworks(t *testing.T, host object, first, second string, more ...string) object {
	t.Helper()
	composed := m.composeOn(t, host, append(more, "interfaces", first+";"+second)...).object(t)
	return m.machine(t, composed.str("system_id"))
}

func interfaceNamed(t *testing.T, machine object, name string) object {
	t.Helper()
	found := find(machine.objects("interface_set"), func(o object) bool { return o.str("name") == name })
	if found == nil {
		t.Fatalf("no interface %s among %v", name, machine["interface_set"])
	}
	return found
}

func checkOnVLAN(t *testing.T, iface object, want network) {
	t.Helper()
	if got := iface.id("vlan", "id"); got != want.vlan {
		t.Errorf("%s is on VLAN %s, want %s", iface.str("name"), got, want.vlan)
	}
	links := iface.objects("links")
	if len(links) != 1 || links[0].str("mode") != "auto" || links[0].str("subnet", "cidr") != want.first || links[0].at("ip_address") != nil {
		t.Errorf("%s has the links %v, want one in AUTO mode on %s, without address", iface.str("name"), links, want.first)
	}
}

// Whichever subnet is asked for, an interface is linked to the first one on its VLAN.
func TestComposedInterfacesAreNamedByTheirLabelsAndLinked(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		host, boot, other := m.twoNetworks(t)
		spare := m.onTwoNetworks(t, host, "eth0:subnet_cidr="+boot.cidr, "eth1:subnet_cidr="+other.cidr)
		checkOnVLAN(t, interfaceNamed(t, spare, "eth0"), boot)
		checkOnVLAN(t, interfaceNamed(t, spare, "eth1"), other)
		if got := spare.str("boot_interface", "name"); got != "eth0" {
			t.Errorf("it boots from %s, want eth0", got)
		}
	})
}

// LXD lists devices by their names; MAAS takes them for the requested ones, in the order of the request.
func TestComposedInterfacesOutOfOrderAreMixedUp(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		host, boot, other := m.twoNetworks(t)
		spare := m.onTwoNetworks(t, host, "eth1:subnet_cidr="+boot.cidr, "eth0:subnet_cidr="+other.cidr)
		checkOnVLAN(t, interfaceNamed(t, spare, "eth1"), other)
		checkOnVLAN(t, interfaceNamed(t, spare, "eth0"), boot)
	})
}

// Interfaces that were asked for keep their links through commissioning.
func TestCommissioningKeepsTheInterfacesThatWereAskedFor(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		host, boot, other := m.twoNetworks(t)
		spare := m.onTwoNetworks(t, host, "eth0:subnet_cidr="+boot.cidr, "eth1:subnet_cidr="+other.cidr, "skip_commissioning", "false")
		ready := m.awaitMachine(t, spare.str("system_id"), "Ready and off", func(o object) bool {
			return o.str("status_name") == "Ready" && o.str("power_state") == "off"
		})
		checkOnVLAN(t, interfaceNamed(t, ready, "eth0"), boot)
		checkOnVLAN(t, interfaceNamed(t, ready, "eth1"), other)
	})
}

func TestDHCPLinkIsMadeOnce(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.spare(t)
		subnet := spare.part("boot_interface").objects("links")[0].part("subnet")
		got := m.link(t, spare, "mode", "DHCP", "subnet", subnet.id("id"), "force", "true").object(t)
		if links := got.objects("links"); len(links) != 1 || links[0].str("mode") != "dhcp" || links[0].id("subnet", "id") != subnet.id("id") {
			t.Errorf("links %v, want one in DHCP mode on %s", links, subnet.str("cidr"))
		}
		for _, force := range []string{"true", "false"} {
			m.link(t, spare, "mode", "DHCP", "subnet", subnet.id("id"), "force", force).
				refusesField(t, "mode", "Interface is already set to DHCP from '"+label(subnet)+"'.")
		}
	})
}

// label is how MAAS names a subnet in messages (__str__ in maasserver/models/subnet.py).
func label(subnet object) string {
	return fmt.Sprintf("%s:%s(vid=%s)", subnet.str("name"), subnet.str("cidr"), subnet.id("vlan", "vid"))
}

func TestLinkUpNeedsForceToReplaceOtherLinks(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.spare(t)
		m.giveStaticAddress(t, spare)
		m.link(t, spare, "mode", "LINK_UP").refusesField(t, "mode", "Cannot configure interface to link up")
		got := m.link(t, spare, "mode", "LINK_UP", "force", "true").object(t)
		if links := got.objects("links"); len(links) != 1 || links[0].str("mode") != "link_up" || links[0].at("ip_address") != nil {
			t.Errorf("links %v, want the LINK_UP one alone", links)
		}
	})
}

// _link_subnet_link_up and _link_subnet_dhcp in models/interface.py accept a subnet, and don't need one.
func TestLinksWithoutAddressKeepTheSubnetThatTheyAreGiven(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.spare(t)
		subnet, vlan := spare.part("boot_interface").objects("links")[0].part("subnet"), spare.id("boot_interface", "vlan", "id")
		for _, mode := range []string{"LINK_UP", "DHCP"} {
			for what, pairs := range map[string][]string{"with": {"subnet", subnet.id("id")}, "without": nil} {
				m.link(t, spare, "mode", "AUTO", "subnet", subnet.id("id"), "force", "true").object(t)
				got := m.link(t, spare, append(pairs, "mode", mode, "force", "true")...).object(t)
				links := got.objects("links")
				if len(links) != 1 || links[0].str("mode") != strings.ToLower(mode) || links[0].at("ip_address") != nil {
					t.Fatalf("%s %s a subnet: links %v, want one without address", mode, what, links)
				}
				if has := links[0].at("subnet") != nil; has != (pairs != nil) || has && links[0].id("subnet", "id") != subnet.id("id") {
					t.Errorf("%s %s a subnet: it is on %v", mode, what, links[0].at("subnet"))
				}
				if got.id("vlan", "id") != vlan {
					t.Errorf("%s %s a subnet: on VLAN %s, want %s still", mode, what, got.id("vlan", "id"), vlan)
				}
			}
		}
	})
}

// A static link without force leaves links of the other family, and AUTO ones of its own: those must be taken away.
func TestStaticLinkOfTheOtherFamilyLeavesTheRest(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		host, boot, other := m.twoNetworks(t)
		second := find(m.get(t, "subnets/").list(t), func(o object) bool {
			prefix, err := netip.ParsePrefix(o.str("cidr"))
			return err == nil && prefix.Addr().Is6() && o.id("vlan", "id") == other.vlan
		})
		if second == nil {
			lacks(t, "no IPv6 subnet shares a VLAN with an IPv4 one")
		}
		spare := m.onTwoNetworks(t, host, "eth0:subnet_cidr="+boot.cidr, "eth1:subnet_cidr="+other.cidr)
		iface := interfaceNamed(t, spare, "eth1")
		path := "nodes/" + spare.str("system_id") + "/interfaces/" + iface.id("id") + "/"
		address := netip.MustParsePrefix(second.str("cidr")).Addr().Next().String()
		got := m.op(t, path, "link_subnet", "mode", "STATIC", "subnet", second.id("id"), "ip_address", address).object(t)
		links := got.objects("links")
		if len(links) != 2 || !has(links, "ip_address", address) || !has(links, "mode", "auto") {
			t.Fatalf("links %v, want the AUTO one still, and %s", links, address)
		}
		old := find(links, func(o object) bool { return o.str("mode") == "auto" })
		left := m.op(t, path, "unlink_subnet", "id", old.id("id")).object(t)
		if links := left.objects("links"); len(links) != 1 || links[0].str("ip_address") != address {
			t.Errorf("links %v, want %s alone", links, address)
		}
	})
}

// Without force, MAAS accepts only subnets of the interface's VLAN.
func TestLinkToAnotherVLANNeedsForce(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		host, boot, other := m.twoNetworks(t)
		spare := m.machine(t, m.composeOn(t, host, "interfaces", "eth0:subnet_cidr="+boot.cidr).object(t).str("system_id"))
		m.link(t, spare, "mode", "AUTO", "subnet", other.cidr).refusesField(t, "subnet",
			"Select a valid choice. That choice is not one of the available choices.", "This field is required.")
		id := find(m.get(t, "subnets/").list(t), func(o object) bool { return o.str("cidr") == other.cidr }).id("id")
		m.link(t, spare, "mode", "AUTO", "subnet", id).refusesField(t, "subnet", "None found with id="+id+".", "This field is required.")
		got := m.link(t, spare, "mode", "AUTO", "subnet", other.cidr, "force", "true").object(t)
		if got.id("vlan", "id") != other.vlan {
			t.Errorf("on VLAN %s, want %s", got.id("vlan", "id"), other.vlan)
		}
	})
}

func TestDynamicRangeIsInTheReservedRanges(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		address, subnet := m.inDynamicRange(t)
		free := m.freeAddress(t, subnet)
		for _, r := range m.get(t, subnetPath(subnet), "op", "reserved_ip_ranges").list(t) {
			dynamic := slices.Contains(r.strings("purpose"), "dynamic")
			if inRange(r, address) && !dynamic {
				t.Errorf("%s is in %v, want the purpose dynamic", address, r)
			}
			if inRange(r, free) && dynamic {
				t.Errorf("%s, which is free, is in the dynamic range %v", free, r)
			}
		}
	})
}
