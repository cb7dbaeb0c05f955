// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"slices"
	"testing"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// Where a VM is counts only if no other recorded host may have it: what is elsewhere is deleted.
func TestRecordedHosts(t *testing.T) {
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
			l := &life{Machine: &scope.Machine{MaasMachine: &infrav1.MaasMachine{}}, record: &record.Record{Data: record.Data{Hosts: tc.hosts}}}
			if got := l.vmHostRefs(); !slices.Equal(got, tc.vmHosts) {
				t.Errorf("the VM hosts are %q, want %q", got, tc.vmHosts)
			}
			if got := l.directRef(); got != tc.direct {
				t.Errorf("the LXDHost is %q, want %q", got, tc.direct)
			}
		})
	}
}
