// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// MAAS is asked only for hosts whose LXDHost names no name servers.
func TestSubnetsWithoutNameServers(t *testing.T) {
	t.Parallel()
	region := newRegion(t, strings.Replace(fuzzRegion, "dhcp: true}]", "dhcp: true}, {cidr: 10.78.0.0/24, dns_servers: [10.78.0.2]}]", 1))
	object := func(nameservers ...string) *HostObject { return &HostObject{Direct: true, Nameservers: nameservers} }
	silent, named := Host{Object: object()}, Host{Reachable: true, Object: object("10.0.0.2")}
	note := func(hosts ...Host) []Host {
		t.Helper()
		if err := noteNameless(t.Context(), region.inventory, hosts); err != nil {
			t.Fatal(err)
		}
		return hosts
	}
	note(silent, named)
	if asked := region.sim.Calls().Log; len(asked) > 0 {
		t.Errorf("MAAS was asked %v", asked)
	}
	hosts := note(silent, named, Host{Reachable: true, Object: object()})
	got := [][]netip.Prefix{hosts[0].Nameless, hosts[1].Nameless, hosts[2].Nameless}
	want := [][]netip.Prefix{nil, nil, {netip.MustParsePrefix("10.77.0.0/24")}}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
