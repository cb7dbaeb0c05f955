// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A trial begins with what is reserved, counts what it has placed, and changes nothing.
func TestTrial(t *testing.T) {
	half := func(s *VMSpec) { s.Cores = 8 }
	cordoned := func(h *Host) {
		h.Object = &HostObject{Unschedulable: true, Allows: func(string) bool { return true }}
	}
	spec := func(change func(*VMSpec)) []VMSpec { return []VMSpec{with(change)} }
	for name, tc := range map[string]struct {
		host             Host
		reserved, others []VMSpec
		vm               VMSpec
		peers            []Peer
		want             ErrorType
	}{
		"there is room":                  {host("a1", "a"), nil, nil, small, nil, ""},
		"there is none":                  {host("a1", "a", used(16, 0)), nil, nil, small, nil, InsufficientResources},
		"the only host is cordoned":      {host("a1", "a", cordoned), nil, nil, small, nil, HostUnavailable},
		"another one takes half of it":   {host("a1", "a"), nil, spec(half), with(half), nil, ""},
		"two others take all of it":      {host("a1", "a"), nil, append(spec(half), with(half)), small, nil, InsufficientResources},
		"half of it is reserved":         {host("a1", "a"), spec(half), spec(half), small, nil, InsufficientResources},
		"another one fits nowhere":       {host("a1", "a"), nil, spec(func(s *VMSpec) { s.Zone = "b" }), small, nil, ""},
		"beside a peer, but apart":       {host("a1", "a"), nil, nil, with(apart), []Peer{{VM: "x", Host: "a1", Zone: "a"}}, HostUnavailable},
		"apart from another one":         {host("a1", "a"), nil, spec(apart), with(apart), nil, HostUnavailable},
		"others take the disk of a pool": {host("a1", "a"), nil, spec(func(s *VMSpec) { s.Disk = 490 }), small, nil, InsufficientResources},
	} {
		t.Run(name, func(t *testing.T) {
			hosts, s := []Host{tc.host}, NewService(&hosts{}, NewReservations())
			for i, other := range tc.reserved {
				other.Hostname = fmt.Sprint("reserved-", i)
				if _, err := s.SelectOptimalHost(hosts, other, nil); err != nil {
					t.Fatal(err)
				}
			}
			trial := s.Trial()
			for i, other := range tc.others {
				other.Hostname = fmt.Sprint("other-", i)
				_, _ = trial.Place(hosts, other, nil)
			}
			for range 2 { // Its own room is free for it.
				_, err := trial.Place(hosts, tc.vm, tc.peers)
				var refused *LXDError
				if errors.As(err, &refused) != (tc.want != "") || (refused != nil && refused.Type != tc.want) {
					t.Errorf("it is %v, want %q", err, tc.want)
				}
			}
			if diff := cmp.Diff(tc.host.Used, hosts[0].Used); diff != "" || len(s.reservations.byVM) != len(tc.reserved) {
				t.Errorf("the host that was given differs:%s; %d VMs are reserved", diff, len(s.reservations.byVM))
			}
		})
	}
}
