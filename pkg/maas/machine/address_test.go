// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

// The VM host is on two VLANs; the second has an IPv4 and an IPv6 subnet.
const networks = `
users: [{name: admin, admin: true, keys: ["admin:token:secret"]}]
domains: [{name: maas.sim, default: true}]
subnets:
  - {cidr: 10.77.0.0/24, gateway: 10.77.0.1, dhcp: true, dynamic_ranges: [{start: 10.77.0.200, end: 10.77.0.254}]}
  - {cidr: 10.77.0.64/26, fabric: other}
  - {cidr: 10.78.0.0/24, fabric: storage}
  - {cidr: "fd00:78::/64", fabric: storage}
images: [{name: ubuntu/jammy}]
machines: [{names: [metal], cores: 8, memory: 16384, disks: [100]}]
vm_hosts:
  - name: lxd
    cores: 8
    memory: 16384
    nics: [{name: br0}, {name: br1, subnet: 10.78.0.0/24}]
    storage_pools: [{name: default, type: zfs, size: 200}]
`

// bed is a service on a MAAS with a Ready VM that has two interfaces.
type bed struct {
	*Service
	maas *simulator.Simulator
	vm   *maas.Machine
}

func newBed(t *testing.T) *bed {
	t.Helper()
	sim, endpoint := simtest.Start(t, networks, simulator.Options{TimeScale: 2000})
	b := &bed{maas: sim}
	client := simtest.Client(t, endpoint, "admin:token:secret")
	b.Service = NewService(inventory.New(client, inventory.Options{}), nil)
	hosts, err := client.ListVMHosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id, err := client.Compose(t.Context(), maas.Unrecorded("a test"), hosts[0].ID, maas.ComposeParams{
		Hostname: "vm", Cores: 2, Memory: 4096, Storage: "root:20", SkipCommissioning: true,
		ZoneID: hosts[0].Zone.ID, PoolID: hosts[0].Pool.ID, Interfaces: "eth0:name=br0;eth1:name=br1",
	})
	if err != nil {
		t.Fatal(err)
	}
	b.vm = b.read(t, id)
	b.maas.ResetCalls()
	return b
}

func (b *bed) read(t *testing.T, systemID string) *maas.Machine {
	t.Helper()
	m, err := b.inventory.Client().GetMachine(t.Context(), systemID)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// links are those of the machine's interfaces as MAAS has them.
func links(m *maas.Machine) []string {
	var list []string
	for _, iface := range m.Interfaces {
		for _, link := range iface.Links {
			cidr := ""
			if link.Subnet != nil {
				cidr = link.Subnet.CIDR
			}
			list = append(list, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", iface.Name, link.Mode, cidr, link.IPAddress)))
		}
	}
	return list
}

// calls returns those of Connect: MAAS logs the test's own last one a moment late.
func (b *bed) calls() []string {
	var list []string
	for _, call := range b.maas.Calls().Log {
		if call.Endpoint == "machines/{id}/" {
			continue
		}
		list = append(list, strings.TrimSpace(call.Method+" "+call.Endpoint+" "+call.Op))
	}
	return list
}

const linkCall, unlinkCall, subnetsCall = "POST nodes/{id}/interfaces/{iface}/ link_subnet", "POST nodes/{id}/interfaces/{iface}/ unlink_subnet", "GET subnets/"

func TestConnect(t *testing.T) {
	for name, tc := range map[string]struct {
		nics  []NIC
		want  []string
		calls []string
	}{
		"nothing to do": {
			want: []string{"eth0 auto 10.77.0.0/24", "eth1 auto 10.78.0.0/24"},
		},
		"what is so already costs nothing": {
			nics: []NIC{{Mode: maas.LinkModeAuto}, {Name: "eth1", Mode: maas.LinkModeAuto, Subnet: "10.78.0.0/24"}},
			want: []string{"eth0 auto 10.77.0.0/24", "eth1 auto 10.78.0.0/24"},
		},
		"a static address on the boot interface, in the smallest subnet that has it": {
			nics: []NIC{{Mode: maas.LinkModeStatic, Address: "10.77.0.70"}},
			want: []string{"eth0 static 10.77.0.64/26 10.77.0.70", "eth1 auto 10.78.0.0/24"}, calls: []string{subnetsCall, linkCall},
		},
		"in the subnet of its device": {
			nics: []NIC{{Mode: maas.LinkModeStatic, Address: "10.77.0.70", Subnet: "10.77.0.0/24"}},
			want: []string{"eth0 static 10.77.0.0/24 10.77.0.70", "eth1 auto 10.78.0.0/24"}, calls: []string{subnetsCall, linkCall},
		},
		"on the interface that carries it": {
			nics: []NIC{{Name: "eth0", Mode: maas.LinkModeDHCP}, {Name: "eth1", Mode: maas.LinkModeStatic, Address: "10.78.0.9"}},
			want: []string{"eth0 dhcp 10.77.0.0/24", "eth1 static 10.78.0.0/24 10.78.0.9"}, calls: []string{linkCall, subnetsCall, linkCall},
		},
		"IPv6 beside IPv4": {
			nics: []NIC{{Name: "eth1", Mode: maas.LinkModeStatic, Address: "fd00:78::9"}},
			want: []string{"eth0 auto 10.77.0.0/24", "eth1 auto 10.78.0.0/24", "eth1 static fd00:78::/64 fd00:78::9"}, calls: []string{subnetsCall, linkCall},
		},
		"another subnet of the VLAN": {
			nics: []NIC{{Name: "eth1", Mode: maas.LinkModeAuto, Subnet: "fd00:78::/64"}},
			want: []string{"eth0 auto 10.77.0.0/24", "eth1 auto fd00:78::/64"}, calls: []string{subnetsCall, linkCall},
		},
		"no address": {
			nics: []NIC{{Name: "eth1", Mode: maas.LinkModeLinkUp}},
			want: []string{"eth0 auto 10.77.0.0/24", "eth1 link_up 10.78.0.0/24"}, calls: []string{linkCall},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			connected, err := b.Connect(t.Context(), maas.Unrecorded("a test"), b.vm, tc.nics)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.calls, b.calls()); diff != "" {
				t.Errorf("the calls differ (-want +got):\n%s", diff)
			}
			now := b.read(t, b.vm.SystemID)
			if diff := cmp.Diff(tc.want, links(now)); diff != "" {
				t.Errorf("MAAS's links differ (-want +got):\n%s", diff)
			}
			for what, m := range map[string]*maas.Machine{"its response": connected, "MAAS": now} {
				if !Connected(m, tc.nics) || (len(tc.calls) > 0 && Connected(b.vm, tc.nics)) {
					t.Errorf("%s: connected %v, before %v", what, Connected(m, tc.nics), Connected(b.vm, tc.nics))
				}
			}
		})
	}
}

// A try that was interrupted after the link was made left the one that it replaces. IPv6 stays.
func TestConnectTakesAwayWhatTheAddressReplaces(t *testing.T) {
	b := newBed(t)
	v6 := []NIC{{Name: "eth1", Mode: maas.LinkModeStatic, Address: "fd00:78::9"}}
	v4 := []NIC{{Name: "eth1", Mode: maas.LinkModeStatic, Address: "10.78.0.9"}}
	both, err := b.Connect(t.Context(), maas.Unrecorded("a test"), b.vm, v6)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = b.Connect(t.Context(), maas.Unrecorded("a test"), both, v4); err != nil {
		t.Fatal(err)
	}
	now := b.read(t, b.vm.SystemID)
	want := []string{"eth0 auto 10.77.0.0/24", "eth1 static 10.78.0.0/24 10.78.0.9", "eth1 static fd00:78::/64 fd00:78::9"}
	got := links(now)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("MAAS's links differ (-want +got):\n%s", diff)
	}
	if calls := b.calls(); !slices.Contains(calls, unlinkCall) {
		t.Errorf("no link was taken away: %v", calls)
	}
}

func TestAddressesThatCannotBeGiven(t *testing.T) {
	static := func(address, subnet string) []NIC {
		return []NIC{{Mode: maas.LinkModeStatic, Address: address, Subnet: subnet}}
	}
	for name, tc := range map[string]struct {
		nics []NIC
		want AddressProblem
	}{
		"no address":                   {static("10.77.0\n", ""), AddressRefused},
		"in no subnet":                 {static("192.168.9.9", ""), AddressOutsideSubnets},
		"IPv6 in no subnet":            {static("fd00:99::1", ""), AddressOutsideSubnets},
		"not in the device's subnet":   {static("10.78.0.9", "10.77.0.0/24"), AddressOutsideSubnets},
		"in a dynamic range":           {static("10.77.0.220", ""), AddressInDynamicRange},
		"taken by a reservation":       {static("10.77.0.20", ""), AddressInUse},
		"taken by another's interface": {static("10.77.0.21", ""), AddressInUse},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			b.reserve(t, "10.77.0.20")
			for _, m := range b.maas.Machines() {
				if m.Hostname == "metal" {
					if _, err := b.Connect(t.Context(), maas.Unrecorded("a test"), b.read(t, m.SystemID), static("10.77.0.21", "")); err != nil {
						t.Fatal(err)
					}
				}
			}
			_, err := b.Connect(t.Context(), maas.Unrecorded("a test"), b.vm, tc.nics)
			var wrong *AddressError
			if !errors.As(err, &wrong) || wrong.Problem != tc.want || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is %v, want one line about %s", err, tc.want)
			}
			if diff := cmp.Diff(links(b.vm), links(b.read(t, b.vm.SystemID))); diff != "" {
				t.Errorf("the links changed all the same (-before +after):\n%s", diff)
			}
		})
	}
}

func (b *bed) reserve(t *testing.T, address string) {
	t.Helper()
	if _, err := b.inventory.Client().ReserveAddress(t.Context(), maas.Unrecorded("a test"), maas.ReserveParams{IP: address}); err != nil {
		t.Fatal(err)
	}
}

func TestInterfacesThatCannotBeConnected(t *testing.T) {
	for name, nic := range map[string]NIC{
		"an interface that is not there": {Name: "eth7", Mode: maas.LinkModeAuto},
		"a subnet that MAAS lacks":       {Name: "eth1", Mode: maas.LinkModeAuto, Subnet: "10.79.0.0/24"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			_, err := b.Connect(t.Context(), maas.Unrecorded("a test"), b.vm, []NIC{nic})
			var wrong *NICError
			if !errors.As(err, &wrong) || wrong.NIC != nic.Name {
				t.Errorf("the error is %v, want one about %s", err, nic.Name)
			}
		})
	}
}

func TestConnectOfAMachineInTheWrongStateIsAConflict(t *testing.T) {
	b := newBed(t)
	_, err := b.inventory.Client().DeployMachine(t.Context(), maas.Unrecorded("a test"), b.vm.SystemID, maas.DeployParams{AgentName: "a", DistroSeries: "jammy"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Connect(t.Context(), maas.Unrecorded("a test"), b.vm, []NIC{{Mode: maas.LinkModeStatic, Address: "10.77.0.50"}}); !errors.Is(err, maas.Conflict) {
		t.Errorf("the error is %v, want a conflict", err)
	}
}

func TestConnectOfAMachineThatIsGoneIsNotFound(t *testing.T) {
	b := newBed(t)
	if err := b.inventory.Client().DeleteMachine(t.Context(), maas.Unrecorded("a test"), b.vm.SystemID); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Connect(t.Context(), maas.Unrecorded("a test"), b.vm, []NIC{{Mode: maas.LinkModeStatic, Address: "10.77.0.50"}}); !errors.Is(err, maas.NotFound) {
		t.Errorf("the error is %v, want not found", err)
	}
}

// What the machine had beside the static address stays, and a try that was cut off is finished.
func TestTakeOff(t *testing.T) {
	for name, address := range map[string]string{"alone": "10.78.0.9", "beside IPv4": "fd00:78::9"} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			before := links(b.vm)
			if name != "alone" {
				before = append(before, "eth1 auto fd00:78::/64")
			}
			m, err := b.Connect(t.Context(), maas.Unrecorded("a test"), b.vm, []NIC{{Name: "eth1", Mode: maas.LinkModeStatic, Address: address}})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := b.RemoveAddress(t.Context(), maas.Unrecorded("a test"), m, address); err != nil {
					t.Fatal(err)
				}
				m = b.read(t, m.SystemID)
				if diff := cmp.Diff(before, links(m)); diff != "" || HasAddress(m, address) {
					t.Errorf("the links differ (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// MAAS responds with a conflict also where the machine is in the state for it: the address is reserved for another MAC
// address (reservedips/).
func TestAddressThatIsReservedForAnotherMachineIsInUse(t *testing.T) {
	for name, tc := range map[string]struct {
		status maas.Status
		want   bool
	}{"in the state for it": {maas.StatusReady, true}, "in another state": {maas.StatusDeploying, false}} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodPost:
					http.Error(w, "The static IP 10.77.0.50 is already reserved for the MAC address 52:54:00:00:00:01.", http.StatusConflict)
				case strings.HasSuffix(r.URL.Path, "/subnets/"):
					_ = json.NewEncoder(w).Encode([]maas.Subnet{{ID: 1, CIDR: "10.77.0.0/24"}})
				default:
					_ = json.NewEncoder(w).Encode(maas.Machine{SystemID: "abc", Status: tc.status})
				}
			}))
			t.Cleanup(server.Close)
			client := simtest.Client(t, server.URL, "a:b:c")
			m := &maas.Machine{SystemID: "abc", Status: maas.StatusReady, BootInterface: &maas.Interface{ID: 1}}
			_, err := NewService(inventory.New(client, inventory.Options{}), nil).Connect(t.Context(), maas.Unrecorded("a test"), m, []NIC{{Mode: maas.LinkModeStatic, Address: "10.77.0.50"}})
			var wrong *AddressError
			if got := errors.As(err, &wrong) && wrong.Problem == AddressInUse; got != tc.want || (!got && !errors.Is(err, maas.Conflict)) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// Where the boot interface is part of a bond or a bridge, that carries its address.
func TestTheBootInterfaceIsWhatCarriesItsAddress(t *testing.T) {
	physical := func(id int, name string, children ...string) *maas.Interface {
		return &maas.Interface{ID: id, Name: name, Type: "physical", Children: children}
	}
	bond := &maas.Interface{ID: 3, Name: "bond0", Type: "bond", Children: []string{"bond0.5", "br0"}}
	bridge := &maas.Interface{ID: 4, Name: "br0", Type: "bridge"}
	vlan := &maas.Interface{ID: 5, Name: "bond0.5", Type: "vlan"}
	round := &maas.Interface{ID: 6, Name: "round", Type: "bridge", Children: []string{"round"}}
	for name, tc := range map[string]struct {
		boot *maas.Interface
		want string
	}{
		"alone":                            {physical(1, "eno1"), "eno1"},
		"with a VLAN on it":                {physical(1, "eno1", "bond0.5"), "eno1"},
		"in a bond with a bridge":          {physical(1, "eno1", "bond0"), "br0"},
		"in a bridge":                      {physical(1, "eno1", "br0"), "br0"},
		"with a child that is not there":   {physical(1, "eno1", "br7"), "eno1"},
		"in a bridge that is its own part": {physical(1, "eno1", "round"), "round"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &maas.Machine{BootInterface: tc.boot, Interfaces: []*maas.Interface{tc.boot, vlan, bond, bridge, round}}
			if got := find(m, ""); got == nil || got.Name != tc.want {
				t.Errorf("%v carries the address, want %s", got, tc.want)
			}
		})
	}
	if got := find(&maas.Machine{}, ""); got != nil {
		t.Errorf("a machine without interfaces has %v", got)
	}
}

// MAAS refuses a static address that it has only seen in the network.
func TestAnAddressThatMAASHasSeenIsTaken(t *testing.T) {
	const seen = "10.77.0.50"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Get("op") == "ip_addresses":
			_ = json.NewEncoder(w).Encode([]maas.SubnetAddress{{IP: seen, Type: maas.AddressDiscovered}})
		case r.URL.Query().Get("op") != "":
			_, _ = w.Write([]byte("[]"))
		default:
			_ = json.NewEncoder(w).Encode([]maas.Subnet{{ID: 1, CIDR: "10.77.0.0/24"}})
		}
	}))
	t.Cleanup(server.Close)
	client := simtest.Client(t, server.URL, "a:b:c")
	service := NewService(inventory.New(client, inventory.Options{}), nil)
	for address, taken := range map[string]bool{seen: true, "10.77.0.51": false} {
		var refused *AddressError
		err := service.CheckNICs(t.Context(), []NIC{{Mode: maas.LinkModeStatic, Address: address}}, nil)
		if errors.As(err, &refused) != taken || taken && refused.Problem != AddressInUse {
			t.Errorf("%s: %v", address, err)
		}
	}
}
