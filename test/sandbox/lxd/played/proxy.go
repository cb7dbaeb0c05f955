// SPDX-License-Identifier: Apache-2.0

// Package played plays LXD daemons of other versions than the real one: a proxy before it changes requests and responses
// where the versions differ. What differs, since when, is the table in Rows.
//
// Clients of the unix socket and of the HTTPS address come through the proxy. LXD knows clients by their certificates, so
// each gets another one from the proxy that stands in for it; in LXD's trust store clients see their own.
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
)

// Options of Start.
type Options struct {
	// Version that is played, such as 6.9. That of the real one changes nothing.
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
	// ctx ends with the proxy, and with it the connections that are no longer of HTTP.
	ctx     context.Context
	cancel  context.CancelFunc
	servers []*http.Server
	secure  *link
	serving sync.WaitGroup
	rows    []Row

	operations operations
	store      *Store

	mu         sync.Mutex
	transports map[client]*http.Transport
}

// client is who asks: the fingerprint of its certificate, and the address of LXD. Both are empty for the socket.
type client struct{ fingerprint, address string }

type clientKey struct{}

// Start starts a proxy. The store has what outlives it.
func Start(o Options, store *Store) (*Proxy, error) {
	rows, err := since(o.Version)
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(o.Dir, "server.crt"), filepath.Join(o.Dir, "server.key"))
	if err != nil {
		return nil, fmt.Errorf("reading the certificate of LXD: %w", err)
	}
	if err := os.Remove(o.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("playing LXD %s: %w", o.Version, err)
	}
	local, err := net.ListenUnix("unix", &net.UnixAddr{Name: o.Socket, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("playing LXD %s: %w", o.Version, err)
	}
	local.SetUnlinkOnClose(false) // as that of a daemon that was killed
	p := &Proxy{options: o, rows: rows, store: store, secure: newLink(), transports: map[client]*http.Transport{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.operations.all, p.operations.told = map[string]*operation{}, map[int]func(string, map[string]any){}
	p.serve(local, func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, clientKey{}, client{})
	})
	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
	p.serve(tls.NewListener(p.secure, config), func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, clientKey{}, client{address: c.(*tls.Conn).NetConn().(*linked).address})
	})
	return p, nil
}

func (p *Proxy) serve(listener net.Listener, whose func(context.Context, net.Conn) context.Context) {
	server := &http.Server{Handler: p, ConnContext: whose, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute}
	p.servers = append(p.servers, server)
	p.serving.Go(func() { _ = server.Serve(listener) })
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
	return p.secure.connect(address)
}

// listens reports whether LXD does, at the port of an address.
func (p *Proxy) listens(ctx context.Context, address string) bool {
	r := p.ask(ctx, client{}, http.MethodGet, "/1.0", nil)
	if r == nil {
		return false
	}
	at, _ := r.at("metadata", "config", "core.https_address").(string)
	if at == "" {
		return false
	}
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		port = "8443"
	}
	_, wanted, err := net.SplitHostPort(address)
	return err == nil && port == wanted
}

// transport leads a client to the daemon.
func (p *Proxy) transport(c client) *http.Transport {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.transports[c] == nil {
		// A daemon that ends closes its connections: none is kept for long.
		t := &http.Transport{IdleConnTimeout: 2 * time.Second, MaxIdleConnsPerHost: 100, DisableCompression: true}
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			if c.address == "" {
				return new(net.Dialer).DialContext(ctx, "unix", p.options.Real)
			}
			return p.options.Dial(ctx, "tcp", c.address)
		}
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true} // the daemon's own
		if pair := p.store.pair(c.fingerprint); pair != nil {
			t.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil }
		}
		p.transports[c] = t
	}
	return p.transports[c]
}

// ServeHTTP passes on a request by the rows that hold for the version.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, _ := r.Context().Value(clientKey{}).(client)
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		who.fingerprint = fingerprint(r.TLS.PeerCertificates[0])
		p.store.stand(r.TLS.PeerCertificates[0])
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	r = r.WithContext(context.WithValue(ctx, clientKey{}, who))
	switch {
	case r.Header.Get("Upgrade") == "":
		p.respond(w, r)
	case r.URL.Path == "/1.0/events":
		p.follow(w, r)
	default:
		through := &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) { p.lead(r.Out, who) }, Transport: p.transport(who),
			ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
			ErrorLog:     log.New(io.Discard, "", 0),
		}
		through.ServeHTTP(w, r)
	}
}

// lead makes a request one to the daemon.
func (p *Proxy) lead(r *http.Request, who client) {
	r.URL.Scheme, r.URL.Host, r.RequestURI = "http", "lxd", ""
	if who.address != "" {
		r.URL.Scheme, r.URL.Host = "https", who.address
	}
}
