// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// Forward leads the connections to a listener to where dial connects, until the returned function closes it. Either end
// may be in another namespace.
func Forward(ctx context.Context, listener net.Listener, dial func(context.Context) (net.Conn, error)) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { lead(ctx, from, dial) })
		}
	})
	return func() {
		cancel()
		_ = listener.Close()
		running.Wait()
	}
}

// lead passes on the bytes of a connection, both ways, until one side ends.
func lead(ctx context.Context, from net.Conn, dial func(context.Context) (net.Conn, error)) {
	to, err := dial(ctx)
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
