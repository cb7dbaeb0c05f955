// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

func TestFiguresOfAnLXDHost(t *testing.T) {
	object := &HostObject{
		Name: "a", Direct: true, StoragePool: "default", Bridge: "br0", Subnet: netip.MustParsePrefix("10.1.0.7/24"), Overcommit: lxdhost.Overcommit{Cores: 2},
	}
	read := time.Unix(1000, 0)
	reading := lxdhost.Reading{
		At: read,
		Capacity: lxdhost.Capacity{
			Architecture: "x86_64", Cores: 8, MemoryMiB: 16384,
			Allocated: lxdhost.Amount{Cores: 3, MemoryMiB: 4096},
			Limits:    lxdhost.Amount{Cores: lxdhost.NoLimit, MemoryMiB: 8192, DiskBytes: lxdhost.NoLimit},
			Pools:     []lxdhost.Pool{{Name: "default", TotalBytes: 100 * gigabyte, UsedBytes: 10 * gigabyte}, {Name: "fast", TotalBytes: 50 * gigabyte, UsedBytes: 40 * gigabyte}},
			Bridges:   []lxdhost.Bridge{{Name: "br0"}, {Name: "br1"}},
		},
		Disk: map[string]int64{"default": 30 * gigabyte, "fast": 5 * gigabyte},
	}
	host := unread(object)
	if host.Reachable {
		t.Error("a host that was not read is reachable")
	}
	fill(&host, reading)
	want := Host{
		Name: "a", Object: object, Reachable: true, SeenAt: read, Architecture: "amd64/generic",
		Largest:  Resources{Cores: 8, Memory: 16384, Disk: host.Largest.Disk},
		Capacity: Resources{Cores: 16, Memory: 8192}, Used: Resources{Cores: 3, Memory: 4096},
		// What VMs were promised counts, and what others use.
		StoragePools: []StoragePool{{Name: "default", Available: 70, Default: true}, {Name: "fast", Available: 10}},
		Machine: &HostMachine{Interfaces: []HostInterface{
			{Name: "br0", Bootable: true, Subnets: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}}, {Name: "br1", Bootable: true},
		}},
	}
	if diff := cmp.Diff(want, host, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b *HostObject) bool { return a == b }), cmpopts.EquateComparable(guard.Server{})); diff != "" {
		t.Errorf("the host differs (-want +got):\n%s", diff)
	}
}

// A VM is always asked for in the same way: a repeated call must not make another one.
func TestAVMInLXDsTerms(t *testing.T) {
	object := &HostObject{StoragePool: "default", Bridge: "br0", Server: lxdhost.Options{Project: "maas", Address: "10.0.0.1:8443"}}
	spec := with(func(s *VMSpec) {
		s.Marks = lxdhost.Marks{Owner: "owner", Machine: "vm"}
		s.Devices = []Device{{Name: "eth0", Bridge: "br1"}, {Name: "eth1", Subnet: "10.2.0.0/24"}}
		s.MoreDisks = []Disk{{Size: 5}, {Size: 6, Pool: "fast"}}
		s.Hardware = map[string]map[string]string{"gpu0": {"type": "gpu"}}
		s.UserData = "#cloud-config\n{}\n"
	})
	got := toInstance(object, spec)
	second := got.Devices["eth1"]["hwaddr"]
	want := lxdhost.Spec{
		Name: "vm", Marks: spec.Marks, MAC: lxdhost.DeriveMAC("owner", "vm"), Cores: 2, MemoryMiB: 4096, Bridge: "br1",
		Root:   lxdhost.Disk{Pool: "default", Bytes: 20 * gigabyte},
		Disks:  []lxdhost.Disk{{Pool: "default", Bytes: 5 * gigabyte}, {Pool: "fast", Bytes: 6 * gigabyte}},
		Config: map[string]string{lxdhost.KeyUserData: spec.UserData},
		Devices: map[string]map[string]string{
			"eth1": {"type": "nic", "nictype": "bridged", "parent": "br0", "name": "eth1", "hwaddr": second}, "gpu0": {"type": "gpu"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the VM differs (-want +got):\n%s", diff)
	}
	object.Subnet = netip.MustParsePrefix("10.1.0.7/24")
	spec.Devices[0].Bridge = ""
	cards := []card{
		{MAC: want.MAC.String(), Name: "eth0", Subnet: netip.MustParsePrefix("10.1.0.0/24")},
		{MAC: second, Name: "eth1", Subnet: netip.MustParsePrefix("10.2.0.0/24")},
	}
	registered := object.registration(spec)
	if diff := cmp.Diff(cards, registered.Cards, cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); diff != "" || second == want.MAC.String() {
		t.Errorf("MAAS is told of other cards (-want +got):\n%s", diff)
	}
	if plain := toInstance(object, with(func(s *VMSpec) { s.StoragePool, s.Profile = "fast", "gpu" })); plain.Root.Pool != "fast" || plain.Bridge != "br0" ||
		!cmp.Equal(plain.Profiles, []string{"gpu"}) {
		t.Errorf("got %+v", plain)
	}
}

// What may have been made must be searched for, and what may come later be waited for.
func TestWhatAFailedComposeLeaves(t *testing.T) {
	refused := &maas.Error{Kind: maas.Forbidden}
	for name, tc := range map[string]struct {
		err             error
		nothing, inTime bool
	}{
		"LXD was not reached":     {&DirectError{cause: &lxdhost.Error{Kind: lxdhost.KindUnreachable}}, true, true},
		"LXD has no room":         {&DirectError{cause: &lxdhost.Error{Kind: lxdhost.KindNoRoom}}, true, true},
		"LXD did not respond":     {&DirectError{cause: &lxdhost.Error{Kind: lxdhost.KindUnreachable, Sent: true}}, false, false},
		"LXD is still at it":      {&DirectError{cause: &lxdhost.Error{Kind: lxdhost.KindUnfinished, Sent: true}}, false, false},
		"LXD failed":              {&DirectError{cause: &lxdhost.Error{Kind: lxdhost.KindOther, Sent: true}}, false, true},
		"MAAS refused":            {refused, true, true},
		"MAAS refused the device": {&NotRegisteredError{cause: refused}, true, true},
		"MAAS did not respond":    {&NotRegisteredError{cause: &maas.Error{Kind: maas.Unavailable}}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := NotComposed(tc.err); got != tc.nothing {
				t.Errorf("that nothing was made is %v", got)
			}
			if got := maas.HadNoEffect(tc.err); got != tc.inTime {
				t.Errorf("that nothing may come later is %v", got)
			}
			if errors.Is(tc.err, maas.Unavailable) == tc.inTime {
				t.Error("the two ways to ask differ")
			}
		})
	}
}

// A VM of an earlier try is deleted only if its host has answered that it can't be what is wanted, or may not have it.
func TestWhichEarlierVMIsOfNoUse(t *testing.T) {
	of := func(kind lxdhost.Kind) error { return &DirectError{cause: &lxdhost.Error{Kind: kind, Sent: true}} }
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"LXD did not respond":        {of(lxdhost.KindUnreachable), false},
		"LXD is still at it":         {of(lxdhost.KindUnfinished), false},
		"it took too long":           {of(lxdhost.KindTooLate), false},
		"LXD does not trust the key": {of(lxdhost.KindNotTrusted), false},
		"it was made otherwise":      {of(lxdhost.KindOutdated), true},
		"a volume has its name":      {of(lxdhost.KindVolume), true},
		"the image is gone":          {&DirectError{cause: &NoImageError{Image: "a"}}, true},
		"its host takes it no more":  {&LXDError{cause: &NotAllowedError{"unschedulable"}}, true},
		"MAAS did not respond":       {&NotRegisteredError{cause: &maas.Error{Kind: maas.Unavailable}}, false},
		"MAAS refused the device":    {&NotRegisteredError{cause: &maas.Error{Kind: maas.Forbidden}}, false},
		"Kubernetes did not respond": {context.DeadlineExceeded, false},
	} {
		if got := Unfit(tc.err); got != tc.want {
			t.Errorf("%s: it is of no use: %v, want %v", name, got, tc.want)
		}
	}
	full := Host{Name: "a", Zone: "z", CooldownUntil: time.Now().Add(time.Hour), Object: &HostObject{
		Namespace: "ns", Name: "a", Direct: true, Allows: func(namespace string) bool { return namespace == "ns" },
	}}
	spec := VMSpec{Namespace: "ns", Zone: "z", Resources: Resources{Cores: 1}}
	if got, err := (&Service{}).Again([]Host{full}, spec, HostRef(full)); err != nil || got.Name != full.Name {
		t.Errorf("a host that is full by now: %+v, %v", got, err)
	}
	for what, change := range map[string]func(*VMSpec){
		"another zone": func(s *VMSpec) { s.Zone = "y" }, "a namespace that may not use it": func(s *VMSpec) { s.Namespace = "other" },
	} {
		other := spec
		change(&other)
		if _, err := (&Service{}).Again([]Host{full}, other, HostRef(full)); !Unfit(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := (&Service{}).Again(nil, spec, HostRef(full)); !Unfit(err) {
		t.Errorf("a host that is gone: %v", err)
	}
}
