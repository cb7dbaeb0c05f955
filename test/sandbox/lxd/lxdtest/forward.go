// SPDX-License-Identifier: Apache-2.0

package lxdtest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
)

// Forward returns an address of this computer that leads to one in a daemon's network, until the test ends.
func Forward(t testing.TB, daemon *lxd.Daemon, to string) (address string) {
	t.Helper()
	address, stop, err := forward(t.Context(), daemon, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return address
}

func forward(ctx context.Context, daemon *lxd.Daemon, to string) (address string, stop func(), err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { lead(ctx, from, daemon, to) })
		}
	})
	return listener.Addr().String(), func() {
		cancel()
		_ = listener.Close()
		running.Wait()
	}, nil
}

// lead passes on the bytes of a connection, both ways, until one side ends.
func lead(ctx context.Context, from net.Conn, daemon *lxd.Daemon, address string) {
	to, err := daemon.Dial(ctx, "tcp", address)
	if err != nil {
		_ = from.Close()
		return
	}
	end := sync.OnceValue(func() error { return errors.Join(from.Close(), to.Close()) })
	defer context.AfterFunc(ctx, func() { _ = end() })()
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
		both.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = end()
		})
	}
	both.Wait()
}
