// SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

func TestListenersComeAndGo(t *testing.T) {
	r, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if conn, err := dial(t, r); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("connecting where nobody listens: %v, %v", conn, err)
		}
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", r.Address())
		if err != nil {
			t.Fatal(err)
		}
		if conn, err := dial(t, r); err != nil {
			t.Error(err)
		} else {
			_ = conn.Close()
		}
		_ = listener.Close()
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func dial(t *testing.T, r *Reserved) (net.Conn, error) {
	t.Helper()
	return (&net.Dialer{}).DialContext(t.Context(), "tcp", r.Address())
}

func TestOneThatIsReservedIsNotFoundFree(t *testing.T) {
	first, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	for range 200 {
		other, err := Reserve()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Close() }()
		if other.Number() == first.Number() {
			t.Fatalf("port %d is reserved twice", first.Number())
		}
	}
}
