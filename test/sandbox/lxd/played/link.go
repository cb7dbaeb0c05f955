// SPDX-License-Identifier: Apache-2.0

package played

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
)

// link is a listener whose clients are in this process.
type link struct {
	accepted chan net.Conn
	closed   chan struct{}
	close    func()
}

// linked is a connection by a link, to an address that LXD listens at.
type linked struct {
	net.Conn
	address string
}

func newLink() *link {
	l := &link{accepted: make(chan net.Conn), closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	return l
}

func (l *link) connect(address string) (net.Conn, error) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	var ends [2]net.Conn
	for i, fd := range pair {
		file := os.NewFile(uintptr(fd), "lxd")
		var failed error
		ends[i], failed = net.FileConn(file)
		err = errors.Join(err, failed, file.Close())
	}
	if err != nil {
		return nil, err
	}
	select {
	case l.accepted <- &linked{ends[1], address}:
		return ends[0], nil
	case <-l.closed:
		return nil, errors.Join(refused, ends[0].Close(), ends[1].Close())
	}
}

// Accept returns the next connection.
func (l *link) Accept() (net.Conn, error) {
	select {
	case conn := <-l.accepted:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends it.
func (l *link) Close() error { l.close(); return nil }

// Addr is none.
func (l *link) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }
