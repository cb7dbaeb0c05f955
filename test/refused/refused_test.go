// SPDX-License-Identifier: Apache-2.0

package refused

import (
	"errors"
	"net"
	"path/filepath"
	"syscall"
	"testing"
)

func TestConnectionsAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	Socket(t, path)
	for address, network := range map[string]string{Port(t): "tcp", path: "unix"} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), network, address)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("connecting to %s: %v, %v", address, conn, err)
		}
	}
}

func TestNobodyElseGetsThePort(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", Port(t))
	if err == nil {
		_ = listener.Close()
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listening on the port: %v", err)
	}
}
