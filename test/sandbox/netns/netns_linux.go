// SPDX-License-Identifier: Apache-2.0

// Package netns does things in a network namespace, and makes namespaces.
package netns

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// New makes a network namespace that has a loopback interface alone. It lasts until the file is closed and no program
// runs in it. It takes root.
func New() (*os.File, error) {
	return do(func() (*os.File, error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return nil, fmt.Errorf("making a network namespace: %w", err)
		}
		if err := raiseLoopback(); err != nil {
			return nil, fmt.Errorf("starting the loopback interface of a network namespace: %w", err)
		}
		namespace, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return nil, fmt.Errorf("opening a network namespace: %w", err)
		}
		return namespace, nil
	})
}

func raiseLoopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}

// Enter moves the calling thread into a network namespace. It must not be given back to others.
func Enter(namespace *os.File) error {
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering a network namespace: %w", err)
	}
	return nil
}

// Dial makes a connection in a network namespace. Its socket stays in that namespace, whoever uses it.
func Dial(ctx context.Context, namespace *os.File, network, address string) (net.Conn, error) {
	return do(func() (net.Conn, error) {
		if err := Enter(namespace); err != nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: err}
		}
		// Trying two addresses at once would leave this thread.
		dialer := net.Dialer{FallbackDelay: -1}
		return dialer.DialContext(ctx, network, address)
	})
}

// Listen listens in a network namespace. The listener stays there.
func Listen(ctx context.Context, namespace *os.File, network, address string) (net.Listener, error) {
	return do(func() (net.Listener, error) {
		if err := Enter(namespace); err != nil {
			return nil, &net.OpError{Op: "listen", Net: network, Err: err}
		}
		var config net.ListenConfig
		return config.Listen(ctx, network, address)
	})
}

// ListenPacket does so for packets.
func ListenPacket(ctx context.Context, namespace *os.File, network, address string) (net.PacketConn, error) {
	return do(func() (net.PacketConn, error) {
		if err := Enter(namespace); err != nil {
			return nil, &net.OpError{Op: "listen", Net: network, Err: err}
		}
		var config net.ListenConfig
		return config.ListenPacket(ctx, network, address)
	})
}

// do calls f on a thread that is not given back: it ends with its goroutine instead of doing others' work in the wrong
// namespace.
func do[T any](f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread()
		value, err := f()
		done <- result{value, err}
	}()
	r := <-done
	return r.value, r.err
}
