// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// FuzzPreferredSubnets sorts any addresses by any text in the ConfigMap: none is lost, none comes twice, and those that are preferred
// come first.
func FuzzPreferredSubnets(f *testing.F) {
	f.Fuzz(func(t *testing.T, config, list string) {
		preferred, addresses := parsePrefixes(strings.Split(config, ",")), strings.Split(list, ",")
		sorted := SortAddresses(addresses, preferred)
		want, got := slices.DeleteFunc(slices.Clone(addresses), func(a string) bool { return a == "" }), slices.Clone(sorted)
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(slices.Compact(want), got) {
			t.Errorf("%q is sorted to %q", addresses, sorted)
		}
		isPreferred := func(address string) bool {
			ip, err := netip.ParseAddr(address)
			return err == nil && slices.ContainsFunc(preferred, func(p netip.Prefix) bool { return p.Contains(ip) })
		}
		first := slices.IndexFunc(sorted, func(a string) bool { return !isPreferred(a) })
		if first >= 0 && slices.ContainsFunc(sorted[first:], isPreferred) {
			t.Errorf("%q: a preferred address comes after %s", sorted, sorted[first])
		}
	})
}

var apiSize = regexp.MustCompile(`^[1-9][0-9]{0,8}$`)

// FuzzDiskSize takes any size that the API lets through, and gives it as it is.
func FuzzDiskSize(f *testing.F) {
	f.Fuzz(func(t *testing.T, size string, least int32) {
		if (size != "" && !apiSize.MatchString(size)) || least < 0 {
			t.Skip("the API server refuses it")
		}
		got := diskSize(infrav1.MaasMachineSpec{MinDiskSize: least}, &infrav1.LXDMachineConfig{Storage: infrav1.LXDStorage{Size: size}})
		if got < 1 || (size != "" && strconv.Itoa(got) != size) {
			t.Errorf("%q, at least %d: %d GB", size, least, got)
		}
	})
}
