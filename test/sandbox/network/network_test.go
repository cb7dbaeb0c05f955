// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"context"
	"net"
	"net/netip"

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
