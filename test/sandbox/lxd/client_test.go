// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"
)

func TestSilentDaemonIsNotWaitedForWithoutEnd(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }() // The kernel accepts connections for it, and nobody responds.
	if _, err := connect(t.Context(), socket, 50*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("connecting to a daemon that is silent: %v", err)
	}
}
