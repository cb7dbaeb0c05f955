// SPDX-License-Identifier: Apache-2.0

// Package refused gives tests addresses at which connections are refused for as long as a test runs.
//
// To listen, close and believe that no process listens any more is not enough: another process may get the port; and one that is forked
// at that moment has the listener open until it executes its program.
package refused

import (
	"net"
	"strconv"
	"syscall"
	"testing"
)

// Port returns an address of TCP, on 127.0.0.1, that is bound by a socket that does not listen, until the test ends.
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

// Socket makes what a daemon leaves behind that was killed: a unix socket on which no process listens.
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
