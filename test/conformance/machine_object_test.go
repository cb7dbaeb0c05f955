// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"testing"
)

func TestMachineHasAllKeysOfItsVersion(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		for _, machine := range append(m.machines(t), m.newMachine(t)) {
			checkShape(t, "machine "+machine.str("system_id"), machine, m.machineShape())
		}
	})
}

func TestMachineHasNoKeysOfOtherVersions(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		checkNoOtherKeys(t, "machine", m.newMachine(t), m.machineShape())
	})
}

func TestMachineReadAloneIsTheMachineOfTheList(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.newMachine(t)
		systemID := machine.str("system_id")
		listed := m.machines(t, "id", systemID)
		if len(listed) != 1 {
			t.Fatalf("%d machines with the id %s, want 1", len(listed), systemID)
		}
		checkNoOtherKeys(t, "the listed machine", listed[0], m.machineShape())
		for _, key := range []string{"hostname", "fqdn", "status_name", "architecture", "resource_uri", "power_type"} {
			if alone := m.machine(t, systemID); alone.str(key) != listed[0].str(key) {
				t.Errorf("%s is %q alone and %q in the list", key, alone.str(key), listed[0].str(key))
			}
		}
	})
}

func TestMachinePartsHaveTheirShapes(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.readyBareMetal(t)
		checkShape(t, "zone", machine.part("zone"), shapes["zone"])
		checkShape(t, "pool", machine.part("pool"), shapes["pool"])
		checkShape(t, "domain", machine.part("domain"), shapes["domain"])
		checkShape(t, "boot disk", machine.part("boot_disk"), shapes["block device"])
		for _, iface := range machine.objects("interface_set") {
			checkInterface(t, iface)
		}
		for _, family := range []string{"ipv4", "ipv6"} {
			checkShape(t, family+" gateway", machine.part("default_gateways", family),
				shape{"gateway_ip": "s?", "link_id": "i?"})
		}
	})
}

// checkInterface checks an interface and its links.
func checkInterface(t *testing.T, iface object) {
	t.Helper()
	checkShape(t, "interface", iface, shapes["interface"])
	if iface.at("vlan") != nil {
		checkShape(t, "VLAN", iface.part("vlan"), shapes["vlan"])
	}
	for _, link := range iface.objects("links") {
		checkShape(t, "link", link, shape{"id": "i", "mode": "s"})
		if modes := []string{"auto", "static", "dhcp", "link_up"}; !slices.Contains(modes, link.str("mode")) {
			t.Errorf("link mode %q, want one of %v", link.str("mode"), modes)
		}
		if link.at("subnet") != nil {
			checkShape(t, "subnet of a link", link.part("subnet"), shapes["subnet"])
		}
	}
}

func TestMachineURIsSayWhereThingsAre(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.newMachine(t)
		systemID, iface := machine.str("system_id"), machine.objects("interface_set")[0]
		tests := []struct{ what, got, want string }{
			{"machine", machine.str("resource_uri"), "/MAAS/api/2.0/machines/" + systemID + "/"},
			{"pool", machine.str("pool", "resource_uri"), "/MAAS/api/2.0/resourcepool/" + machine.id("pool", "id") + "/"},
			{"zone", machine.str("zone", "resource_uri"), "/MAAS/api/2.0/zones/" + machine.str("zone", "name") + "/"},
			{"interface", iface.str("resource_uri"), "/MAAS/api/2.0/nodes/" + systemID + "/interfaces/" + iface.id("id") + "/"},
		}
		for _, test := range tests {
			if test.got != test.want {
				t.Errorf("%s: resource_uri %q, want %q", test.what, test.got, test.want)
			}
		}
	})
}

func TestMachineStorageIsInMegabytes(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.readyBareMetal(t)
		bytes := 0.0
		for _, disk := range machine.objects("physicalblockdevice_set") {
			bytes += disk.num("size")
		}
		if got, want := machine.num("storage"), bytes/1e6; got-want > 0.001 || want-got > 0.001 {
			t.Errorf("storage %v, want %v: the disks' bytes / 10^6", got, want)
		}
	})
}

func TestMachineDoesNotShowItsAgentName(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.allocated(t, "agent_name", uniqueName())
		if value, ok := machine["agent_name"]; ok {
			t.Errorf("agent_name %v is shown", value)
		}
	})
}

func TestFQDNIsHostnameAndDomain(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.newMachine(t)
		if want := machine.str("hostname") + "." + machine.str("domain", "name"); machine.str("fqdn") != want {
			t.Errorf("fqdn %q, want %q", machine.str("fqdn"), want)
		}
	})
}

// status_message and status_action in maasserver/models/node.py are those of the last event; before the first there is
// none.
func TestStatusMessageOfAMachineWithoutEvents(t *testing.T) {
	machines := map[string]func(t *testing.T, m *maas) object{
		"created": func(t *testing.T, m *maas) object { return m.newMachine(t) },
		"composed without commissioning": func(t *testing.T, m *maas) object {
			m.needs(t, vmHosts)
			return m.spare(t)
		},
	}
	for name, machine := range machines {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, m *maas) {
				made := machine(t, m)
				if made["status_message"] != nil || made["status_action"] != nil {
					t.Errorf("status_message %v, status_action %v; want null", made["status_message"], made["status_action"])
				}
			})
		})
	}
	each(t, func(t *testing.T, m *maas) {
		broken := m.broken(t)
		if broken.str("status_message") == "" || broken["status_action"] != "" {
			t.Errorf("status_message %v, status_action %v after an event; want a text, and an empty one", broken["status_message"], broken["status_action"])
		}
	})
}
