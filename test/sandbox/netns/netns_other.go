// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package netns

import (
	"context"
	"errors"
	"net"
	"os"
)

// New fails: only Linux has network namespaces.
func New() (*os.File, error) { return nil, errors.ErrUnsupported }

// Enter fails.
func Enter(*os.File) error { return errors.ErrUnsupported }

// Dial fails.
func Dial(context.Context, *os.File, string, string) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}

// Listen fails.
func Listen(context.Context, *os.File, string, string) (net.Listener, error) {
	return nil, errors.ErrUnsupported
}

// ListenPacket fails.
func ListenPacket(context.Context, *os.File, string, string) (net.PacketConn, error) {
	return nil, errors.ErrUnsupported
}
