// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// FuzzStaticIP searches the subnet of any address among any subnets: the smallest that contains it, or an
// *AddressError. A link has the address in any notation.
func FuzzStaticIP(f *testing.F) {
	f.Fuzz(func(t *testing.T, address, cidrs string) {
		var subnets []maas.Subnet
		for i, cidr := range strings.Split(cidrs, ",") {
			if cidr != "" {
				subnets = append(subnets, maas.Subnet{ID: i + 1, CIDR: cidr})
			}
		}
		subnet, err := subnetOf(subnets, address, "")
		var wrong *AddressError
		ip, parseErr := netip.ParseAddr(address)
		if err != nil {
			if !errors.As(err, &wrong) || wrong.Problem == AddressInUse {
				t.Errorf("%q: %v", address, err)
			}
		} else if prefix, err := netip.ParsePrefix(subnet.CIDR); err != nil || !prefix.Contains(ip) {
			t.Errorf("%q is reported to lie in %s", address, subnet.CIDR)
		}
		linked := &maas.Machine{BootInterface: &maas.Interface{Links: []maas.Link{{Mode: maas.LinkModeStatic, IPAddress: ip.String()}}}}
		if HasAddress(linked, address) != (parseErr == nil) {
			t.Errorf("%q is not the same as %s", address, ip)
		}
	})
}
