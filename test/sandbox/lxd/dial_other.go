// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package lxd

import (
	"context"
	"errors"
	"net"
	"os"
)

func dialIn(context.Context, *os.File, string, string) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}
