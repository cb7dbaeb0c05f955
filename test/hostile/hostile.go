// SPDX-License-Identifier: Apache-2.0

// Package hostile gives tests servers that do harm to whoever asks them: one that never responds, one that responds
// without end, and a MAAS and an LXD that lie.
package hostile

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
)

// Silence responds to no request: each lasts until its client gives up.
type Silence struct {
	asked, left atomic.Int64
	requests    chan struct{}

	mu   sync.Mutex
	open map[int64]bool // by their numbers
}

// NewSilence makes one.
func NewSilence() *Silence {
	return &Silence{requests: make(chan struct{}, manyRequests), open: map[int64]bool{}}
}

// manyRequests is how many requests are kept for who receives them.
const manyRequests = 100

// ServeHTTP waits for the client to go.
func (s *Silence) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	number := s.asked.Add(1)
	s.setOpen(number, true)
	defer s.setOpen(number, false)
	select {
	case s.requests <- struct{}{}:
	default:
	}
	<-r.Context().Done()
	s.left.Add(1)
}

// Asked is how many requests there were.
func (s *Silence) Asked() int { return int(s.asked.Load()) }

// Requests receives for each of the first requests that nobody has received.
func (s *Silence) Requests() <-chan struct{} { return s.requests }

// Left is how many clients gave up.
func (s *Silence) Left() int { return int(s.left.Load()) }

func (s *Silence) setOpen(number int64, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[number] = open; !open {
		delete(s.open, number)
	}
}

// OpenAfter is how many of the requests after the first so many still wait for a response.
func (s *Silence) OpenAfter(asked int) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for number := range s.open {
		if number > int64(asked) {
			n++
		}
	}
	return n
}

// Flood responds to each request without end.
type Flood struct {
	// Begin writes the first part of the response. Default: garbage from the first byte.
	Begin func(http.ResponseWriter)
	// Most ends the response after so many bytes, for tests of who could take them all. Default: it has no end.
	Most int64

	asked, taken atomic.Int64
}

// floodBy is how much is written at once.
const floodBy = 1 << 20

var flooded = bytes.Repeat([]byte("a"), floodBy)

// ServeHTTP writes until the client is gone.
func (f *Flood) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	f.asked.Add(1)
	if f.Begin != nil {
		f.Begin(w)
	}
	for sent := int64(0); f.Most == 0 || sent < f.Most; sent += floodBy {
		n, err := w.Write(flooded)
		f.taken.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// Asked is how many requests there were.
func (f *Flood) Asked() int { return int(f.asked.Load()) }

// Taken is how many bytes were taken from it in all.
func (f *Flood) Taken() int64 { return f.taken.Load() }

// EndlessMAAS floods who asks it for a list, and EndlessLXD who asks it for anything: what has come so far may always
// become what was asked for.
func EndlessMAAS() *Flood { return &Flood{Begin: text(`["`)} }

// EndlessLXD floods who asks it.
func EndlessLXD() *Flood {
	return &Flood{Begin: text(`{"type":"sync","metadata":{"auth":"trusted","x":"`)}
}

func text(begins string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, begins)
	}
}

// Serve serves something on 127.0.0.1 until the test ends, and returns its URL.
func Serve(t testing.TB, something http.Handler) (url string) {
	t.Helper()
	server := unstarted(t, something)
	server.Start()
	return server.URL
}

// ServeTLS is Serve for what is reached as an LXD is: by its address and its certificate (PEM), with any certificate
// of a client.
func ServeTLS(t testing.TB, something http.Handler) (address string, certificate []byte) {
	t.Helper()
	server := unstarted(t, something)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return server.Listener.Addr().String(), certificate
}

func unstarted(t testing.TB, something http.Handler) *httptest.Server {
	server := httptest.NewUnstartedServer(something)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(func() {
		server.CloseClientConnections() // Otherwise Close waits for who waits.
		server.Close()
	})
	return server
}

// Door leads to one server after the other, at one address.
type Door struct{ behind atomic.Pointer[http.Handler] }

// LeadsTo makes the door lead somewhere else, for requests from now on.
func (d *Door) LeadsTo(behind http.Handler) { d.behind.Store(&behind) }

// ServeHTTP passes a request on.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*d.behind.Load()).ServeHTTP(w, r) }
