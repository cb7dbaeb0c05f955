// SPDX-License-Identifier: Apache-2.0

package lxdtest

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"testing"

	"github.com/canonical/lxd/shared"
)

// Middleware is put between a client and LXD. It cuts a connection by panicking with http.ErrAbortHandler.
type Middleware func(lxd http.Handler) http.Handler

// Proxy is an HTTPS server that leads to an LXD, whoever its client is: LXD sees the proxy's client certificate.
type Proxy struct {
	Address string
	// Certificate (PEM) is the server's own, not LXD's.
	Certificate []byte
}

// StartProxy runs a proxy until the test ends. LXD is at an address of onward, which has the client certificate.
func StartProxy(t testing.TB, onward *http.Transport, address string, between Middleware) Proxy {
	t.Helper()
	forward := between(&httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "https", address },
		Transport:    onward,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     log.New(io.Discard, "", 0),
	})
	certificate, key, err := shared.GenerateMemCert(false, shared.CertOptions{}) // An LXD is known by it: each has another.
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(forward)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		onward.CloseIdleConnections()
	})
	return Proxy{Address: server.Listener.Addr().String(), Certificate: certificate}
}
