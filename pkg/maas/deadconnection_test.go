// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

// A path that drops packets silently, as after a firewall has lost its state, is left once MAAS is reached by another one.
func TestADeadConnectionIsLeft(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	way := silentWay(t, server.Listener.Addr().String())
	transport := newTransport(server.Client().Transport.(*http.Transport).TLSClientConfig)
	defer transport.CloseIdleConnections()
	if transport.HTTP2 != nil {
		transport.HTTP2.SendPingTimeout, transport.HTTP2.PingTimeout = 500*time.Millisecond, 500*time.Millisecond
	}
	client := &http.Client{Transport: transport}
	get := func() (proto string, err error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+way.address, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			return "", err
		}
		return response.Proto, response.Body.Close()
	}
	// A busy computer may take so long for a ping that a connection that lives is left, too.
	reached := func() (proto string, err error) {
		for late := time.Now().Add(eventually.Limit); ; {
			if proto, err = get(); err == nil || time.Now().After(late) {
				return proto, err
			}
		}
	}
	if proto, err := reached(); err != nil || proto != "HTTP/2.0" {
		t.Fatal(proto, err)
	}
	way.silent.Store(true)
	if _, err := reached(); err != nil {
		t.Errorf("the dead connection is used on: %v", err)
	}
	if !way.swallowed.Load() {
		t.Error("the connection was not silent")
	}
}

// way leads to a server. Once it is silent, the connections that there are carry nothing, and new ones do.
type way struct {
	address string
	silent  atomic.Bool
	// swallowed means that something was not carried.
	swallowed atomic.Bool
}

func silentWay(t *testing.T, to string) *way {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	w := &way{address: listener.Addr().String()}
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", to)
			if err != nil {
				return
			}
			t.Cleanup(func() { _, _ = from.Close(), server.Close() })
			carries := !w.silent.Load()
			go w.carry(server, from, carries)
			go w.carry(from, server, carries)
		}
	}()
	return w
}

// carry copies until the way is silent; old connections end then.
func (w *way) carry(to io.Writer, from io.Reader, old bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if old && w.silent.Load() {
			w.swallowed.Store(true)
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
