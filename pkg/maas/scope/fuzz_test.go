// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// FuzzMachineAddresses types any addresses with any text in the ConfigMap: none comes twice, none is one that only the
// machine can use, and preferred ones come first, as InternalIP. An address that others can use is never lost.
func FuzzMachineAddresses(f *testing.F) {
	f.Fuzz(func(t *testing.T, config, list string) {
		preferred, texts := parsePrefixes(strings.Split(config, ",")), strings.Split(list, ",")
		var got []netip.Addr
		others := false
		for _, address := range MachineAddresses(&maas.Machine{IPAddresses: texts}, Preference{Subnets: preferred}) {
			ip, err := netip.ParseAddr(address.Address)
			if err != nil || !ip.IsGlobalUnicast() || slices.Contains(got, ip) {
				t.Errorf("%q gives %v", texts, address)
			}
			isPreferred := slices.ContainsFunc(preferred, func(p netip.Prefix) bool { return p.Contains(ip) })
			if isPreferred && (others || address.Type != clusterv1.MachineInternalIP) {
				t.Errorf("%q: the preferred %s is %s, or comes after others", texts, ip, address.Type)
			}
			others = others || !isPreferred
			got = append(got, ip)
		}
		for _, text := range texts {
			ip, err := netip.ParseAddr(text)
			ip = ip.Unmap().WithZone("")
			if err == nil && ip.IsGlobalUnicast() && !slices.Contains(got, ip) {
				t.Errorf("%s of %q is lost", ip, texts)
			}
		}
	})
}

var apiSize = regexp.MustCompile(`^[1-9][0-9]{0,8}$`)

// FuzzDiskSize tries any size that the API accepts, and gets it unchanged.
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
