// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
)

// FuzzStaticIP looks for the subnet of any address among any subnets: the smallest that holds it, or an *AddressError. A link has
// the address however it is written.
func FuzzStaticIP(f *testing.F) {
	var subnets []maas.Subnet
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(subnets) }))
	server.Config.SetKeepAlivesEnabled(false)
	server.Start()
	f.Cleanup(server.Close)
	f.Fuzz(func(t *testing.T, address, cidrs string) {
		subnets = []maas.Subnet{}
		for i, cidr := range strings.Split(cidrs, ",") {
			if cidr != "" {
				subnets = append(subnets, maas.Subnet{ID: i + 1, CIDR: cidr})
			}
		}
		client, err := maas.NewClient(maas.Config{Endpoint: server.URL, APIKey: "a:b:c"})
		if err != nil {
			t.Fatal(err)
		}
		subnet, err := NewService(inventory.New(client, inventory.Options{}), nil).subnetOf(t.Context(), address)
		var wrong *AddressError
		ip, parseErr := netip.ParseAddr(address)
		if err != nil {
			if !errors.As(err, &wrong) || wrong.InUse {
				t.Errorf("%q: %v", address, err)
			}
		} else if prefix, err := netip.ParsePrefix(subnet.CIDR); err != nil || !prefix.Contains(ip) {
			t.Errorf("%q is said to lie in %s", address, subnet.CIDR)
		}
		linked := &maas.Machine{BootInterface: &maas.Interface{Links: []maas.Link{{Mode: maas.LinkModeStatic, IPAddress: ip.String()}}}}
		if HasAddress(linked, address) != (parseErr == nil) {
			t.Errorf("%q is not the same as %s", address, ip)
		}
	})
}
