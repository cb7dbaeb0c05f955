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

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

// Middleware is put between a client and LXD. It cuts a connection by panicking with http.ErrAbortHandler.
type Middleware func(lxd http.Handler) http.Handler

// Proxy is an HTTPS server that leads to an LXD, whoever its client is: LXD sees the proxy's client certificate.
type Proxy struct {
	Address string
	// Certificate (PEM) is the server's own, not LXD's.
	Certificate []byte
}

// Identity is a server certificate (PEM) and its key. An LXD is known by it, also in several projects.
type Identity struct {
	Certificate, key []byte
}

// NewIdentity makes the identity of an LXD.
func NewIdentity(t testing.TB) Identity {
	t.Helper()
	certificate, key, err := shared.GenerateMemCert(false, shared.CertOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return Identity{Certificate: certificate, key: key}
}

// onwardTimeout is how long LXD may take for a response: the end of a test waits for all of them, also of callers that are
// gone. It is longer than any caller waits.
const onwardTimeout = eventually.Limit

// StartProxy runs a proxy with an identity until the test ends. LXD is at an address of onward, which has the client
// certificate.
func StartProxy(t testing.TB, onward *http.Transport, address string, identity Identity, between Middleware) Proxy {
	t.Helper()
	onward = onward.Clone()
	onward.ResponseHeaderTimeout = onwardTimeout
	forward := between(&httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "https", address },
		Transport:    onward,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     log.New(io.Discard, "", 0),
	})
	pair, err := tls.X509KeyPair(identity.Certificate, identity.key)
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
	return Proxy{Address: server.Listener.Addr().String(), Certificate: identity.Certificate}
}
