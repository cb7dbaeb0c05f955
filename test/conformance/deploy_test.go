// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDeployOfReadyMachineAcquiresIt(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare, agent, series := m.spare(t), uniqueName(), m.series(t)
		userData := base64.StdEncoding.EncodeToString([]byte("#cloud-config\n{}\n"))
		got := m.deploy(t, spare, "agent_name", agent, "distro_series", series, "user_data", userData,
			"comment", "conformance").object(t)
		checkShape(t, "deploying machine", got, m.machineShape())
		if got.str("status_name") != "Deploying" || got.int("status") != 9 {
			t.Errorf("%s (%d), want Deploying (9)", got.str("status_name"), got.int("status"))
		}
		if got.str("owner") != m.me(t) {
			t.Errorf("owner %v, want %s", got["owner"], m.me(t))
		}
		if got.str("osystem") != "ubuntu" || got.str("distro_series") != series {
			t.Errorf("%s/%s is deployed, want ubuntu/%s", got.str("osystem"), got.str("distro_series"), series)
		}
		if found := systemIDs(m.machines(t, "agent_name", agent)); !cmp.Equal(found, systemIDs([]object{spare})) {
			t.Errorf("machines of %s: %v, want %s alone", agent, found, spare.str("system_id"))
		}
	})
}

func TestDeployReplyHasNoAddressesYet(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.spare(t)
		if links := spare.part("boot_interface").objects("links"); len(links) != 1 || links[0].str("mode") != "auto" {
			lacks(t, "the VM's interface is not linked in AUTO mode: %v", links)
		}
		if got := m.deploy(t, spare).object(t).strings("ip_addresses"); len(got) != 0 {
			t.Errorf("the reply has addresses %v already", got)
		}
		deploying := m.awaitMachine(t, spare.str("system_id"), "with an address", func(o object) bool {
			return len(o.strings("ip_addresses")) > 0
		})
		link := deploying.part("boot_interface").objects("links")[0]
		if link.str("mode") != "auto" || link.str("ip_address") != deploying.strings("ip_addresses")[0] {
			t.Errorf("link %v, want it to have %v", link, deploying.strings("ip_addresses"))
		}
	})
}

func TestDeployEndsDeployed(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		got := m.deployed(t)
		if got.int("status") != 6 || got.str("power_state") != "on" || got.flag("netboot") {
			t.Errorf("status %d, power %s, netboot %v; want 6, on, false",
				got.int("status"), got.str("power_state"), got["netboot"])
		}
		if len(got.strings("ip_addresses")) == 0 {
			t.Error("a Deployed machine has no address")
		}
	})
}

func TestDeployOfBareMetalAndRelease(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		systemID := m.borrow(t).str("system_id")
		m.deploy(t, object{"system_id": systemID}).object(t)
		m.awaitStatus(t, systemID, "Deployed")
		m.op(t, machinePath(systemID), "release").object(t)
		// A second release of a machine that is Releasing, or Ready by now, changes nothing.
		m.op(t, machinePath(systemID), "release").object(t)
		ready := m.awaitStatus(t, systemID, "Ready")
		if ready.str("power_state") != "off" || ready.at("owner") != nil || ready.str("osystem") != "" {
			t.Errorf("power %s, owner %v, osystem %q; want off, nobody, none",
				ready.str("power_state"), ready["owner"], ready.str("osystem"))
		}
	})
}

func TestDeployOfAllocatedMachineKeepsItsAgentName(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		first, second := uniqueName(), uniqueName()
		spare := m.allocated(t, "agent_name", first)
		m.deploy(t, spare, "agent_name", second).object(t)
		if found := m.machines(t, "agent_name", second); len(found) != 0 {
			t.Errorf("%v took the agent name of the deployment", systemIDs(found))
		}
		if found := systemIDs(m.machines(t, "agent_name", first)); !cmp.Equal(found, systemIDs([]object{spare})) {
			t.Errorf("machines of the first agent name: %v, want %s alone", found, spare.str("system_id"))
		}
	})
}

func TestDeployTakesTheImagesNameInTwoForms(t *testing.T) {
	for name, system := range map[string]string{"bare": "", "with its system": "ubuntu/"} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, m *maas) {
				series := m.series(t)
				got := m.deploy(t, m.spare(t), "distro_series", system+series).object(t)
				if got.str("osystem") != "ubuntu" || got.str("distro_series") != series {
					t.Errorf("%s%s deploys %s/%s", system, series, got.str("osystem"), got.str("distro_series"))
				}
			})
		})
	}
}

func TestDeployOfUnknownSeriesIsRefusedAndTakesNothing(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare, agent := m.spare(t), uniqueName()
		m.deploy(t, spare, "distro_series", "nosuch", "agent_name", agent).refusesField(t, "distro_series",
			"'nosuch' is not a valid distro_series.", "It should be one of:")
		after := m.machine(t, spare.str("system_id"))
		if after.str("status_name") != "Ready" || after.at("owner") != nil {
			t.Errorf("%s of %v after the refusal, want Ready and nobody's", after.str("status_name"), after["owner"])
		}
		if found := m.machines(t, "agent_name", agent); len(found) != 0 {
			t.Errorf("a refused deployment gave %v the agent name", systemIDs(found))
		}
	})
}

func TestDeployInWrongStateConflicts(t *testing.T) {
	tests := []struct {
		state   string
		machine func(t *testing.T, m *maas) object
	}{
		{"New", func(t *testing.T, m *maas) object { return m.newMachine(t) }},
		{"Deployed", func(t *testing.T, m *maas) object { return m.newDeployedMachine(t) }},
		{"Broken", func(t *testing.T, m *maas) object { return m.broken(t) }},
	}
	for _, test := range tests {
		t.Run(test.state, func(t *testing.T) {
			each(t, func(t *testing.T, m *maas) {
				m.deploy(t, test.machine(t, m)).refuses(t, http.StatusConflict,
					"Can't deploy a machine that is in the '"+test.state+"' state")
			})
		})
	}
}

func TestDeployTwiceConflicts(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.deployed(t)
		m.deploy(t, spare).refuses(t, http.StatusConflict, "Can't deploy a machine that is in the 'Deployed' state")
	})
}

func TestDeployOfAnotherUsersMachineIsForbidden(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		plain := m.asPlainUser(t)
		plain.deploy(t, m.allocated(t)).refusesSilently(t, http.StatusForbidden)
	})
}

// on_network in maasserver/models/node.py wants a link that gives an address, on a subnet.
func TestDeployWithoutNetworkIsRefused(t *testing.T) {
	configure := map[string]func(t *testing.T, m *maas, spare object){
		"disconnected": func(t *testing.T, m *maas, spare object) { m.put(t, interfacePath(spare), "vlan", "").object(t) },
		"only up": func(t *testing.T, m *maas, spare object) {
			subnet := spare.part("boot_interface").objects("links")[0].part("subnet")
			m.link(t, spare, "mode", "LINK_UP", "subnet", subnet.id("id"), "force", "true").object(t)
		},
	}
	for name, configure := range configure {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, m *maas) {
				spare := m.spare(t)
				configure(t, m, spare)
				m.deploy(t, spare).refusesField(t, "network", "Node must be configured to use a network")
				if after := m.machine(t, spare.str("system_id")); after.str("status_name") != "Ready" || after.at("owner") != nil {
					t.Errorf("%s of %v after the refusal, want Ready and nobody's", after.str("status_name"), after["owner"])
				}
			})
		})
	}
}

// What a deployment is asked for stands in the machine.
func TestDeployWithAKernel(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		kernels := map[string]string{"ubuntu/jammy": "ga-22.04", "ubuntu/noble": "ga-24.04"}
		image := find(m.get(t, "boot-resources/").list(t), func(o object) bool {
			return kernels[o.str("name")] != "" && strings.HasPrefix(o.str("architecture"), "amd64/")
		})
		if image == nil {
			lacks(t, "no image of Ubuntu jammy or noble for amd64")
		}
		kernel := kernels[image.str("name")]
		got := m.deploy(t, m.spare(t), "distro_series", image.str("name"), "hwe_kernel", kernel).object(t)
		if got.str("hwe_kernel") != kernel {
			t.Errorf("hwe_kernel %q, want %s", got.str("hwe_kernel"), kernel)
		}
	})
}

// get_working_kernel in maasserver/utils/osystems.py does not refuse an unknown kernel, but uses that of the image that
// the machine boots from.
func TestDeployOfACustomImageWithAKernelThatIsNone(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		image := find(m.get(t, "boot-resources/").list(t), func(o object) bool {
			return o.str("type") == "Uploaded" && !strings.Contains(o.str("name"), "/") && strings.HasPrefix(o.str("architecture"), "amd64/")
		})
		if image == nil {
			lacks(t, "no image for amd64 was uploaded")
		}
		got := m.deploy(t, m.spare(t), "distro_series", image.str("name"), "hwe_kernel", "x").object(t)
		if kernel := got.str("hwe_kernel"); !strings.HasPrefix(kernel, "ga-") {
			t.Errorf("hwe_kernel %q, want that of the base image", kernel)
		}
	})
}

// smallSubnet makes a subnet with two addresses, which nothing uses.
func (m *maas) smallSubnet(t *testing.T) object {
	t.Helper()
	const cidr = "198.51.100.244/30"
	if has(m.get(t, "subnets/").list(t), "cidr", cidr) {
		lacks(t, "there is a subnet %s", cidr)
	}
	subnet := m.create(t, "subnets/", "cidr", cidr).object(t)
	m.deleteAfter(t, subnetPath(subnet))
	return subnet
}

// _claim_auto_ips, _start_bmc_unavailable and release_interface_config in models/node.py: MAAS claims addresses after the
// commit, and takes the deployment back, and what was made on the Allocated machine.
func TestDeployInAFullSubnetIsTakenBack(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnet, spare := m.smallSubnet(t), m.allocated(t)
		for range 2 {
			m.reserve(t, "subnet", subnet.str("cidr"))
		}
		links := m.link(t, spare, "mode", "AUTO", "subnet", subnet.id("id"), "force", "true").object(t).objects("links")
		m.bridge(t, spare, "br7").object(t)
		m.deploy(t, spare).refuses(t, http.StatusServiceUnavailable, "No more IPs available in subnet: "+subnet.str("cidr"))
		after := m.machine(t, spare.str("system_id"))
		if after.str("status_name") != "Allocated" || after.str("owner") != m.me(t) {
			t.Errorf("%s of %v after the refusal, want Allocated and ours", after.str("status_name"), after["owner"])
		}
		if named(after, "br7") != nil {
			t.Error("the bridge is there after the refusal")
		}
		if diff := cmp.Diff(links, after.part("boot_interface").objects("links")); diff != "" {
			t.Errorf("the links after the refusal:\n%s", diff)
		}
	})
}

func TestDeployOfAReadyMachineThatIsTakenBackLeavesItAllocated(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnet, spare, agent := m.smallSubnet(t), m.spare(t), uniqueName()
		for range 2 {
			m.reserve(t, "subnet", subnet.str("cidr"))
		}
		m.link(t, spare, "mode", "AUTO", "subnet", subnet.id("id"), "force", "true").object(t)
		m.deploy(t, spare, "agent_name", agent).refuses(t, http.StatusServiceUnavailable, "No more IPs available in subnet: ")
		if found := m.machines(t, "agent_name", agent, "status", "allocated"); !cmp.Equal(systemIDs(found), systemIDs([]object{spare})) {
			t.Errorf("machines of %s that are Allocated: %v, want %s", agent, systemIDs(found), spare.str("system_id"))
		}
	})
}

// reserveFor reserves an address for the interface that a machine boots from, until the case ends.
func (m *maas) reserveFor(t *testing.T, machine, subnet object) string {
	t.Helper()
	address := m.freeAddress(t, subnet)
	made := m.create(t, "reservedips/", "ip", address, "mac_address", machine.part("boot_interface").str("mac_address")).object(t)
	m.deleteAfter(t, "reservedips/"+made.id("id")+"/")
	return address
}

// claim_auto_ips in models/interface.py.
func TestDeployGivesTheReservedIP(t *testing.T) {
	eachWith(t, []need{reservedIPs}, func(t *testing.T, m *maas) {
		spare := m.spare(t)
		links := spare.part("boot_interface").objects("links")
		if len(links) != 1 || links[0].str("mode") != "auto" {
			lacks(t, "the VM's interface is not linked in AUTO mode: %v", links)
		}
		address := m.reserveFor(t, spare, links[0].part("subnet"))
		m.deploy(t, spare).object(t)
		got := m.awaitMachine(t, spare.str("system_id"), "with an address", func(o object) bool { return len(o.strings("ip_addresses")) > 0 })
		if !cmp.Equal(got.strings("ip_addresses"), []string{address}) {
			t.Errorf("it has %v, want %s", got.strings("ip_addresses"), address)
		}
	})
}

// StaticIPAddressUnavailable in exceptions.py: the status is that of a machine that MAAS does not have.
func TestDeployWithAReservedIPInAnotherSubnetIsNotFound(t *testing.T) {
	eachWith(t, []need{reservedIPs}, func(t *testing.T, m *maas) {
		subnet, spare := m.smallSubnet(t), m.allocated(t)
		address := m.reserveFor(t, spare, m.subnetWithRoom(t))
		m.link(t, spare, "mode", "AUTO", "subnet", subnet.id("id"), "force", "true").object(t)
		m.bridge(t, spare, "br7").object(t)
		m.deploy(t, spare).refuses(t, http.StatusNotFound, "has a reserved ip "+address+" but it does not have a link to that subnet")
		after := m.machine(t, spare.str("system_id"))
		if after.str("status_name") != "Allocated" || named(after, "br7") != nil || len(after.strings("ip_addresses")) != 0 {
			t.Errorf("%s with the bridge %v and %v after the refusal, want Allocated with neither", after.str("status_name"),
				named(after, "br7"), after.strings("ip_addresses"))
		}
	})
}

// _link_subnet_static in models/interface.py.
func TestStaticLinkOfAnAddressThatIsReservedForAnother(t *testing.T) {
	eachWith(t, []need{reservedIPs}, func(t *testing.T, m *maas) {
		spare, other, subnet := m.spare(t), m.spare(t), m.subnetWithRoom(t)
		address := m.reserveFor(t, other, subnet)
		static := []string{"mode", "STATIC", "subnet", subnet.id("id"), "force", "true", "ip_address"}
		m.link(t, spare, append(static, address)...).refuses(t, http.StatusConflict, address+" is already reserved for the MAC address")
		another := m.freeAddress(t, subnet)
		for another == address {
			another = m.freeAddress(t, subnet)
		}
		m.link(t, other, append(static, another)...).
			refuses(t, http.StatusConflict, "does not match the reserved IP "+address+" for the MAC address")
		m.link(t, other, append(static, address)...).object(t)
	})
}
