// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

var (
	untagged = &maas.VLAN{ID: 10, FabricID: 1}
	storage  = maas.VLAN{ID: 11, VID: 100, FabricID: 1}
	other    = maas.VLAN{ID: 20, FabricID: 2}
)

// nic is an interface with the id and, as a card, a MAC address that ends in it.
func nic(id int, name, kind string, vlan *maas.VLAN, parents ...string) *maas.Interface {
	return &maas.Interface{ID: id, Name: name, Type: kind, MACAddress: "00:16:3E:00:00:0" + string(rune('0'+id)), VLAN: vlan, Parents: parents}
}

// machineWith has three cards, of which the last is on another fabric, and further interfaces.
func machineWith(more ...*maas.Interface) *maas.Machine {
	cards := []*maas.Interface{nic(1, "eth0", "physical", untagged), nic(2, "eth1", "physical", untagged), nic(3, "eth2", "physical", &other)}
	cards[1].Tags = []string{"fast"}
	m := &maas.Machine{Interfaces: append(cards, more...), BootInterface: cards[0]}
	for _, child := range m.Interfaces {
		for _, parent := range m.Interfaces {
			for _, name := range child.Parents {
				if parent.Name == name {
					parent.Children = append(parent.Children, child.Name)
				}
			}
		}
	}
	return m
}

func bondOf(parts ...string) WantedInterface {
	return WantedInterface{Name: "bond0", Type: "bond", Parents: parts, Params: maas.InterfaceParams{"bond_mode": "802.3ad"}}
}

func vlanOn(part string) WantedInterface {
	return WantedInterface{Name: "bond0.100", Type: "vlan", Parents: []string{part}, VID: 100}
}

func bridgeOn(part string) WantedInterface {
	return WantedInterface{Name: "br0", Type: "bridge", Parents: []string{part}, Params: maas.InterfaceParams{"bridge_stp": "true"}}
}

func withParams(i *maas.Interface, pairs ...string) *maas.Interface {
	i.Params = maas.InterfaceParams{}
	for at := 0; at < len(pairs); at += 2 {
		i.Params[pairs[at]] = pairs[at+1]
	}
	return i
}

// Each shape is met before anything is done, when a part of it is done (the response may have been lost), and at the end.
func TestNextInterface(t *testing.T) {
	bond := func() *maas.Interface {
		return withParams(nic(4, "bond0", "bond", untagged, "eth0", "eth1"), "bond_mode", "802.3ad")
	}
	vlan := func(on string) *maas.Interface { return nic(5, "bond0.100", "vlan", &storage, on) }
	bridge := func(on string) *maas.Interface {
		return withParams(nic(6, "br0", "bridge", untagged, on), "bridge_stp", "true", "mtu", "9000")
	}
	makeBond := &InterfaceChange{About: "bond0", Create: &maas.InterfaceSpec{
		Type: "bond", Name: "bond0", Parents: []int{1, 2}, Params: maas.InterfaceParams{"bond_mode": "802.3ad"},
	}}
	makeVLAN := func(on int) *InterfaceChange {
		return &InterfaceChange{About: "bond0.100", Create: &maas.InterfaceSpec{Type: "vlan", Name: "bond0.100", Parents: []int{on}, VLANID: 11}}
	}
	makeBridge := func(on int) *InterfaceChange {
		return &InterfaceChange{About: "br0", Create: &maas.InterfaceSpec{Type: "bridge", Name: "br0", Parents: []int{on}, Params: maas.InterfaceParams{"bridge_stp": "true"}}}
	}
	jumbo := 9000
	mtu := func(id int, name string) *InterfaceChange {
		return &InterfaceChange{Interface: id, About: name, Update: &maas.InterfaceUpdate{MTU: &jumbo}}
	}
	for name, tc := range map[string]struct {
		wanted []WantedInterface
		has    []*maas.Interface
		want   *InterfaceChange
	}{
		"a bond":                           {[]WantedInterface{bondOf("eth0", "eth1")}, nil, makeBond},
		"a bond by MAC address and tag":    {[]WantedInterface{bondOf("00:16:3e:00:00:01", "fast")}, nil, makeBond},
		"a bond in another mode":           {[]WantedInterface{bondOf("eth0", "eth1")}, []*maas.Interface{nic(4, "bond0", "bond", untagged, "eth0", "eth1")}, &InterfaceChange{Interface: 4, About: "bond0", Update: &maas.InterfaceUpdate{Params: maas.InterfaceParams{"bond_mode": "802.3ad"}}}},
		"a bond, done":                     {[]WantedInterface{bondOf("eth0", "eth1")}, []*maas.Interface{bond()}, nil},
		"a VLAN":                           {[]WantedInterface{vlanOn("eth1")}, nil, makeVLAN(2)},
		"a VLAN, done":                     {[]WantedInterface{vlanOn("eth1")}, []*maas.Interface{vlan("eth1")}, nil},
		"a bridge":                         {[]WantedInterface{bridgeOn("eth0")}, nil, makeBridge(1)},
		"a bridge, done":                   {[]WantedInterface{bridgeOn("eth0")}, []*maas.Interface{bridge("eth0")}, nil},
		"a VLAN on a bond":                 {[]WantedInterface{bondOf("eth0", "eth1"), vlanOn("bond0")}, nil, makeBond},
		"a VLAN on a bond, half":           {[]WantedInterface{bondOf("eth0", "eth1"), vlanOn("bond0")}, []*maas.Interface{bond()}, makeVLAN(4)},
		"a VLAN on a bond, done":           {[]WantedInterface{bondOf("eth0", "eth1"), vlanOn("bond0")}, []*maas.Interface{bond(), vlan("bond0")}, nil},
		"a bridge on a VLAN":               {[]WantedInterface{vlanOn("eth0"), bridgeOn("bond0.100")}, nil, makeVLAN(1)},
		"a bridge on a VLAN, half":         {[]WantedInterface{vlanOn("eth0"), bridgeOn("bond0.100")}, []*maas.Interface{vlan("eth0")}, makeBridge(5)},
		"a bridge on a VLAN, done":         {[]WantedInterface{vlanOn("eth0"), bridgeOn("bond0.100")}, []*maas.Interface{vlan("eth0"), bridge("bond0.100")}, nil},
		"bond, VLAN and bridge":            {[]WantedInterface{bondOf("eth0", "eth1"), vlanOn("bond0"), bridgeOn("bond0")}, nil, makeBond},
		"bond, VLAN and bridge, one third": {[]WantedInterface{bondOf("eth0", "eth1"), vlanOn("bond0"), bridgeOn("bond0")}, []*maas.Interface{bond()}, makeVLAN(4)},
		"bond, VLAN and bridge, half":      {[]WantedInterface{bondOf("eth0", "eth1"), vlanOn("bond0"), bridgeOn("bond0")}, []*maas.Interface{bond(), vlan("bond0")}, makeBridge(4)},
		"bond, VLAN and bridge, done":      {[]WantedInterface{bondOf("eth0", "eth1"), vlanOn("bond0"), bridgeOn("bond0")}, []*maas.Interface{bond(), vlan("bond0"), bridge("bond0")}, nil},
		"an MTU of a card":                 {[]WantedInterface{{Name: "fast", MTU: 9000}}, nil, mtu(2, "eth1")},
		"an MTU, half":                     {[]WantedInterface{{Name: "eth0", MTU: 9000}, {Name: "br0", Type: "bridge", Parents: []string{"eth0"}, MTU: 9000}}, []*maas.Interface{bridge("eth0")}, mtu(1, "eth0")},
		"an MTU, done":                     {[]WantedInterface{{Name: "br0", Type: "bridge", Parents: []string{"eth0"}, MTU: 9000}}, []*maas.Interface{bridge("eth0")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := NextInterface(machineWith(tc.has...), tc.wanted, []maas.VLAN{*untagged, storage})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestInterfacesThatTheMachineCannotHave(t *testing.T) {
	for name, tc := range map[string]struct {
		wanted []WantedInterface
		has    []*maas.Interface
		nic    string
		about  string // what the message names
	}{
		"an unknown card": {[]WantedInterface{{Name: "eth9", MTU: 1500}}, nil, "eth9", "no interface"},
		"an unknown part": {[]WantedInterface{bondOf("eth0", "eth9")}, nil, "bond0", "eth9"},
		"an unknown part of a VLAN behind a possible bond": {[]WantedInterface{bondOf("eth0", "eth1"), vlanOn("eth9")}, nil, "bond0.100", "eth9"},
		"several cards with the tag": {[]WantedInterface{{Name: "br0", Type: "bridge", Parents: []string{"slow"}}}, []*maas.Interface{
			{ID: 7, Name: "a", Type: "physical", Tags: []string{"slow"}}, {ID: 8, Name: "b", Type: "physical", Tags: []string{"slow"}},
		}, "br0", "a, b"},
		"a bond over two VLANs":        {[]WantedInterface{bondOf("eth0", "eth2")}, nil, "bond0", "eth2"},
		"a bond of a VLAN":             {[]WantedInterface{vlanOn("eth0"), {Name: "bond1", Type: "bond", Parents: []string{"bond0.100"}}}, nil, "bond1", "bond0.100"},
		"a part of another bond":       {[]WantedInterface{bondOf("eth0", "eth1")}, []*maas.Interface{nic(7, "bond9", "bond", untagged, "eth1")}, "bond0", "bond9"},
		"a part of two":                {[]WantedInterface{bondOf("eth0", "eth1"), {Name: "bond1", Type: "bond", Parents: []string{"eth1"}}}, nil, "bond1", "bond0"},
		"a bridge in a bridge":         {[]WantedInterface{bridgeOn("eth0"), {Name: "br1", Type: "bridge", Parents: []string{"br0"}}}, nil, "br1", "br0"},
		"a VLAN on a VLAN":             {[]WantedInterface{vlanOn("eth0"), {Name: "v", Type: "vlan", VID: 100, Parents: []string{"bond0.100"}}}, nil, "v", "bond0.100"},
		"a VLAN on a bond's part":      {[]WantedInterface{bondOf("eth0", "eth1"), vlanOn("eth0")}, nil, "bond0.100", "bond0"},
		"a VLAN that MAAS lacks":       {[]WantedInterface{{Name: "v", Type: "vlan", VID: 7, Parents: []string{"eth0"}}}, nil, "v", "VLAN 7"},
		"a VLAN of another fabric":     {[]WantedInterface{vlanOn("eth2")}, nil, "bond0.100", "fabric of eth2"},
		"a name of another type":       {[]WantedInterface{{Name: "eth1", Type: "bridge", Parents: []string{"eth0"}}}, nil, "eth1", "physical"},
		"a bond of other parts":        {[]WantedInterface{bondOf("eth0", "eth1")}, []*maas.Interface{nic(7, "bond0", "bond", untagged, "eth1")}, "bond0", "eth1"},
		"another VLAN's name":          {[]WantedInterface{vlanOn("eth0")}, []*maas.Interface{nic(7, "bond0.100", "vlan", &other, "eth0")}, "bond0.100", "100"},
		"an MTU beyond that of a part": {[]WantedInterface{{Name: "eth0", MTU: 1500}, bondOf("eth0", "eth1"), {Name: "v", Type: "vlan", VID: 100, MTU: 9000, Parents: []string{"bond0"}}}, nil, "v", "eth0"},
	} {
		t.Run(name, func(t *testing.T) {
			change, err := NextInterface(machineWith(tc.has...), tc.wanted, []maas.VLAN{*untagged, storage, other})
			var refused *NICError
			if !errors.As(err, &refused) || change != nil {
				t.Fatalf("%v, %v; want a refusal", change, err)
			}
			if refused.NIC != tc.nic || !strings.Contains(refused.Message, tc.about) {
				t.Errorf("refused %s: %s; want %s, and why: %s", refused.NIC, refused.Message, tc.nic, tc.about)
			}
		})
	}
}
