// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"slices"
	"testing"
)

// Where a VM is counts only if no other recorded host may have it: what is elsewhere is deleted.
func TestRecordedHosts(t *testing.T) {
	t.Parallel()
	const vmHost, other, direct, second = "1/lxd-a", "2/lxd-b", "lxdhost:ns/lxd-a", "lxdhost:ns/lxd-b"
	for name, tc := range map[string]struct {
		hosts   []string
		vmHosts []string
		direct  string
	}{
		"none":                        {nil, nil, ""},
		"a VM host":                   {[]string{vmHost}, []string{vmHost}, ""},
		"an LXDHost":                  {[]string{direct}, nil, direct},
		"two VM hosts":                {[]string{vmHost, other}, []string{vmHost, other}, ""},
		"a VM host and an LXDHost":    {[]string{vmHost, second}, []string{vmHost}, ""},
		"two LXDHosts":                {[]string{direct, second}, nil, ""},
		"an LXDHost, then a VM host":  {[]string{direct, other}, []string{other}, ""},
		"two VM hosts and an LXDHost": {[]string{vmHost, other, second}, []string{vmHost, other}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := vmHostRefs(tc.hosts); !slices.Equal(got, tc.vmHosts) {
				t.Errorf("the VM hosts are %q, want %q", got, tc.vmHosts)
			}
			namespace, host, is := SoleLXDHost(tc.hosts)
			if is != (tc.direct != "") || (is && DirectRef(namespace, host) != tc.direct) {
				t.Errorf("the LXDHost is %s/%s (%v), want %q", namespace, host, is, tc.direct)
			}
		})
	}
}

// An LXDHost is known by its name, a VM host by the id that its MAAS gave it, and neither by the other's.
func TestReferences(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ref      string
		vmHost   int
		is, byID bool
	}{
		"an LXDHost":                                 {ref: "lxdhost:ns/lxd-a", is: true},
		"an LXDHost of another namespace":            {ref: "lxdhost:other/lxd-a"},
		"an LXDHost that was a VM host":              {ref: "lxdhost:ns/lxd-a", vmHost: 1, is: true},
		"the VM host that it is":                     {ref: "1/lxd-a", vmHost: 1, is: true, byID: true},
		"the VM host that it is, renamed":            {ref: "1/before", vmHost: 1, is: true, byID: true},
		"another VM host, which has the name":        {ref: "2/lxd-a", vmHost: 1},
		"a VM host, of a host that never was one":    {ref: "1/lxd-a"},
		"a VM host without an id, of one like it":    {ref: "0/lxd-a"},
		"a VM host that is called as an LXDHost's":   {ref: "1/ns/lxd-a"},
		"something that an edit has made unreadable": {ref: "lxd-a", vmHost: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if is, byID := RefersTo(tc.ref, "ns", "lxd-a", tc.vmHost); is != tc.is || byID != tc.byID {
				t.Errorf("%q refers to it: %v (by its id: %v); want %v (%v)", tc.ref, is, byID, tc.is, tc.byID)
			}
		})
	}
}
