// SPDX-License-Identifier: Apache-2.0

//go:build linux

package netns_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/netns"
)

// What listens in a namespace is reached there, and through a forward, and not from outside.
func TestNamespaceKeepsItsListeners(t *testing.T) {
	namespace, err := netns.New()
	if errors.Is(err, os.ErrPermission) {
		t.Skip("a network namespace takes root")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = namespace.Close() }()
	inside, err := netns.Listen(t.Context(), namespace, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			connection, err := inside.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(connection, "inside")
			_ = connection.Close()
		}
	}()
	defer func() {
		_ = inside.Close()
		<-served
	}()
	address := inside.Addr().String()
	if connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("from outside: %v, %v, want a refusal", connection, err)
	}
	outside, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer netns.Forward(t.Context(), outside, func(ctx context.Context) (net.Conn, error) {
		return netns.Dial(ctx, namespace, "tcp", address)
	})()
	connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", outside.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	if got, err := io.ReadAll(connection); err != nil || string(got) != "inside" {
		t.Errorf("through the forward: %q, %v", got, err)
	}
}
