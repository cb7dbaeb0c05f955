// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSurvey(t *testing.T) {
	for name, tc := range map[string]struct {
		hosts []Host
		spec  VMSpec
		want  map[string]Room
	}{
		"the scarcest resource counts": {[]Host{host("a1", "a"), host("a2", "a", used(12, 0)), host("b1", "b", used(0, 28672))}, small, map[string]Room{"a": {2, 10}, "b": {1, 1}}},
		"disk counts":                  {[]Host{host("a1", "a")}, with(func(s *VMSpec) { s.Disk = 200 }), map[string]Room{"a": {1, 2}}},
		"full hosts are hosts":         {[]Host{host("a1", "a", used(16, 0))}, small, map[string]Room{"a": {1, 0}}},
		"hosts that are too small not": {[]Host{host("a1", "a")}, with(func(s *VMSpec) { s.Cores = 17 }), map[string]Room{}},
		"nor those that are down":      {[]Host{host("a1", "a", func(h *Host) { h.Machine = &HostMachine{Off: true} }), host("b1", "b")}, small, map[string]Room{"b": {1, 8}}},
		"pinned VMs have one host":     {[]Host{host("a1", "a"), host("b1", "b")}, with(func(s *VMSpec) { s.HostName = "b1" }), map[string]Room{"b": {1, 8}}},
		"apart there is room for one":  {[]Host{host("a1", "a"), host("a2", "a", used(16, 0))}, with(apart), map[string]Room{"a": {2, 1}}},
		"and none beside a peer":       {[]Host{host("p1", "p")}, with(apart), map[string]Room{"p": {1, 0}}},
		"a peer takes nothing else":    {[]Host{host("p1", "p")}, small, map[string]Room{"p": {1, 8}}},
		"enormous figures stay in hand": {[]Host{host("a1", "a", func(h *Host) {
			h.Capacity = Resources{math.MaxInt, math.MaxInt, 0}
			h.StoragePools[0].Available = math.MaxInt
		})}, small, map[string]Room{"a": {1, maxSurveyed}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, NewReservations().Room(tc.hosts, tc.spec, []Peer{{VM: "x", Host: "p1", Zone: "p"}})); diff != "" {
				t.Errorf("the survey differs (-want +got):\n%s", diff)
			}
		})
	}
}

// What a VM will be like does not change with how its hosts happen to be.
func TestArchitectures(t *testing.T) {
	of := func(architecture string, more ...func(*Host)) func(*Host) {
		return func(h *Host) {
			h.Architecture = architecture
			for _, change := range more {
				change(h)
			}
		}
	}
	hosts := []Host{
		host("a1", "a", of("amd64/generic")), host("a2", "a", of("amd64/generic", used(16, 0))),
		host("b1", "b", of("arm64/generic", func(h *Host) { h.Machine = &HostMachine{Off: true} })), host("c1", "c", of("")),
	}
	for name, tc := range map[string]struct {
		spec VMSpec
		want []string
	}{
		"of all hosts":          {small, []string{"amd64/generic", "arm64/generic"}},
		"of one zone":           {with(func(s *VMSpec) { s.Zone = "a" }), []string{"amd64/generic"}},
		"of a host that is off": {with(func(s *VMSpec) { s.HostName = "b1" }), []string{"arm64/generic"}},
		"not known":             {with(func(s *VMSpec) { s.Zone = "c" }), nil},
		"of no host":            {with(func(s *VMSpec) { s.Tags = []string{"other"} }), nil},
	} {
		if diff := cmp.Diff(tc.want, Architectures(hosts, tc.spec)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestWhatTheSurveyCountsCanBePlaced places VMs until nothing fits any more.
func TestWhatTheSurveyCountsCanBePlaced(t *testing.T) {
	forEachSeed(t, func(t *testing.T, r *rand.Rand) {
		hosts := randomFleet(r)
		spec := randomSpec(r, hosts)
		want := map[string]int{}
		for zone, room := range NewReservations().Room(hosts, spec, nil) {
			if room.VMs > 0 {
				want[zone] = room.VMs
			}
		}
		chosen, err := distribute(hosts, spec, math.MaxInt)
		if err == nil {
			t.Fatal("there was room without end")
		}
		got := map[string]int{}
		for _, host := range chosen {
			got[host.Zone]++
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the room differs (-survey +placed):\n%s", diff)
		}
	})
}

// TestTheRoomIsWhatReservationsLeave reserves room for other VMs, and then for equal ones until nothing fits any more.
func TestTheRoomIsWhatReservationsLeave(t *testing.T) {
	forEachSeed(t, func(t *testing.T, r *rand.Rand) {
		b := newBook(t, randomFleet(r)...)
		s := NewService(&hosts{}, b.Reservations)
		for i := range r.IntN(10) {
			spec := randomSpec(r, b.hosts)
			spec.Hostname, spec.Cluster = fmt.Sprint("other-", i), pick(r, "c", "other")
			if _, err := s.SelectOptimalHost(b.hosts, spec, nil); err == nil && chance(r, 2) {
				b.settle(spec.Hostname)
			}
		}
		spec, peers := randomSpec(r, b.hosts), randomPeers(r, b.hosts)
		room := s.Room(b.hosts, spec, peers)
		for i := range math.MaxInt {
			spec.Hostname = fmt.Sprint("vm-", i)
			host, err := s.SelectOptimalHost(b.hosts, spec, peers)
			if err != nil {
				break
			}
			left := room[host.Zone]
			left.VMs--
			room[host.Zone] = left
		}
		for zone, left := range room {
			if left.VMs != 0 {
				t.Errorf("in zone %s %d more VMs fit than the survey says", zone, -left.VMs)
			}
		}
	})
}

// BenchmarkRoom is for 100 templates on 100 hosts, with 20 VMs that are being made.
func BenchmarkRoom(b *testing.B) {
	fleet, peers := benchFleet()
	fleet, peers = fleet[:100], peers[:100]
	s := NewService(&hosts{}, NewReservations())
	for i := range 20 {
		if _, err := s.SelectOptimalHost(fleet, with(func(v *VMSpec) { v.Hostname = fmt.Sprint(i) }), peers); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		for i := range 100 {
			s.Room(fleet, with(func(v *VMSpec) { v.Cores = 1 + i%8 }), peers)
		}
	}
}
