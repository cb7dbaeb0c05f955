// SPDX-License-Identifier: Apache-2.0

// Package refused gives tests addresses at which connections are refused for as long as a test runs.
//
// Closing a listener is not enough: another process may get the port, and a process that is forked at that moment keeps
// the listener open until it executes its program.
package refused

import (
	"net"
	"strconv"
	"syscall"
	"testing"
)

// Port returns a TCP address on 127.0.0.1. It is bound by a socket that does not listen, until the test ends.
func Port(t testing.TB) (address string) {
	t.Helper()
	fd := socket(t, syscall.AF_INET)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(name.(*syscall.SockaddrInet4).Port))
}

// Socket makes what a killed daemon leaves behind: a unix socket on which no process listens.
func Socket(t testing.TB, path string) {
	t.Helper()
	fd := socket(t, syscall.AF_UNIX)
	defer func() { _ = syscall.Close(fd) }()
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
}

func socket(t testing.TB, family int) (fd int) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(fd)
	return fd
}
