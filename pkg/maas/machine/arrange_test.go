// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

const cabled = `
users: [{name: admin, admin: true, keys: ["admin:token:secret"]}]
domains: [{name: maas.sim, default: true}]
subnets:
  - {cidr: 10.77.0.0/24, fabric: f, dhcp: true}
  - {cidr: 10.100.0.0/24, fabric: f, vid: 100}
  - {cidr: 10.78.0.0/24, fabric: storage}
images: [{name: ubuntu/jammy}]
machines: [{names: [metal], cores: 8, memory: 16384, disks: [100], nics: [{name: eth0}, {name: eth1}, {name: eth2, subnet: 10.78.0.0/24}]}]
`

// metal is an Allocated machine of a MAAS, and a service on it.
type metal struct {
	*Service
	t      *testing.T
	sim    *simulator.Simulator
	client *maas.Client
	id     string
}

func newMetal(t *testing.T, version string) *metal {
	t.Helper()
	sim, endpoint := simtest.Start(t, cabled, simulator.Options{TimeScale: 2000, Version: version})
	client := simtest.Client(t, endpoint, "admin:token:secret")
	service := NewService(inventory.New(client, inventory.Options{}), nil)
	return &metal{Service: service, t: t, sim: sim, client: client, id: sim.Machines()[0].SystemID}
}

func (b *metal) allocate() *maas.Machine {
	b.t.Helper()
	m, err := b.client.AllocateMachine(b.t.Context(), maas.Unrecorded("a test"), maas.AllocateParams{SystemID: b.id, AgentName: "ours"})
	if err != nil {
		b.t.Fatal(err)
	}
	return m
}

func (b *metal) release() *maas.Machine {
	b.t.Helper()
	if _, err := b.client.ReleaseMachine(b.t.Context(), maas.UnrecordedRelease("a test"), b.id, maas.ReleaseParams{}); err != nil {
		b.t.Fatal(err)
	}
	return b.read()
}

func (b *metal) read() *maas.Machine {
	b.t.Helper()
	m, err := b.client.GetMachine(b.t.Context(), b.id)
	if err != nil {
		b.t.Fatal(err)
	}
	return m
}

// described are a machine's interfaces, a line each: name, type, VLAN, MTU, parts and mode, and links.
func described(m *maas.Machine) []string {
	var lines []string
	for _, i := range m.Interfaces {
		line := fmt.Sprintf("%s %s", i.Name, i.Type)
		if i.VLAN != nil && i.VLAN.VID != 0 {
			line += fmt.Sprintf(" tagged %d", i.VLAN.VID)
		}
		if i.MTU() != 0 {
			line += fmt.Sprintf(" mtu %d", i.MTU())
		}
		if len(i.Parents) > 0 {
			line += " of " + strings.Join(i.Parents, "+")
		}
		if mode := i.Params["bond_mode"]; mode != "" {
			line += " " + mode
		}
		for _, link := range i.Links {
			line += ", " + link.Mode
			if link.Subnet != nil {
				line += " " + link.Subnet.CIDR
			}
			if link.IPAddress != "" {
				line += " " + link.IPAddress
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// shape is a wanted network, and what MAAS has after it was made, and after the release, before it is undone.
type shape struct {
	wanted         []WantedInterface
	nics           []NIC
	made, released []string
}

var shapes = map[string]shape{
	"a bond that carries the static address": {
		wanted: []WantedInterface{{Name: "bond0", Type: "bond", Parents: []string{"eth0", "eth1"}, Params: maas.InterfaceParams{"bond_mode": "802.3ad"}, MTU: 9000}},
		nics:   []NIC{{Name: "bond0", Mode: "static", Address: "10.77.0.50"}},
		made: []string{
			"eth0 physical mtu 9000", "eth1 physical mtu 9000", "eth2 physical, auto 10.78.0.0/24",
			"bond0 bond mtu 9000 of eth0+eth1 802.3ad, static 10.77.0.0/24 10.77.0.50",
		},
		released: []string{
			"eth0 physical mtu 9000", "eth1 physical mtu 9000", "eth2 physical, auto 10.78.0.0/24",
			"bond0 bond mtu 9000 of eth0+eth1 802.3ad, static 10.77.0.0/24 10.77.0.50",
		},
	},
	"VLANs on a bond": {
		wanted: []WantedInterface{
			{Name: "bond0", Type: "bond", Parents: []string{"eth0", "eth1"}, Params: maas.InterfaceParams{"bond_mode": "active-backup"}},
			{Name: "bond0.100", Type: "vlan", Parents: []string{"bond0"}, VID: 100},
		},
		nics: []NIC{{Name: "bond0", Mode: "auto", Subnet: "10.77.0.0/24"}, {Name: "bond0.100", Mode: "auto", Subnet: "10.100.0.0/24"}},
		made: []string{
			"eth0 physical", "eth1 physical", "eth2 physical, auto 10.78.0.0/24", "bond0 bond of eth0+eth1 active-backup, auto 10.77.0.0/24",
			"bond0.100 vlan tagged 100 of bond0, auto 10.100.0.0/24",
		},
		released: []string{
			"eth0 physical", "eth1 physical", "eth2 physical, auto 10.78.0.0/24", "bond0 bond of eth0+eth1 active-backup, auto 10.77.0.0/24",
			"bond0.100 vlan tagged 100 of bond0, auto 10.100.0.0/24",
		},
	},
	"a bridge, which goes with the release": {
		wanted: []WantedInterface{{Name: "br0", Type: "bridge", Parents: []string{"eth0"}, Params: maas.InterfaceParams{"bridge_stp": "true"}}},
		made: []string{
			"eth0 physical", "eth1 physical, auto 10.77.0.0/24", "eth2 physical, auto 10.78.0.0/24", "br0 bridge of eth0, auto 10.77.0.0/24",
		},
		released: []string{"eth0 physical, auto 10.77.0.0/24", "eth1 physical, auto 10.77.0.0/24", "eth2 physical, auto 10.78.0.0/24"},
	},
	"a bridge on a VLAN, on another subnet": {
		wanted: []WantedInterface{
			{Name: "storage", Type: "vlan", Parents: []string{"eth1"}, VID: 100},
			{Name: "br100", Type: "bridge", Parents: []string{"storage"}},
		},
		nics: []NIC{{Name: "br100", Mode: "dhcp", Subnet: "10.100.0.0/24"}},
		made: []string{
			"eth0 physical, auto 10.77.0.0/24", "eth1 physical, auto 10.77.0.0/24", "eth2 physical, auto 10.78.0.0/24",
			"storage vlan tagged 100 of eth1", "br100 bridge tagged 100 of storage, dhcp 10.100.0.0/24",
		},
		released: []string{
			"eth0 physical, auto 10.77.0.0/24", "eth1 physical, auto 10.77.0.0/24", "eth2 physical, auto 10.78.0.0/24",
			"storage vlan tagged 100 of eth1, dhcp 10.100.0.0/24",
		},
	},
	"cards alone": {
		wanted: []WantedInterface{{Name: "eth1", MTU: 9000}, {Name: "eth2"}},
		nics:   []NIC{{Name: "eth1", Mode: "dhcp", Subnet: "10.78.0.0/24"}, {Name: "eth2", Mode: "link_up"}},
		made: []string{
			"eth0 physical, auto 10.77.0.0/24", "eth1 physical mtu 9000, dhcp 10.78.0.0/24", "eth2 physical, link_up 10.78.0.0/24",
		},
		released: []string{
			"eth0 physical, auto 10.77.0.0/24", "eth1 physical mtu 9000, dhcp 10.78.0.0/24", "eth2 physical, link_up 10.78.0.0/24",
		},
	},
}

// apply makes a shape on the allocated machine, and returns how it is undone.
func (b *metal) apply(s shape) *Arrangement {
	b.t.Helper()
	m := b.allocate()
	a := NewArrangement("ours", m, s.wanted, s.nics)
	m, err := b.Arrange(b.t.Context(), maas.Unrecorded("a test"), m, s.wanted)
	if err != nil {
		b.t.Fatal(err)
	}
	if !Arranged(m, s.wanted) {
		b.t.Errorf("it is not as wanted: %v", described(m))
	}
	if m, err = b.Connect(b.t.Context(), maas.Unrecorded("a test"), m, s.nics); err != nil {
		b.t.Fatal(err)
	}
	if !Connected(b.read(), s.nics) || a.Undone(m, "") {
		b.t.Errorf("it is not connected, or nothing is to be undone: %v", described(m))
	}
	return a
}

func eachVersion(t *testing.T, run func(t *testing.T, version string)) {
	for _, version := range simulator.Versions {
		t.Run(version.Series(), func(t *testing.T) { run(t, version.String()) })
	}
}

func TestWhatIsMadeIsUndoneAfterTheRelease(t *testing.T) {
	for name, s := range shapes {
		t.Run(name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, version string) {
				b := newMetal(t, version)
				before := string(b.sim.State())
				a := b.apply(s)
				if diff := cmp.Diff(s.made, described(b.read())); diff != "" {
					t.Errorf("made (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(s.released, described(b.release())); diff != "" {
					t.Errorf("released (-want +got):\n%s", diff)
				}
				b.allocate()
				if err := b.RestoreInterfaces(t.Context(), maas.Unrecorded("a test"), b.id, a, "10.77.0.50"); err != nil {
					t.Fatal(err)
				}
				b.release()
				if diff := cmp.Diff(before, string(b.sim.State())); diff != "" {
					t.Errorf("undone (-before +after):\n%s", diff)
				}
			})
		})
	}
}

// The call takes effect, and its response is lost: what was done is done once, and undone wholly.
func TestInterfacesWithLostResponses(t *testing.T) {
	for name, s := range shapes {
		for _, phase := range []simulator.Phase{simulator.Before, simulator.After} {
			t.Run(fmt.Sprintf("%s, %v", name, phase), func(t *testing.T) {
				b := newMetal(t, "")
				before := string(b.sim.State())
				m := b.allocate()
				a := NewArrangement("ours", m, s.wanted, s.nics)
				n := 0
				b.sim.SetHook(func(call simulator.Call, at simulator.Phase) error {
					if at != phase || call.Method == "GET" || !strings.Contains(call.Endpoint, "interfaces") {
						return nil
					}
					if n++; n%2 == 1 {
						return errors.New("lost")
					}
					return nil
				})
				for range 20 {
					var err error
					if m, err = b.Arrange(t.Context(), maas.Unrecorded("a test"), b.read(), s.wanted); err == nil {
						if _, err = b.Connect(t.Context(), maas.Unrecorded("a test"), m, s.nics); err == nil {
							break
						}
					}
				}
				if diff := cmp.Diff(s.made, described(b.read())); diff != "" {
					t.Errorf("made (-want +got):\n%s", diff)
				}
				b.release()
				b.allocate()
				err := errors.New("not tried")
				for try := 0; try < 20 && err != nil; try++ {
					err = b.RestoreInterfaces(t.Context(), maas.Unrecorded("a test"), b.id, a, "10.77.0.50")
				}
				b.release()
				if diff := cmp.Diff(before, string(b.sim.State())); diff != "" || err != nil {
					t.Errorf("undone: %v (-before +after):\n%s", err, diff)
				}
			})
		}
	}
}

func TestAnotherUsersInterfacesAreLeftAlone(t *testing.T) {
	s := shapes["VLANs on a bond"]
	permit := maas.Unrecorded("a test")
	t.Run("somebody built on the bond", func(t *testing.T) {
		b := newMetal(t, "")
		a := b.apply(s)
		m := b.release()
		bond := find(m, "bond0")
		if _, err := b.client.CreateInterface(t.Context(), permit, b.id, maas.InterfaceSpec{Type: "bridge", Name: "theirs", Parents: []int{bond.ID}}); err != nil {
			t.Fatal(err)
		}
		b.allocate()
		if err := b.RestoreInterfaces(t.Context(), permit, b.id, a, ""); err != nil {
			t.Error(err)
		}
		if m := b.read(); !hasInterface(m, "theirs") || !hasInterface(m, "bond0") || hasInterface(m, "bond0.100") {
			t.Errorf("left is %v, want the bond and the bridge on it", described(m))
		}
	})
	t.Run("somebody linked a card", func(t *testing.T) {
		b := newMetal(t, "")
		a := b.apply(shapes["cards alone"])
		m := b.release()
		subnets, err := b.client.ListSubnets(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		theirs := maas.LinkParams{Mode: maas.LinkModeStatic, SubnetID: subnets[2].ID, IPAddress: "10.78.0.9", Replace: true}
		if _, err := b.client.LinkSubnet(t.Context(), permit, b.id, find(m, "eth2").ID, theirs); err != nil {
			t.Fatal(err)
		}
		b.allocate()
		if err := b.RestoreInterfaces(t.Context(), permit, b.id, a, ""); err != nil {
			t.Error(err)
		}
		want := []string{"eth0 physical, auto 10.77.0.0/24", "eth1 physical, auto 10.77.0.0/24", "eth2 physical, static 10.78.0.0/24 10.78.0.9"}
		if diff := cmp.Diff(want, described(b.read())); diff != "" {
			t.Errorf("left (-want +got):\n%s", diff)
		}
	})
}

// MAAS gives an interface that loses its last link one without an address.
func TestACardThatHadNoLinkHasNoneAgain(t *testing.T) {
	for name, nic := range map[string]NIC{
		"an automatic address": {Name: "eth1", Mode: "auto", Subnet: "10.77.0.0/24"},
		"another VLAN":         {Name: "eth1", Mode: "auto", Subnet: "10.78.0.0/24"},
		"dhcp":                 {Name: "eth1", Mode: "dhcp", Subnet: "10.77.0.0/24"},
		"no address":           {Name: "eth1", Mode: "link_up"},
	} {
		for cable, connected := range map[string]bool{"on a VLAN": true, "on none": false} {
			t.Run(name+", "+cable, func(t *testing.T) {
				eachVersion(t, func(t *testing.T, version string) {
					b := newMetal(t, version)
					card := find(b.read(), "eth1")
					b.moveTo(card.ID, 0)
					if connected {
						b.moveTo(card.ID, card.VLAN.ID)
					} else if nic.Subnet == "" {
						return // MAAS makes no link there.
					}
					before := string(b.sim.State())
					if links := find(b.read(), "eth1").Links; len(links) != 0 {
						t.Fatalf("the card has the links %v: nothing is tested", links)
					}
					a := b.apply(shape{wanted: []WantedInterface{{Name: "eth1"}}, nics: []NIC{nic}})
					b.release()
					b.allocate()
					if err := b.RestoreInterfaces(t.Context(), maas.Unrecorded("a test"), b.id, a, ""); err != nil {
						t.Fatal(err)
					}
					b.release()
					if diff := cmp.Diff(before, string(b.sim.State())); diff != "" {
						t.Errorf("undone (-before +after):\n%s", diff)
					}
				})
			})
		}
	}
}

// moveTo puts a card on a VLAN, or with 0 on none, where it has no links.
func (b *metal) moveTo(card, vlan int) {
	b.t.Helper()
	if _, err := b.client.UpdateInterface(b.t.Context(), maas.Unrecorded("a test"), b.id, card, maas.InterfaceUpdate{VLANID: &vlan}); err != nil {
		b.t.Fatal(err)
	}
}

// A MAAS that makes a link on each card that gets a VLAN is asked for each change once.
func TestARestorationThatMAASUndoesEnds(t *testing.T) {
	b := newMetal(t, "")
	card := find(b.read(), "eth1")
	b.moveTo(card.ID, 0)
	b.moveTo(card.ID, card.VLAN.ID)
	a := b.apply(shape{wanted: []WantedInterface{{Name: "eth1"}}, nics: []NIC{{Name: "eth1", Mode: "auto", Subnet: "10.77.0.0/24"}}})
	b.release()
	changes := 0
	b.sim.SetHook(func(call simulator.Call, at simulator.Phase) error {
		if call.Method != "PUT" || at != simulator.After {
			return nil
		}
		if changes++; changes > 9 {
			return errors.New("no end")
		}
		if _, err := b.client.LinkSubnet(t.Context(), maas.Unrecorded("a test"), b.id, card.ID, maas.LinkParams{Mode: maas.LinkModeLinkUp}); err != nil {
			t.Error(err)
		}
		return nil
	})
	err := b.RestoreInterfaces(t.Context(), maas.Unrecorded("a test"), b.id, a, "")
	if refused := (*NotRestoredError)(nil); !errors.As(err, &refused) {
		t.Errorf("%v after %d changes, want that it can't be restored", err, changes)
	}
}

// What had a static address does not get it back when it is reserved for another MAC address meanwhile, or in use. Where MAAS
// refuses because of the machine's state, it is tried again.
func TestAnAddressThatAnotherHasIsNotRestored(t *testing.T) {
	const address = "10.77.0.50"
	reserved := url.Values{"ip": {address}, "mac_address": {"52:54:00:00:00:99"}}
	for name, tc := range map[string]struct {
		path  string
		form  url.Values
		first string // what happens to the machine before MAAS is asked for the link
		again bool
	}{
		"reserved for another":             {path: "reservedips/", form: reserved},
		"reserved for another, and Broken": {path: "reservedips/", form: reserved, first: "mark_broken"},
		"in use":                           {path: "ipaddresses/?op=reserve", form: url.Values{"ip": {address}}},
		"in another state":                 {path: "reservedips/", form: reserved, first: "rescue_mode", again: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newMetal(t, "")
			card := find(b.read(), "eth1")
			static := maas.LinkParams{Mode: maas.LinkModeStatic, Subnet: "10.77.0.0/24", IPAddress: address, Replace: true}
			if _, err := b.client.LinkSubnet(t.Context(), maas.Unrecorded("a test"), b.id, card.ID, static); err != nil {
				t.Fatal(err)
			}
			auto := NIC{Name: "eth1", Mode: maas.LinkModeAuto, Subnet: "10.77.0.0/24"}
			a := b.apply(shape{wanted: []WantedInterface{{Name: "eth1"}}, nics: []NIC{auto}})
			b.release()
			b.allocate()
			simtest.Call(t, b.sim, "admin:token:secret", http.MethodPost, tc.path, tc.form)
			b.sim.SetHook(func(call simulator.Call, at simulator.Phase) error {
				if call.Op == "link_subnet" && at == simulator.Before && tc.first != "" {
					simtest.Call(t, b.sim, "admin:token:secret", http.MethodPost, "machines/"+b.id+"/?op="+tc.first, nil)
				}
				return nil
			})
			err := b.RestoreInterfaces(t.Context(), maas.Unrecorded("a test"), b.id, a, "")
			refused := (*NotRestoredError)(nil)
			if again := !errors.As(err, &refused); again != tc.again || !errors.Is(err, maas.Conflict) && !errors.Is(err, maas.NotFound) {
				t.Errorf("%v, want that it can't be restored: %v", err, !tc.again)
			}
		})
	}
}

// Whatever MAAS would refuse later is known before the first change.
func TestRefusedInterfacesChangeNothing(t *testing.T) {
	b := newMetal(t, "")
	m := b.allocate()
	before := string(b.sim.State())
	_, err := b.Arrange(t.Context(), maas.Unrecorded("a test"), m, []WantedInterface{
		{Name: "bond0", Type: "bond", Parents: []string{"eth0", "eth1"}}, {Name: "bond0.7", Type: "vlan", Parents: []string{"bond0"}, VID: 7},
	})
	var refused *NICError
	if !errors.As(err, &refused) || refused.NIC != "bond0.7" {
		t.Errorf("%v, want a refusal of bond0.7", err)
	}
	if diff := cmp.Diff(before, string(b.sim.State())); diff != "" {
		t.Errorf("changed:\n%s", diff)
	}
}
