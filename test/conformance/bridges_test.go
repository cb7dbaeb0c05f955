// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bridge makes a bridge on the interface that a machine boots from.
func (m *maas) bridge(t *testing.T, machine object, name string) *answer {
	t.Helper()
	return m.op(t, "nodes/"+machine.str("system_id")+"/interfaces/", "create_bridge", "name", name, "parent", machine.part("boot_interface").id("id"))
}

// named finds an interface of a machine; nil: none.
func named(machine object, name string) object {
	for _, nic := range machine.objects("interface_set") {
		if nic.str("name") == name {
			return nic
		}
	}
	return nil
}

// AcquiredBridgeInterfaceForm in forms/interface.py, and release_interface_config in models/node.py. It borrows a
// bare-metal machine of the region.
func TestBridgeOfAnAllocatedMachineGoesWithItsRelease(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.borrow(t)
		port := machine.part("boot_interface").str("name")
		before := named(machine, port).objects("links")
		if len(before) == 0 {
			lacks(t, "the machine's interface has no links")
		}
		made := m.bridge(t, machine, "br7").object(t)
		if made.str("type") != "bridge" || !cmp.Equal(made.strings("parents"), []string{port}) || made.str("mac_address") != machine.part("boot_interface").str("mac_address") {
			t.Errorf("made %v", made)
		}
		if diff := cmp.Diff(before, made.objects("links")); diff != "" {
			t.Errorf("the links of %s did not move to the bridge as they were:\n%s", port, diff)
		}
		now := m.machine(t, machine.str("system_id"))
		if left := named(now, port).objects("links"); len(left) != 0 || !cmp.Equal(named(now, port).strings("children"), []string{"br7"}) {
			t.Errorf("%s has the links %v and is below %v", port, left, named(now, port).strings("children"))
		}
		m.op(t, machinePath(machine.str("system_id")), "release").object(t)
		back := m.awaitStatus(t, machine.str("system_id"), "Ready")
		if named(back, "br7") != nil {
			t.Errorf("the bridge is there after the release")
		}
		if diff := cmp.Diff(before, named(back, port).objects("links")); diff != "" {
			t.Errorf("the links of %s after the release:\n%s", port, diff)
		}
		m.op(t, "machines/", "allocate", "system_id", machine.str("system_id")).object(t)
	})
}

// BridgeInterfaceForm in forms/interface.py; _update_parents in models/interface.py removes the links from the port.
func TestBridgeOfAReadyMachineHasNoLinks(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.spare(t)
		made := m.bridge(t, machine, "br7").object(t)
		if links := made.objects("links"); len(links) != 1 || links[0].str("mode") != "link_up" {
			t.Errorf("the bridge has the links %v, want link_up", links)
		}
		now := m.machine(t, machine.str("system_id"))
		if links := named(now, machine.part("boot_interface").str("name")).objects("links"); len(links) != 0 {
			t.Errorf("the port has the links %v", links)
		}
	})
}

func TestBridgesThatAreRefused(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.spare(t)
		want := "A bridge interface must have exactly one parent."
		if m.facts.severalPorts {
			want = "A bridge interface must have at least one parent."
		}
		m.makeNIC(t, machine, "create_bridge").refusesField(t, "parent", want)
		m.bridge(t, machine, machine.part("boot_interface").str("name")).wants(t, http.StatusBadRequest)
		m.bridge(t, machine, "br7").object(t)
		m.bridge(t, machine, "br8").refusesField(t, "parent", "A bridge interface can't have a parent that is already in a bond or a bridge.")
		m.bridge(t, m.deployed(t), "br7").wants(t, http.StatusConflict)
	})
}

// BridgeInterfaceForm.clean_parents in forms/interface.py, and create_bridge in api/interfaces.py.
func TestBridgeOfSeveralPorts(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine, _, nics := m.cards(t)
		ports := []string{"parents", nics[0].id("id"), "parents", nics[1].id("id"), "name", "br7"}
		if !m.facts.severalPorts {
			m.makeNIC(t, machine, "create_bridge", ports...).refusesField(t, "parent", "A bridge interface must have exactly one parent.")
			return
		}
		m.makeNIC(t, machine, "create_bridge", append(ports, "parent", nics[0].id("id"))...).
			refuses(t, http.StatusBadRequest, "Cannot specify both parent and parents fields.")
		made := m.makeNIC(t, machine, "create_bridge", ports...).object(t)
		if got := made.strings("parents"); len(got) != 2 {
			t.Errorf("the bridge has the ports %v, want both", got)
		}
	})
}

func TestPlainUserMakesNoBridge(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		plain := m.asPlainUser(t)
		plain.bridge(t, m.spare(t), "br7").wants(t, http.StatusForbidden)
	})
}
