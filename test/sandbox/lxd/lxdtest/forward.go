// SPDX-License-Identifier: Apache-2.0

package lxdtest

import (
	"context"
	"net"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/netns"
)

// Forward returns an address of this computer that leads to one in a daemon's network, until the test ends.
func Forward(t testing.TB, daemon *lxd.Daemon, to string) (address string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(netns.Forward(t.Context(), listener, func(ctx context.Context) (net.Conn, error) {
		return daemon.Dial(ctx, "tcp", to)
	}))
	return listener.Addr().String()
}

// Open makes an address of this computer one in a daemon's network, too, until the test ends: that of another LXD.
func Open(t testing.TB, daemon *lxd.Daemon, address string) {
	t.Helper()
	listener, err := daemon.Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(netns.Forward(t.Context(), listener, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}))
}
