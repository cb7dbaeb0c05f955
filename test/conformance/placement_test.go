// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// What is known of a VM host's networks is what MAAS shows of its machine.
func TestComposeOnAnInterfaceOfTheHostsMachine(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		host := m.vmHostWithRoom(t)
		if host.str("host", "system_id") == "" {
			lacks(t, "VM host %s is on no machine", host.str("name"))
		}
		machine := m.machine(t, host.str("host", "system_id"))
		if got := machine.str("status_name"); got != "Deployed" {
			t.Errorf("the machine of VM host %s is %s, want Deployed", host.str("name"), got)
		}
		bootable := find(machine.objects("interface_set"), func(o object) bool { return o.flag("vlan", "dhcp_on") && len(o.objects("links")) > 0 })
		if bootable == nil {
			lacks(t, "VM host %s is on no VLAN with MAAS's DHCP", host.str("name"))
		}
		composed := m.composeOn(t, host, "interfaces", "eth0:name="+bootable.str("name")).object(t)
		spare := m.machine(t, composed.str("system_id"))
		if spare.id("boot_interface", "vlan", "id") != bootable.id("vlan", "id") {
			t.Errorf("on VLAN %s, want %s", spare.id("boot_interface", "vlan", "id"), bootable.id("vlan", "id"))
		}
		m.composeOn(t, host, "interfaces", "eth0:name="+bootable.str("name")+";eth1:subnet_cidr=192.0.2.0/29").
			refuses(t, http.StatusBadRequest, "This pod does not match the specified networks.")
	})
}

// What a machine made from a template will be like is read from those that are there.
func TestMachineDescribesItself(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.spare(t)
		tag := m.newTag(t, spare)
		machine := m.machine(t, spare.str("system_id"))
		if architecture, subarchitecture, _ := strings.Cut(machine.str("architecture"), "/"); architecture == "" || subarchitecture == "" {
			t.Errorf("architecture is %q, want two parts", machine.str("architecture"))
		}
		if got := machine.strings("tag_names"); !slices.Contains(got, tag) {
			t.Errorf("tag_names are %v, without %s", got, tag)
		}
		got := machine.int("boot_disk", "size")
		if m.facts.vmHosts && got != vmDiskGB*1_000_000_000 || got <= 0 {
			t.Errorf("boot_disk has %d bytes, a VM's is to have %d GB", got, vmDiskGB)
		}
	})
}
