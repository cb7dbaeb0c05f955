// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/network"
)

// names is a DNS server, and a load balancer.
type names map[string][]netip.Addr

func (n names) Lookup(name string) []netip.Addr { return n[name] }

// machines maps addresses to real ones.
type machines map[netip.AddrPort]string

func (m machines) Dial(ctx context.Context, address netip.AddrPort) (net.Conn, error) {
	actual, ok := m[address]
	if !ok {
		return nil, network.ErrUnreachable
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", actual)
}

func TestProxy(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	server.StartTLS()
	t.Cleanup(server.Close)
	off, on := netip.MustParseAddr("10.77.0.9"), netip.MustParseAddr("10.77.0.10")
	n, err := network.Open(
		names{"api.maas.sim": {off, on}, "off.maas.sim": {off}, "192.0.2.10": {on}},
		machines{netip.AddrPortFrom(on, 6443): server.Listener.Addr().String()},
	)
	if err != nil {
		t.Fatal(err)
	}
	transport, ok := server.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatal("the test server's client has another transport")
	}
	transport.Proxy = http.ProxyFromEnvironment
	transport.TLSClientConfig.ServerName = "example.com" // the test server's certificate
	client := &http.Client{Transport: transport}

	for url, reachable := range map[string]bool{
		"https://api.maas.sim:6443":     true,
		"https://10.77.0.10:6443":       true,
		"https://192.0.2.10:6443":       true,
		"https://192.0.2.10:443":        false,
		"https://api.maas.sim:443":      false,
		"https://off.maas.sim:6443":     false,
		"https://missing.maas.sim:6443": false,
		"https://10.77.0.9:6443":        false,
	} {
		if err := get(t, client, url); (err == nil) != reachable {
			t.Errorf("%s: %v, want reachable = %v", url, err, reachable)
		}
	}
	if _, err := n.Dial(t.Context(), "missing.maas.sim:6443"); !errors.Is(err, network.ErrUnreachable) {
		t.Errorf("Dial = %v, want %v", err, network.ErrUnreachable)
	}
	checkClosing(t, n, client)
}

func get(t *testing.T, client *http.Client, url string) error {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err == nil {
		_ = response.Body.Close()
	}
	return err
}

// checkClosing makes sure that nothing is left, and that the next proxy is where the last one was.
func checkClosing(t *testing.T, n *network.Network, client *http.Client) {
	t.Helper()
	address := n.ProxyURL().Host
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if err := get(t, client, "https://api.maas.sim:6443"); err == nil {
		t.Error("a connection is still open")
	}
	if connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address); err == nil {
		_ = connection.Close()
		t.Error("the proxy still listens")
	}
	again, err := network.Open(names{}, machines{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Close() })
	if again.ProxyURL().Host != address {
		t.Errorf("the proxy moved from %s to %s", address, again.ProxyURL().Host)
	}
}
