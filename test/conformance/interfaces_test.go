// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// interfacePath is where the machine's first interface is.
func interfacePath(machine object) string {
	iface := machine.part("boot_interface")
	return "nodes/" + machine.str("system_id") + "/interfaces/" + iface.id("id") + "/"
}

// link links the machine's first interface to a subnet.
func (m *maas) link(t *testing.T, machine object, pairs ...string) *answer {
	t.Helper()
	return m.op(t, interfacePath(machine), "link_subnet", pairs...)
}

// giveStaticAddress replaces the links of a VM's interface by a fixed address of the same subnet.
func (m *maas) giveStaticAddress(t *testing.T, spare object) string {
	t.Helper()
	links := spare.part("boot_interface").objects("links")
	if len(links) == 0 || links[0].at("subnet") == nil {
		lacks(t, "the VM's interface is on no subnet")
	}
	subnet := links[0].part("subnet")
	address := m.freeAddress(t, subnet)
	linked := m.link(t, spare, "mode", "STATIC", "subnet", subnet.id("id"), "ip_address", address, "force", "true").object(t)
	if got := linked.objects("links"); len(got) != 1 || got[0].str("mode") != "static" || got[0].str("ip_address") != address {
		t.Errorf("links %v, want the STATIC one with %s alone", got, address)
	}
	if got := m.machine(t, spare.str("system_id")).strings("ip_addresses"); !cmp.Equal(got, []string{address}) {
		t.Errorf("addresses %v after linking, want %s at once", got, address)
	}
	return address
}

// linkStatic gives a machine a free address of a subnet.
func (m *maas) linkStatic(t *testing.T, machine object) string {
	t.Helper()
	subnet := m.subnetWithRoom(t)
	address := m.freeAddress(t, subnet)
	m.link(t, machine, "mode", "STATIC", "subnet", subnet.id("id"), "ip_address", address, "force", "true").object(t)
	return address
}

func TestLinkTakesTheModeInAnyCaseAndTheSubnetInTwoForms(t *testing.T) {
	for _, mode := range []string{"STATIC", "static", "Static"} {
		t.Run(mode, func(t *testing.T) {
			each(t, func(t *testing.T, m *maas) {
				subnet, machine := m.subnetWithRoom(t), m.newMachine(t)
				for _, name := range []string{subnet.id("id"), subnet.str("cidr")} {
					address := m.freeAddress(t, subnet)
					got := m.link(t, machine, "mode", mode, "subnet", name, "ip_address", address, "force", "true").object(t)
					checkInterface(t, got)
					links := got.objects("links")
					if len(links) != 1 || links[0].str("ip_address") != address {
						t.Errorf("links %v with subnet %s, want %s alone", links, name, address)
					}
				}
			})
		})
	}
}

func TestLinkWithoutForceAddsALink(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnet, machine := m.subnetWithRoom(t), m.newMachine(t)
		first := m.freeAddress(t, subnet)
		m.link(t, machine, "mode", "STATIC", "subnet", subnet.id("id"), "ip_address", first, "force", "true").object(t)
		second := m.freeAddress(t, subnet)
		got := m.link(t, machine, "mode", "STATIC", "subnet", subnet.id("id"), "ip_address", second).object(t)
		if links := got.objects("links"); !has(links, "ip_address", first) || !has(links, "ip_address", second) {
			t.Errorf("links %v, want %s and %s", links, first, second)
		}
	})
}

func TestStaticLinkWithoutAddressGetsOne(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnet, machine := m.subnetWithRoom(t), m.newMachine(t)
		got := m.link(t, machine, "mode", "STATIC", "subnet", subnet.id("id"), "force", "true").object(t)
		if links := got.objects("links"); len(links) != 1 || links[0].str("ip_address") == "" {
			t.Errorf("links %v, want one with an address", links)
		}
	})
}

func TestAutoLinkHasNoAddressYet(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnet, machine := m.subnetWithRoom(t), m.newMachine(t)
		got := m.link(t, machine, "mode", "AUTO", "subnet", subnet.id("id"), "force", "true").object(t)
		links := got.objects("links")
		if len(links) != 1 || links[0].str("mode") != "auto" || links[0].str("ip_address") != "" {
			t.Errorf("links %v, want one in AUTO mode without address", links)
		}
	})
}

// get_best_guess_for_default_gateways in models/node.py.
func TestGatewayOfASubnetWithoutAnAddressThere(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine, subnet := m.newMachine(t), m.subnetWithRoom(t)
		gateway := subnet.str("gateway_ip")
		if gateway == "" {
			lacks(t, "the subnet has no gateway")
		}
		for mode, counts := range map[string]bool{"LINK_UP": m.facts.unconfiguredGateways, "AUTO": true} {
			m.link(t, machine, "mode", mode, "subnet", subnet.id("id"), "force", "true").object(t)
			got := m.machine(t, machine.str("system_id")).str("default_gateways", "ipv4", "gateway_ip")
			if (got == gateway) != counts {
				t.Errorf("linked %s, the gateway is %q, and it counts: %v, want %v", mode, got, got == gateway, counts)
			}
		}
	})
}

func TestLinkToAnAddressInUseIsNotFound(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnet, machine := m.subnetWithRoom(t), m.newMachine(t)
		taken := m.freeAddress(t, subnet)
		m.reserve(t, "ip", taken)
		for _, force := range []string{"true", "false"} {
			m.link(t, machine, "mode", "STATIC", "subnet", subnet.id("id"), "ip_address", taken, "force", force).
				refuses(t, http.StatusNotFound, "IP address is already in use.")
		}
	})
}

// A refused replacement leaves the links as they were.
func TestRefusedLinkChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnet, machine := m.subnetWithRoom(t), m.newMachine(t)
		taken, own := m.freeAddress(t, subnet), ""
		m.reserve(t, "ip", taken)
		own = m.freeAddress(t, subnet)
		m.link(t, machine, "mode", "STATIC", "subnet", subnet.id("id"), "ip_address", own, "force", "true").object(t)
		m.link(t, machine, "mode", "STATIC", "subnet", subnet.id("id"), "ip_address", taken, "force", "true").
			wants(t, http.StatusNotFound)
		if got := m.machine(t, machine.str("system_id")).strings("ip_addresses"); !cmp.Equal(got, []string{own}) {
			t.Errorf("addresses %v, want %s still", got, own)
		}
	})
}

func TestLinkRefusals(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnet, machine := m.subnetWithRoom(t), m.newMachine(t)
		id, outside := subnet.id("id"), m.outside(t)
		tests := []struct {
			name  string
			pairs []string
			field string
			text  string
		}{
			{"address outside the subnet", []string{"mode", "STATIC", "subnet", id, "ip_address", outside}, "ip_address",
				"IP address is not in the given subnet"},
			{"nonsense as address", []string{"mode", "STATIC", "subnet", id, "ip_address", "nonsense"}, "ip_address", ""},
			{"unknown mode", []string{"mode", "bogus", "subnet", id}, "mode",
				"'bogus' is not a valid mode.  It should be one of: 'auto', 'dhcp', 'static', 'link_up'."},
			{"no mode", []string{"subnet", id}, "mode", "This field is required."},
			{"STATIC without subnet", []string{"mode", "STATIC"}, "subnet", "This field is required."},
			{"AUTO without subnet", []string{"mode", "AUTO"}, "subnet", "This field is required."},
		}
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				m.link(t, machine, append(test.pairs, "force", "true")...).refusesField(t, test.field, test.text)
			})
		}
	})
}

func TestLinkInADynamicRangeIsRefused(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		address, subnet := m.inDynamicRange(t)
		m.link(t, m.newMachine(t), "mode", "STATIC", "subnet", subnet.id("id"), "ip_address", address, "force", "true").
			refusesField(t, "ip_address", "IP address is inside a dynamic range")
	})
}

func TestLinkInWrongStateConflicts(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnet := m.subnetWithRoom(t)
		m.link(t, m.newDeployedMachine(t), "mode", "AUTO", "subnet", subnet.id("id"), "force", "true").
			refuses(t, http.StatusConflict,
				"Cannot link subnet interface because the machine is not New, Ready, Allocated, or Broken.")
	})
}

func TestLinkOfAnAllocatedMachine(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.allocated(t)
		m.giveStaticAddress(t, spare)
	})
}

func TestLinkByPlainUserIsForbidden(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		plain := m.asPlainUser(t)
		subnet, machine := m.subnetWithRoom(t), m.newMachine(t)
		plain.link(t, machine, "mode", "AUTO", "subnet", subnet.id("id"), "force", "true").wants(t, http.StatusForbidden)
	})
}

func TestUnlinkFreesTheAddress(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnet, machine := m.subnetWithRoom(t), m.newMachine(t)
		address := m.freeAddress(t, subnet)
		linked := m.link(t, machine, "mode", "STATIC", "subnet", subnet.id("id"), "ip_address", address, "force", "true").object(t)
		linkID := linked.objects("links")[0].id("id")
		got := m.op(t, interfacePath(machine), "unlink_subnet", "id", linkID).object(t)
		if links := got.objects("links"); len(links) != 1 || links[0].str("mode") != "link_up" { // ensure_link_up in models/interface.py
			t.Errorf("links %v after unlinking %s, want link_up", links, address)
		}
		if got := m.machine(t, machine.str("system_id")).strings("ip_addresses"); len(got) != 0 {
			t.Errorf("addresses %v after unlinking, want none", got)
		}
		m.reserve(t, "ip", address)
	})
}

func TestUnlinkOfAnUnknownLinkIsRefused(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		got := m.op(t, interfacePath(m.newMachine(t)), "unlink_subnet", "id", "999999")
		got.refusesField(t, "id", "'999999' is not a valid id.")
		if !strings.Contains(string(got.body), "It should be one of:") {
			t.Errorf("refused with %s, want the links that there are", got.excerpt())
		}
	})
}

func TestLinkRefusesWhatItCannotRead(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnet, machine := m.subnetWithRoom(t), m.newMachine(t)
		m.link(t, machine, "mode", "AUTO", "subnet", subnet.id("id"), "force", "x").
			refuses(t, http.StatusBadRequest, "Invalid force: Value should be 'true' or 'false'")
		m.link(t, machine, "mode", "STATIC", "subnet", subnet.id("id"), "force", "true", "ip_address", m.outside(t)).
			refusesField(t, "ip_address", "IP address is not in the given subnet '"+label(subnet)+"'.")
	})
}

// SpecifierOrModelChoiceField in maasserver/fields.py complains about a number in words of its own; the form misses the
// subnet then, too.
func TestLinkToAnUnknownSubnetIsRefused(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.newMachine(t)
		for specifier, text := range map[string]string{
			"999999": "None found with id=999999.", "nosuch": "Select a valid choice. That choice is not one of the available choices.",
		} {
			for _, mode := range []string{"AUTO", "STATIC"} {
				m.link(t, machine, "mode", mode, "subnet", specifier, "force", "true").refusesField(t, "subnet", text, "This field is required.")
			}
			m.link(t, machine, "mode", "DHCP", "subnet", specifier, "force", "true").refusesField(t, "subnet", text)
		}
	})
}
