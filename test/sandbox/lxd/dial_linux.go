// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// dialIn makes a connection in a network namespace. Its socket stays in that namespace, whoever uses it.
func dialIn(ctx context.Context, namespace *os.File, network, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		// The thread is not given back: it ends with this goroutine instead of doing others' work
		// in the wrong namespace.
		runtime.LockOSThread()
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- result{err: &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("entering the node's network: %w", err)}}
			return
		}
		// Trying two addresses at once would leave this thread.
		dialer := net.Dialer{FallbackDelay: -1}
		conn, err := dialer.DialContext(ctx, network, address)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}
