// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/canonical/lxd/shared/api"
	"github.com/google/go-cmp/cmp"
)

func TestAttachmentsPreferABridgeWithDHCP(t *testing.T) {
	const mac = "00:16:3e:11:22:33"
	b := newBed(t)
	b.mu.Lock()
	defer b.mu.Unlock()
	dhcp := b.db.subnets[0]
	silent := &subnet{cidr: netip.MustParsePrefix("10.66.0.0/24"), vlan: &vlan{}}
	b.db.subnets = append(b.db.subnets, silent)
	node := &machine{ifaces: []*iface{{mac: mac, vlan: dhcp.vlan}}}
	ip := func(text string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(text + "/24")} }
	device := HostNetwork{Name: "eth0", Kind: NetworkPhysical, MAC: mac}
	private := HostNetwork{Name: "lxdbr0", Kind: NetworkBridge, Addresses: ip("10.66.0.1")}
	for name, test := range map[string]struct {
		networks []HostNetwork
		subnets  []*subnet
		want     []attachment
	}{
		"by its address": {
			[]HostNetwork{private, device, {Name: "br0", Kind: NetworkBridge, Addresses: ip("10.10.0.9")}},
			[]*subnet{nil}, []attachment{{kind: "bridged", parent: "br0"}},
		},
		"by its MAC address": {
			[]HostNetwork{device, {Name: "br0", Kind: NetworkBridge, MAC: mac}}, []*subnet{dhcp}, []attachment{{kind: "bridged", parent: "br0"}},
		},
		"by its port": {
			[]HostNetwork{device, {Name: "br0", Kind: NetworkBridge, Ports: []string{"eth0"}}},
			[]*subnet{dhcp}, []attachment{{kind: "bridged", parent: "br0"}},
		},
		"a device where there is no bridge": {
			[]HostNetwork{private, device}, []*subnet{nil}, []attachment{{kind: "macvlan", parent: "eth0"}},
		},
		"the subnet's own": {
			[]HostNetwork{private, device}, []*subnet{silent, dhcp}, []attachment{{kind: "bridged", parent: "lxdbr0"}, {kind: "macvlan", parent: "eth0"}},
		},
		"nothing without DHCP": {[]HostNetwork{private}, []*subnet{nil}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := b.attachments(&vmHost{machine: node, networks: test.networks}, test.subnets)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(attachment{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPowerAddressesOfOneHostAreOne(t *testing.T) {
	for _, address := range []string{"10.0.0.1", "10.0.0.1:8443", "https://10.0.0.1", "https://10.0.0.1:8443/"} {
		if got := hostKey(address); got != "10.0.0.1:8443" {
			t.Errorf("%s leads to %s", address, got)
		}
	}
	for _, address := range []string{"fd00::1", "[fd00::1]", "[fd00::1]:8443"} {
		if got := hostKey(address); got != "[fd00::1]:8443" {
			t.Errorf("%s leads to %s", address, got)
		}
	}
}

// An LXD that is too old has none of the extensions.
func TestLXDHostWithoutTheExtensionsIsNotDiscovered(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		settings := api.Server{ServerUntrusted: api.ServerUntrusted{Auth: lxdTrusted, APIExtensions: []string{"projects"}}}
		if err := json.NewEncoder(w).Encode(map[string]any{"type": api.SyncResponse, "status_code": 200, "metadata": settings}); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	b := newBedWith(t, testRegion, Options{Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, server.Listener.Addr().String())
	}})
	h := b.do(post, "vm-hosts/", "type", "lxd", "power_address", "old.test").object(t)
	if h["version"] != "" {
		t.Errorf("version %q", h["version"])
	}
	got := b.do(post, "vm-hosts/"+jsonNumber(h["id"])+"/", "op", "refresh")
	if want := "extensions: custom_block_volumes,virtual-machines"; got.status != http.StatusServiceUnavailable ||
		!strings.Contains(got.body, want) {
		t.Errorf("%d %s, want 503 %q", got.status, got.body, want)
	}
}
