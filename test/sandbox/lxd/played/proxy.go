// SPDX-License-Identifier: Apache-2.0

// Package played plays LXD daemons of other versions than the real one: a proxy before it changes requests and responses
// where the versions differ. Rows has what differs, and since when.
//
// Clients of the unix socket and of the HTTPS address come through the proxy. LXD knows a client by its certificate, so
// the proxy has one that stands in for it; in LXD's trust store clients see their own.
package played

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

// Options of Start.
type Options struct {
	// Version that is played, such as 6.9. The real one's differs in nothing.
	Version string
	// Socket is where the proxy listens, and Real is the daemon's own.
	Socket, Real string
	// Dir is LXD_DIR, with the server's certificate.
	Dir string
	// Dial makes connections in the daemon's network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Proxy plays a version before a daemon that runs.
type Proxy struct {
	options Options
	rows    []Row
	store   *Store
	secure  string // the socket of HTTPS

	// ctx ends with the proxy, and with it the connections that are no longer of HTTP.
	ctx     context.Context
	cancel  context.CancelFunc
	servers []*http.Server
	serving sync.WaitGroup

	operations operations

	mu         sync.Mutex
	address    string // LXD's for HTTPS
	transports map[client]*http.Transport
}

// client is who asks: by HTTPS, with the fingerprint of its certificate, or by the socket.
type client struct {
	https       bool
	fingerprint string
}

// Start starts a proxy. The store has what outlives it.
func Start(o Options, store *Store) (*Proxy, error) {
	rows, err := ofVersion(o.Version)
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(o.Dir, "server.crt"), filepath.Join(o.Dir, "server.key"))
	if err != nil {
		return nil, fmt.Errorf("reading the certificate of LXD: %w", err)
	}
	p := &Proxy{options: o, rows: rows, store: store, secure: o.Real + ".https", transports: map[client]*http.Transport{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.operations = operations{all: map[string]*operation{}, told: map[int]teller{}}
	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
	for _, socket := range []string{o.Socket, p.secure} {
		if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("playing LXD %s: %w", o.Version, err)
		}
		unix, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
		if err != nil {
			return nil, fmt.Errorf("playing LXD %s: %w", o.Version, err)
		}
		unix.SetUnlinkOnClose(false) // as that of a daemon that was killed
		listener := net.Listener(unix)
		if socket == p.secure {
			listener = tls.NewListener(unix, config)
		}
		server := &http.Server{Handler: p, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: eventually.Limit}
		p.servers = append(p.servers, server)
		p.serving.Go(func() { _ = server.Serve(listener) })
	}
	return p, nil
}

// Close drops all connections, as a daemon that ends. The socket stays, and nobody listens there.
func (p *Proxy) Close() {
	p.cancel()
	for _, server := range p.servers {
		_ = server.Close()
	}
	p.serving.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, transport := range p.transports {
		transport.CloseIdleConnections()
	}
}

// Dial is Options.Dial, by the proxy if LXD listens there.
func (p *Proxy) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := p.options.Dial(ctx, network, address)
	if err != nil || !p.listens(ctx, address) {
		return conn, err
	}
	_ = conn.Close() // It has shown that LXD is there.
	p.mu.Lock()
	p.address = address
	p.mu.Unlock()
	return new(net.Dialer).DialContext(ctx, "unix", p.secure)
}

// listens reports whether LXD does, at the port of an address.
func (p *Proxy) listens(ctx context.Context, address string) bool {
	server := try(func() *reply { return p.ask(ctx, client{}, http.MethodGet, "/1.0", nil) })
	at, _ := server.at("metadata", "config", "core.https_address").(string)
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		port = "8443"
	}
	_, wanted, err := net.SplitHostPort(address)
	return err == nil && at != "" && port == wanted
}

// transport leads a client to the daemon.
func (p *Proxy) transport(who client) *http.Transport {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.transports[who] == nil {
		p.transports[who] = &http.Transport{
			// A daemon that ends closes its connections: none is kept for long.
			IdleConnTimeout: 2 * time.Second, MaxIdleConnsPerHost: 100, DisableCompression: true,
			TLSClientConfig: &tls.Config{
				MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, // it is the daemon of this proxy
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return p.store.pair(who.fingerprint), nil },
			},
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				if !who.https {
					return new(net.Dialer).DialContext(ctx, "unix", p.options.Real)
				}
				p.mu.Lock()
				address := p.address
				p.mu.Unlock()
				return p.options.Dial(ctx, "tcp", address)
			},
		}
	}
	return p.transports[who]
}

// lead makes a request one to the daemon.
func lead(r *http.Request, who client) {
	r.URL.Scheme, r.URL.Host, r.RequestURI = "http", "lxd", ""
	if who.https {
		r.URL.Scheme = "https"
	}
}

// ServeHTTP passes on a request by the rows that hold for the version.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who := client{https: r.TLS != nil}
	if who.https && len(r.TLS.PeerCertificates) > 0 {
		who.fingerprint = fingerprint(r.TLS.PeerCertificates[0])
		p.store.stand(r.TLS.PeerCertificates[0])
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	r = r.WithContext(ctx)
	switch {
	case r.Header.Get("Upgrade") == "":
		p.respond(w, r, who)
	case r.URL.Path == "/1.0/events":
		p.follow(w, r, who)
	default:
		through := &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) { lead(r.Out, who) }, Transport: p.transport(who),
			ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
			ErrorLog:     log.New(io.Discard, "", 0),
		}
		through.ServeHTTP(w, r)
	}
}
