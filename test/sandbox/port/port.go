// SPDX-License-Identifier: Apache-2.0

// Package port reserves ports of 127.0.0.1 for listeners that come later, or that come and go.
//
// A free port may be taken at any time: by another program, or by a connection, even one to the port itself. A reserved
// port is not given to a process that asks for any port. A process that asks for it by number can listen there, because
// Go's listeners set SO_REUSEADDR. While nobody listens, connections are refused.
package port

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// Reserved is a port that is reserved until Close, or until this process ends.
type Reserved struct {
	fd     int
	number int
}

// Reserve finds a free port.
func Reserve() (*Reserved, error) {
	fd, err := socket()
	if err != nil {
		return nil, fmt.Errorf("reserving a port: %w", err)
	}
	number, err := bind(fd)
	if err != nil {
		return nil, fmt.Errorf("reserving a port: %w", errors.Join(err, syscall.Close(fd)))
	}
	return &Reserved{fd: fd, number: number}, nil
}

func socket() (fd int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if fd, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0); err == nil {
		syscall.CloseOnExec(fd)
	}
	return fd, err
}

func bind(fd int) (number int, err error) {
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	return name.(*syscall.SockaddrInet4).Port, nil
}

// Number is the port's.
func (r *Reserved) Number() int { return r.number }

// Address is 127.0.0.1 with the port.
func (r *Reserved) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.number)) }

// Close releases the port. A listener there continues.
func (r *Reserved) Close() error {
	if err := syscall.Close(r.fd); err != nil {
		return fmt.Errorf("giving port %d back: %w", r.number, err)
	}
	return nil
}
