// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func host(name, zone string, change ...func(*Host)) Host {
	h := Host{
		ID: len(name) + int(name[len(name)-1]), Name: name, Zone: zone, Pool: "default", Reachable: true,
		Capacity:     Resources{Cores: 16, Memory: 32768, Disk: 500},
		Largest:      Resources{Cores: 16, Memory: 32768, Disk: 500},
		StoragePools: []StoragePool{{Name: "default", Available: 500, Default: true}},
	}
	for _, c := range change {
		c(&h)
	}
	return h
}

func used(cores, memory int) func(*Host) {
	return func(h *Host) { h.Used = Resources{Cores: cores, Memory: memory} }
}

var small = VMSpec{Hostname: "vm", Cluster: "c", Resources: Resources{Cores: 2, Memory: 4096, Disk: 20}}

func with(change func(*VMSpec)) VMSpec {
	spec := small
	change(&spec)
	return spec
}

func TestPlaceChooses(t *testing.T) {
	a1, a2, b1 := host("a1", "a"), host("a2", "a"), host("b1", "b")
	for name, tc := range map[string]struct {
		hosts []Host
		spec  VMSpec
		peers []Peer
		want  string
	}{
		"the only host":                          {[]Host{a1}, small, nil, "a1"},
		"a zone without peers":                   {[]Host{a1, a2, b1}, small, []Peer{{VM: "x", Host: "a1", Zone: "a"}}, "b1"},
		"a host without peers in a pinned zone":  {[]Host{a1, a2, b1}, with(func(s *VMSpec) { s.Zone = "a" }), []Peer{{VM: "x", Host: "a1", Zone: "a"}}, "a2"},
		"the emptier host":                       {[]Host{host("a1", "a", used(8, 0)), a2}, small, nil, "a2"},
		"memory counts as much as cores":         {[]Host{host("a1", "a", used(0, 16384)), host("a2", "a", used(4, 0))}, small, nil, "a2"},
		"the name decides between equals":        {[]Host{a2, a1}, small, nil, "a1"},
		"a pinned host, however full":            {[]Host{host("a1", "a", used(14, 0)), a2}, with(func(s *VMSpec) { s.HostName = "a1" }), nil, "a1"},
		"spreading yields to room":               {[]Host{a1, host("b1", "b", used(16, 0))}, small, []Peer{{VM: "x", Host: "a1", Zone: "a"}}, "a1"},
		"all tags":                               {[]Host{host("a1", "a", func(h *Host) { h.Tags = []string{"ssd"} }), host("a2", "a", func(h *Host) { h.Tags = []string{"gpu", "ssd"} })}, with(func(s *VMSpec) { s.Tags = []string{"ssd", "gpu"} }), nil, "a2"},
		"a resource pool":                        {[]Host{a1, host("a2", "a", func(h *Host) { h.Pool = "capi" })}, with(func(s *VMSpec) { s.ResourcePool = "capi" }), nil, "a2"},
		"a storage pool with room":               {[]Host{a1, host("a2", "a", func(h *Host) { h.StoragePools = append(h.StoragePools, StoragePool{Name: "fast", Available: 30}) })}, with(func(s *VMSpec) { s.StoragePool = "fast" }), nil, "a2"},
		"no host whose resources MAAS lacks yet": {[]Host{host("a1", "a", func(h *Host) { h.Reachable = false }), a2}, small, nil, "a2"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Place(tc.hosts, tc.spec, tc.peers)
			if err != nil {
				t.Fatalf("Place: %v", err)
			}
			if got.Name != tc.want {
				t.Errorf("Place chose %s, want %s", got.Name, tc.want)
			}
		})
	}
}

func TestPlaceRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		hosts []Host
		spec  VMSpec
		kind  ErrorType
		says  string // what a user must be told
	}{
		"no hosts":       {nil, small, HostUnavailable, "no LXD VM hosts"},
		"another zone":   {[]Host{host("a1", "a")}, with(func(s *VMSpec) { s.Zone = "z" }), HostUnavailable, "1 not in zone z"},
		"another pinned": {[]Host{host("a1", "a")}, with(func(s *VMSpec) { s.HostName = "q" }), HostUnavailable, "1 not q"},
		"no such pool":   {[]Host{host("a1", "a")}, with(func(s *VMSpec) { s.StoragePool = "fast" }), HostUnavailable, "without storage pool fast"},
		"out of memory":  {[]Host{host("a1", "a", used(0, 30000)), host("a2", "a", used(0, 30000)), host("b1", "b", used(16, 0))}, small, InsufficientResources, "3 VM host(s): 2 out of memory, 1 out of cores"},
		"out of disk":    {[]Host{host("a1", "a")}, with(func(s *VMSpec) { s.Disk = 501 }), InsufficientResources, "out of disk"},
		"larger than the host, whatever the over-commit": {[]Host{host("a1", "a", func(h *Host) { h.Capacity.Cores = 64 })}, with(func(s *VMSpec) { s.Cores = 20 }), InsufficientResources, "too small for the VM"},
		"not ready": {[]Host{host("a1", "a", func(h *Host) { h.Reachable = false })}, small, HostUnavailable, "not ready"},
		"failed lately": {[]Host{
			host("a1", "a", func(h *Host) { h.LeftAloneUntil = time.Unix(7200, 0) }), host("a2", "a", func(h *Host) { h.LeftAloneUntil = time.Unix(3600, 0) }),
			host("a3", "a", used(16, 0)),
		}, small, InsufficientResources, "3 VM host(s): 2 left alone after failing to compose a VM (the next is tried from 1970-01-01T01:00:00Z on), 1 out of cores"},
		"a tag is missing":  {[]Host{host("a1", "a")}, with(func(s *VMSpec) { s.Tags = []string{"ssd"} }), HostUnavailable, "without tag ssd"},
		"the pool is wrong": {[]Host{host("a1", "a")}, with(func(s *VMSpec) { s.ResourcePool = "capi" }), HostUnavailable, "resource pool capi"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Place(tc.hosts, tc.spec, nil)
			var refused *LXDError
			if !errors.As(err, &refused) || refused.Type != tc.kind {
				t.Fatalf("Place: %#v, want an LXDError of type %s", err, tc.kind)
			}
			if !strings.Contains(refused.Message, tc.says) {
				t.Errorf("the message is %q, want it to say %q", refused.Message, tc.says)
			}
		})
	}
}

// TestPlaceInvariants places VMs on random fleets: no host is ever overbooked, the same input gives the same answer, and equal
// zones are filled within one of each other.
func TestPlaceInvariants(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		zones, perZone := 1+r.IntN(4), 1+r.IntN(3)
		var hosts []Host
		for z := range zones {
			for h := range perZone {
				hosts = append(hosts, host(fmt.Sprintf("h%d-%d", z, h), fmt.Sprintf("z%d", z), func(h *Host) { h.ID = len(hosts) }))
			}
		}
		spec := with(func(s *VMSpec) { s.Cores, s.Memory = 1+r.IntN(4), 2048*(1+r.IntN(4)) })
		count := 1 + r.IntN(8)
		chosen, err := DistributeAcrossAZs(hosts, spec, count)
		again, _ := DistributeAcrossAZs(hosts, spec, count)
		if diff := cmp.Diff(names(chosen), names(again)); diff != "" {
			t.Fatalf("seed %d: the same input gave another answer:\n%s", seed, diff)
		}
		perHost, inZone := map[string]int{}, map[string]int{}
		for _, h := range chosen {
			perHost[h.Name]++
			inZone[h.Zone]++
		}
		for _, h := range hosts {
			if n := perHost[h.Name]; n*spec.Cores > h.Capacity.Cores || n*spec.Memory > h.Capacity.Memory {
				t.Fatalf("seed %d: host %s is overbooked with %d VMs", seed, h.Name, n)
			}
		}
		if err != nil {
			continue // The fleet is full; what was placed until then was checked.
		}
		least, most := count, 0
		for z := range zones {
			n := inZone[fmt.Sprintf("z%d", z)]
			least, most = min(least, n), max(most, n)
		}
		if most-least > 1 {
			t.Fatalf("seed %d: %d VMs in %d zones are spread as %v", seed, count, zones, inZone)
		}
	}
}

func names(hosts []Host) []string {
	var list []string
	for _, h := range hosts {
		list = append(list, h.Name)
	}
	return list
}

func TestReservationsKeepParallelPlacementsApart(t *testing.T) {
	seen := time.Unix(1000, 0)
	hosts := []Host{host("a1", "a"), host("b1", "b"), host("c1", "c")}
	for i := range hosts {
		hosts[i].SeenAt = seen
	}
	r := newReservations()
	now := seen
	r.clock = func() time.Time { return now }
	place := func(vm string) string {
		t.Helper()
		h, err := r.place(hosts, with(func(s *VMSpec) { s.Hostname = vm }), nil)
		if err != nil {
			t.Fatalf("placing %s: %v", vm, err)
		}
		return h.Name
	}
	if got := []string{place("1"), place("2"), place("3")}; !cmp.Equal(got, []string{"a1", "b1", "c1"}) {
		t.Errorf("three VMs of one cluster went to %v", got)
	}

	t.Run("a canceled one gives its room back", func(t *testing.T) {
		r.cancel("2")
		if got := place("4"); got != "b1" {
			t.Errorf("placed on %s, want b1", got)
		}
	})
	t.Run("a composed one counts until newer figures show it", func(t *testing.T) {
		now = seen.Add(time.Second)
		r.settle("1")
		counted, _ := r.count(hosts, small, nil)
		if counted[0].Used.Cores != small.Cores {
			t.Errorf("the host's use is %d cores, want the reserved %d", counted[0].Used.Cores, small.Cores)
		}
		for i := range hosts {
			hosts[i].SeenAt = now.Add(time.Second)
		}
		counted, _ = r.count(hosts, small, nil)
		if counted[0].Used.Cores != 0 {
			t.Errorf("the host's use is %d cores, want what MAAS says", counted[0].Used.Cores)
		}
	})
	t.Run("a VM that is known counts once", func(t *testing.T) {
		_, peers := r.count(hosts, small, []Peer{{VM: "3", Host: "c1", Zone: "c"}})
		for i, p := range peers {
			for _, other := range peers[i+1:] {
				if p.VM == other.VM {
					t.Errorf("VM %s counts twice", p.VM)
				}
			}
		}
	})
}

func BenchmarkPlace(b *testing.B) {
	var hosts []Host
	for i := range 1000 {
		hosts = append(hosts, host(fmt.Sprintf("h%04d", i), fmt.Sprintf("z%d", i%10), used(i%14, 0)))
	}
	var peers []Peer
	for i := range 10000 {
		peers = append(peers, Peer{VM: fmt.Sprint(i), Host: hosts[i%1000].Name, Zone: hosts[i%1000].Zone})
	}
	for b.Loop() {
		if _, err := Place(hosts, small, peers); err != nil {
			b.Fatal(err)
		}
	}
}
