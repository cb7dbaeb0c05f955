// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// cards is a machine record with two network cards on one subnet, and the cards.
func (m *maas) cards(t *testing.T) (machine, subnet object, nics []object) {
	t.Helper()
	subnet = m.subnetWithRoom(t)
	machine = m.newMachine(t, "mac_addresses", newMAC(), "mac_addresses", newMAC())
	for _, nic := range machine.objects("interface_set") {
		m.op(t, nicPath(nic), "link_subnet", "mode", "AUTO", "subnet", subnet.id("id"), "force", "true").object(t)
	}
	machine = m.machine(t, machine.str("system_id"))
	if nics = machine.objects("interface_set"); len(nics) != 2 {
		t.Fatalf("the machine has %d interfaces, want 2", len(nics))
	}
	return machine, subnet, nics
}

func nicPath(nic object) string {
	return "nodes/" + nic.str("system_id") + "/interfaces/" + nic.id("id") + "/"
}

// makeNIC makes an interface with op create_bond and the like.
func (m *maas) makeNIC(t *testing.T, machine object, op string, pairs ...string) *answer {
	t.Helper()
	return m.op(t, "nodes/"+machine.str("system_id")+"/interfaces/", op, pairs...)
}

func (m *maas) bond(t *testing.T, machine object, name string, nics []object, pairs ...string) *answer {
	t.Helper()
	pairs = append([]string{"name", name}, pairs...)
	for _, nic := range nics {
		pairs = append(pairs, "parents", nic.id("id"))
	}
	return m.makeNIC(t, machine, "create_bond", pairs...)
}

// taggedVLAN makes a tagged VLAN in the fabric of a subnet.
func (m *maas) taggedVLAN(t *testing.T, subnet object, vid string) object {
	t.Helper()
	path := "fabrics/" + subnet.id("vlan", "fabric_id") + "/vlans/"
	for _, vlan := range m.get(t, path).list(t) {
		if vlan.id("vid") == vid {
			lacks(t, "the fabric has a VLAN %s already", vid)
		}
	}
	made := m.create(t, path, "vid", vid).object(t)
	t.Cleanup(func() { m.delete(t, path+vid+"/") })
	return made
}

// create_bond in api/interfaces.py, BondInterfaceForm in forms/interface.py: what is not given is the form's initial
// value, whatever the API's description says; _update_parents in models/interface.py takes the links.
func TestBondTakesItsPartsLinksAway(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine, subnet, nics := m.cards(t)
		made := m.bond(t, machine, "bond0", nics).object(t)
		checkInterface(t, made)
		if made.str("type") != "bond" || made.str("mac_address") != nics[0].str("mac_address") || made.id("vlan", "id") != subnet.id("vlan", "id") {
			t.Errorf("made %v", made)
		}
		want := object{
			"bond_mode": "balance-rr", "bond_miimon": json.Number("100"), "bond_downdelay": json.Number("0"), "bond_updelay": json.Number("0"),
			"bond_num_grat_arp": json.Number("1"), "bond_lacp_rate": "fast", "bond_xmit_hash_policy": "layer2",
		}
		if diff := cmp.Diff(want, made.part("params")); diff != "" {
			t.Errorf("parameters:\n%s", diff)
		}
		if links := made.objects("links"); len(links) != 1 || links[0].str("mode") != "link_up" || links[0].at("subnet") != nil {
			t.Errorf("the bond has the links %v, want link_up", links)
		}
		for _, nic := range m.machine(t, machine.str("system_id")).objects("interface_set")[:2] {
			if len(nic.objects("links")) != 0 || !cmp.Equal(nic.strings("children"), []string{"bond0"}) {
				t.Errorf("%s has the links %v and is below %v", nic.str("name"), nic.objects("links"), nic.strings("children"))
			}
		}
	})
}

func TestBondTakesMAASsParameters(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine, _, nics := m.cards(t)
		made := m.bond(t, machine, "bond0", nics, "bond_mode", "802.3ad", "bond_lacp_rate", "slow", "bond_miimon", "50", "mtu", "9000").object(t)
		params := made.part("params")
		if params.str("bond_mode") != "802.3ad" || params.str("bond_lacp_rate") != "slow" || params.int("bond_miimon") != 50 || params.int("mtu") != 9000 {
			t.Errorf("parameters %v", params)
		}
		// interface_mtu_params_update in models/signals/interfaces.py: no part has a smaller MTU.
		for _, nic := range m.machine(t, machine.str("system_id")).objects("interface_set") {
			if nic.int("effective_mtu") != 9000 || nic.part("params").int("mtu") != 9000 {
				t.Errorf("%s has the MTU %d, parameters %v", nic.str("name"), nic.int("effective_mtu"), nic.part("params"))
			}
		}
	})
}

func TestBondsThatAreRefused(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine, _, nics := m.cards(t)
		m.makeNIC(t, machine, "create_bond", "name", "bond0").refusesField(t, "parents", "A bond interface must have one or more parents.")
		m.makeNIC(t, machine, "create_bond", "name", "bond0", "parents", "999999").
			refusesField(t, "parents", "Select a valid choice. 999999 is not one of the available choices.")
		m.bond(t, machine, "", nics).refusesField(t, "name", "This field is required.")
		m.bond(t, machine, nics[0].str("name"), nics).
			refusesField(t, "__all__", "Interface with this Node config and Name already exists.")
		m.bond(t, machine, "a b", nics).wants(t, http.StatusBadRequest)
		m.bond(t, machine, "bond0", nics, "bond_mode", "best").refusesField(t, "bond_mode",
			"'best' is not a valid bond_mode.  It should be one of: 'balance-rr', 'active-backup', 'balance-xor', 'broadcast', '802.3ad', 'balance-tlb', 'balance-alb'.")
		m.bond(t, machine, "bond0", nics, "bond_miimon", "-1").refusesField(t, "bond_miimon", "Ensure this value is greater than or equal to 0.")
		m.bond(t, machine, "bond0", nics, "bond_miimon", "x").refusesField(t, "bond_miimon", "Enter a whole number.")
		m.bond(t, machine, "bond0", nics, "mtu", "551").refusesField(t, "mtu", "Ensure this value is greater than or equal to 552.")
		m.bond(t, machine, "bond0", nics, "vlan", "999999").refusesField(t, "vlan", noSuchChoice)
		m.bond(t, machine, "bond0", nics).object(t)
		m.bond(t, machine, "bond1", nics[:1]).refusesField(t, "parents", "Interfaces already in-use: "+nics[0].str("name")+".")
		m.bond(t, m.newDeployedMachine(t), "bond0", nil).
			refuses(t, http.StatusConflict, "Cannot create bond interface because the machine is not New, Ready, Allocated, or Broken.")
	})
}

const noSuchChoice = "Select a valid choice. That choice is not one of the available choices."

// BondInterfaceForm._validate_parent_vlans_match, and BondInterface in models/interface.py, which is asked when the bond
// is saved.
func TestPartsOfABondAreCardsOfOneVLAN(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine, subnet, nics := m.cards(t)
		vlan := m.taggedVLAN(t, subnet, "3901")
		m.put(t, nicPath(nics[1]), "vlan", vlan.id("id")).object(t)
		m.bond(t, machine, "bond0", nics).refusesField(t, "parents", "All parents must belong to the same VLAN.")
		on := m.makeNIC(t, machine, "create_vlan", "parent", nics[0].id("id"), "vlan", vlan.id("id")).object(t)
		m.bond(t, machine, "bond0", []object{on}).refusesField(t, "parents", "Only physical interfaces can be bonded.")
		if named(m.machine(t, machine.str("system_id")), "bond0") != nil {
			t.Errorf("the refused bond is there")
		}
	})
}

// VLANInterfaceForm in forms/interface.py.
func TestVLANInterface(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine, subnet, nics := m.cards(t)
		vlan := m.taggedVLAN(t, subnet, "3901")
		if vlan.at("name") != nil {
			t.Errorf("a tagged VLAN without a name is named %v, want null", vlan.at("name"))
		}
		made := m.makeNIC(t, machine, "create_vlan", "parent", nics[0].id("id"), "vlan", vlan.id("id"), "mtu", "1400").object(t)
		checkInterface(t, made)
		if made.str("type") != "vlan" || made.str("name") != nics[0].str("name")+".3901" || made.str("mac_address") != nics[0].str("mac_address") {
			t.Errorf("made %v", made)
		}
		if links := made.objects("links"); len(links) != 1 || links[0].str("mode") != "link_up" {
			t.Errorf("it has the links %v, want link_up", links)
		}
		if links := named(m.machine(t, machine.str("system_id")), nics[0].str("name")).objects("links"); len(links) != 1 || links[0].str("mode") != "auto" {
			t.Errorf("its parent has the links %v, want its own", links)
		}
		other := m.makeNIC(t, machine, "create_vlan", "parent", nics[1].id("id"), "vlan", vlan.id("id"), "name", "storage").object(t)
		if other.str("name") != "storage" {
			t.Errorf("it has the name %s, want the one that was given", other.str("name"))
		}
	})
}

func TestVLANInterfacesThatAreRefused(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine, subnet, nics := m.cards(t)
		vlan, parent := m.taggedVLAN(t, subnet, "3901"), nics[0].id("id")
		m.makeNIC(t, machine, "create_vlan", "vlan", vlan.id("id")).refusesField(t, "parent", "A VLAN interface must have exactly one parent.")
		m.makeNIC(t, machine, "create_vlan", "parent", parent).refusesField(t, "vlan", "A VLAN interface must be connected to a tagged VLAN.")
		m.makeNIC(t, machine, "create_vlan", "parent", parent, "vlan", subnet.id("vlan", "id")).
			refusesField(t, "vlan", "A VLAN interface can only belong to a tagged VLAN.")
		on := m.makeNIC(t, machine, "create_vlan", "parent", parent, "vlan", vlan.id("id")).object(t)
		m.makeNIC(t, machine, "create_vlan", "parent", parent, "vlan", vlan.id("id")).refusesField(t, "name", "already has an interface named '"+on.str("name")+"'.")
		m.makeNIC(t, machine, "create_vlan", "parent", on.id("id"), "vlan", vlan.id("id")).
			refusesField(t, "parent", "A VLAN interface can't have another VLAN interface as parent.")
		m.bond(t, machine, "bond0", nics).refusesField(t, "parents", "Interfaces already in-use: "+nics[0].str("name")+".")
		m.bond(t, machine, "bond0", nics[1:]).object(t)
		m.makeNIC(t, machine, "create_vlan", "parent", nics[1].id("id"), "vlan", vlan.id("id")).
			refusesField(t, "parent", "A VLAN interface can't have a parent that is already in a bond.")
	})
}

// update in api/interfaces.py; interface_vlan_update in models/signals/interfaces.py.
func TestInterfaceIsChanged(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		_, subnet, nics := m.cards(t)
		path := nicPath(nics[1])
		if got := m.put(t, path, "mtu", "9000").object(t); got.int("effective_mtu") != 9000 || len(got.objects("links")) != 1 {
			t.Errorf("MTU %d and links %v, want 9000 and the link as it was", got.int("effective_mtu"), got.objects("links"))
		}
		if got := m.put(t, path, "mtu", "").object(t); got.int("effective_mtu") == 9000 {
			t.Errorf("MTU %d, want none of its own", got.int("effective_mtu"))
		}
		if got := m.put(t, path, "name", "fast0").object(t); got.str("name") != "fast0" {
			t.Errorf("its name is %s", got.str("name"))
		}
		m.put(t, path, "name", nics[0].str("name")).refusesField(t, "name", "already has an interface named")
		m.put(t, path, "mtu", "1").refusesField(t, "mtu", "Ensure this value is greater than or equal to 552.")
		m.put(t, path, "vlan", "999999").refusesField(t, "vlan", noSuchChoice)
		vlan := m.taggedVLAN(t, subnet, "3901")
		if got := m.put(t, path, "vlan", vlan.id("id")).object(t); got.id("vlan", "id") != vlan.id("id") || len(got.objects("links")) != 0 {
			t.Errorf("VLAN %v and links %v, want the other one and none", got.part("vlan"), got.objects("links"))
		}
		if got := m.put(t, path, "vlan", "").object(t); got.at("vlan") != nil {
			t.Errorf("VLAN %v, want none", got.at("vlan"))
		}
	})
}

// delete in api/interfaces.py; delete_children_interface_handler in models/signals/interfaces.py. The parts of a deleted
// bond have no links.
func TestDeletedInterfaceTakesWhatIsOnIt(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine, subnet, nics := m.cards(t)
		vlan := m.taggedVLAN(t, subnet, "3901")
		bond := m.bond(t, machine, "bond0", nics).object(t)
		m.makeNIC(t, machine, "create_vlan", "parent", bond.id("id"), "vlan", vlan.id("id")).object(t)
		m.delete(t, nicPath(bond)).wants(t, http.StatusNoContent)
		now := m.machine(t, machine.str("system_id"))
		if left := now.objects("interface_set"); len(left) != 2 || len(left[0].objects("links")) != 0 {
			t.Errorf("left are %v, want the two cards without links", left)
		}
		m.delete(t, nicPath(bond)).refuses(t, http.StatusNotFound, "No Interface matches the given query.")
		deployed := m.newDeployedMachine(t)
		m.delete(t, interfacePath(deployed)).
			refuses(t, http.StatusConflict, "Cannot delete interface interface because the machine is not New, Ready, Allocated, or Broken.")
	})
}

// InterfaceLinkForm.clean in forms/interface_link.py.
func TestPartOfABondIsNotLinked(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine, subnet, nics := m.cards(t)
		m.bond(t, machine, "bond0", nics).object(t)
		m.op(t, nicPath(nics[0]), "link_subnet", "mode", "AUTO", "subnet", subnet.id("id"), "force", "true").
			refusesField(t, "bond", "Cannot link interface("+nics[0].str("name")+") when interface is in a bond(bond0).")
	})
}

// release_interface_config in models/node.py: only what is marked acquired goes, and of the made interfaces that is the
// bridge alone. It borrows a bare-metal machine of the region.
func TestBondStaysAfterTheRelease(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.borrow(t)
		id, boot := machine.str("system_id"), machine.part("boot_interface")
		before := boot.objects("links")
		if len(before) != 1 || before[0].str("mode") != "auto" {
			lacks(t, "the machine's boot interface has not the one link that commissioning makes")
		}
		bond := m.bond(t, machine, "bond7", []object{boot}).object(t)
		t.Cleanup(func() {
			m.delete(t, nicPath(bond)).gone(t)
			m.op(t, nicPath(boot), "link_subnet", "mode", "AUTO", "subnet", before[0].id("subnet", "id"), "force", "true").object(t)
		})
		m.makeNIC(t, machine, "create_bridge", "name", "br7", "parent", bond.id("id")).object(t)
		m.op(t, machinePath(id), "release").object(t)
		back := m.awaitStatus(t, id, "Ready")
		if named(back, "bond7") == nil || named(back, "br7") != nil {
			t.Errorf("after the release: bond %v and bridge %v, want the bond alone", named(back, "bond7"), named(back, "br7"))
		}
	})
}

func TestPlainUserChangesNoInterfaces(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		plain := m.asPlainUser(t)
		machine, _, nics := m.cards(t)
		plain.bond(t, machine, "bond0", nics).wants(t, http.StatusForbidden)
		plain.makeNIC(t, machine, "create_vlan").wants(t, http.StatusForbidden)
		plain.put(t, nicPath(nics[0]), "mtu", "9000").wants(t, http.StatusForbidden)
		plain.delete(t, nicPath(nics[0])).wants(t, http.StatusForbidden)
	})
}

// VlansHandler in api/vlans.py.
func TestVLANsOfAFabric(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		subnet := m.subnetWithRoom(t)
		path := "fabrics/" + subnet.id("vlan", "fabric_id") + "/vlans/"
		vlan := m.taggedVLAN(t, subnet, "3901")
		if !has(m.get(t, path).list(t), "resource_uri", vlan.str("resource_uri")) {
			t.Errorf("the VLAN is not listed")
		}
		m.create(t, path, "vid", "3901").wants(t, http.StatusBadRequest)
		m.get(t, "fabrics/999999/vlans/").refuses(t, http.StatusNotFound, "No Fabric matches the given query.")
	})
}
