// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"errors"
	"testing"
)

func TestFits(t *testing.T) {
	half := func(s *VMSpec) { s.Cores = 8 }
	cordoned := func(h *Host) {
		h.Object = &HostObject{Unschedulable: true, Allows: func(string) bool { return true }}
	}
	for name, tc := range map[string]struct {
		hosts  []Host
		others []Wanted
		vm     Wanted
		want   ErrorType
	}{
		"there is room":                  {[]Host{host("a1", "a")}, nil, Wanted{Spec: small}, ""},
		"there is none":                  {[]Host{host("a1", "a", used(16, 0))}, nil, Wanted{Spec: small}, InsufficientResources},
		"the only host is cordoned":      {[]Host{host("a1", "a", cordoned)}, nil, Wanted{Spec: small}, HostUnavailable},
		"another one takes half of it":   {[]Host{host("a1", "a")}, []Wanted{{Spec: with(half)}}, Wanted{Spec: with(half)}, ""},
		"two others take all of it":      {[]Host{host("a1", "a")}, []Wanted{{Spec: with(half)}, {Spec: with(half)}}, Wanted{Spec: small}, InsufficientResources},
		"another one fits nowhere":       {[]Host{host("a1", "a")}, []Wanted{{Spec: with(func(s *VMSpec) { s.Zone = "b" })}}, Wanted{Spec: small}, ""},
		"beside a peer, but apart":       {[]Host{host("a1", "a")}, nil, Wanted{Spec: with(apart), Peers: []Peer{{VM: "x", Host: "a1", Zone: "a"}}}, HostUnavailable},
		"others take the disk of a pool": {[]Host{host("a1", "a")}, []Wanted{{Spec: with(func(s *VMSpec) { s.Disk = 490 })}}, Wanted{Spec: small}, InsufficientResources},
	} {
		t.Run(name, func(t *testing.T) {
			err := Fits(tc.hosts, tc.others, tc.vm)
			var refused *LXDError
			if errors.As(err, &refused) != (tc.want != "") || (refused != nil && refused.Type != tc.want) {
				t.Errorf("it is %v, want %q", err, tc.want)
			}
			if used := tc.hosts[0].Used.Cores; used != 0 && used != 16 {
				t.Errorf("the host that was given has %d cores in use now", used)
			}
		})
	}
}
