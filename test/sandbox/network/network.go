// SPDX-License-Identifier: Apache-2.0

// Package network makes names and addresses reachable that exist only in the sandbox: the DNS names that the simulated
// MAAS serves, and the addresses of its machines.
//
// It is an HTTP proxy (CONNECT) on 127.0.0.1. Go programs use it through HTTPS_PROXY, kubectl through the proxy-url of
// a kubeconfig. A name is resolved by MAAS's DNS, and a connection ends at the machine with the address, so that a
// missing or wrong record, or a machine that is off, has the same effect as in reality. Nothing else is reachable, unless
// Forward leads to it.
package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"sync"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/port"
)

// Resolver is a DNS server; it also returns where an address is forwarded to, if it is.
type Resolver interface {
	Lookup(host string) []netip.Addr
}

// Dialer connects to simulated machines.
type Dialer interface {
	Dial(ctx context.Context, address netip.AddrPort) (net.Conn, error)
}

// ErrUnreachable is returned for names and addresses that lead nowhere.
var ErrUnreachable = errors.New("unreachable")

// Network is what one sandbox's names and addresses lead to.
type Network struct {
	resolver Resolver
	dialer   Dialer
	outside  Outside // nil: nothing else is reachable

	mutex  sync.Mutex
	routes map[string]Outside // by address
}

// Route leads connections to an address that no simulated machine has.
func (n *Network) Route(address string, dial func(ctx context.Context, hostPort string) (net.Conn, error)) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.routes == nil {
		n.routes = map[string]Outside{}
	}
	n.routes[address] = dial
}

func (n *Network) routeTo(address string) Outside {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return n.routes[address]
}

// The proxy is one for the process, as is HTTPS_PROXY. Go reads that variable once, so that the address must not
// change.
var shared = &proxy{}

type proxy struct {
	mutex    sync.Mutex
	port     *port.Reserved // kept after the last network was closed
	server   *http.Server
	networks []*Network
	tunnels  map[net.Conn]*Network
	running  sync.WaitGroup
}

// Open makes a network reachable through the proxy, and starts the proxy with the first one.
func Open(resolver Resolver, dialer Dialer) (*Network, error) {
	shared.mutex.Lock()
	defer shared.mutex.Unlock()
	if shared.server == nil {
		if err := shared.start(); err != nil {
			return nil, err
		}
	}
	n := &Network{resolver: resolver, dialer: dialer}
	shared.networks = append(shared.networks, n)
	return n, nil
}

// ProxyURL is what to set HTTPS_PROXY or proxy-url to.
func (n *Network) ProxyURL() *url.URL {
	return &url.URL{Scheme: "http", Host: shared.port.Address()}
}

// Close ends the connections through this network. The proxy ends with the last network.
func (n *Network) Close() error {
	shared.mutex.Lock()
	for i, other := range shared.networks {
		if other == n {
			shared.networks = append(shared.networks[:i], shared.networks[i+1:]...)
			break
		}
	}
	for connection, of := range shared.tunnels {
		if of == n {
			_ = connection.Close()
		}
	}
	var err error
	last := len(shared.networks) == 0 && shared.server != nil
	if last {
		err = shared.server.Close()
		shared.server = nil
	}
	shared.mutex.Unlock()
	if last {
		shared.running.Wait()
	}
	return err
}

// start listens, on the same address as before if there was one.
func (p *proxy) start() error {
	if p.port == nil {
		reserved, err := port.Reserve()
		if err != nil {
			return fmt.Errorf("starting the proxy: %w", err)
		}
		p.port = reserved
	}
	listener, err := net.Listen("tcp", p.port.Address())
	if err != nil {
		return fmt.Errorf("starting the proxy: %w", err)
	}
	p.tunnels = map[net.Conn]*Network{}
	if err := useProxy(p.port.Address()); err != nil {
		_ = listener.Close()
		return err
	}
	server := &http.Server{Handler: p, ReadHeaderTimeout: eventually.Limit}
	p.server = server
	p.running.Go(func() { _ = server.Serve(listener) })
	return nil
}

// useProxy sets HTTPS_PROXY for this process, and checks that it is used. The address must not be one that NO_PROXY
// excludes; loopback addresses never use a proxy.
func useProxy(address string) error {
	for _, name := range []string{"NO_PROXY", "no_proxy", "https_proxy"} {
		if err := os.Unsetenv(name); err != nil {
			return fmt.Errorf("setting up the proxy: %w", err)
		}
	}
	if err := os.Setenv("HTTPS_PROXY", "http://"+address); err != nil {
		return fmt.Errorf("setting up the proxy: %w", err)
	}
	request := &http.Request{URL: &url.URL{Scheme: "https", Host: "proxy-check.invalid"}}
	used, err := http.ProxyFromEnvironment(request)
	if err != nil || used == nil || used.Host != address {
		return fmt.Errorf("setting up the proxy: this process used a proxy setting before the sandbox started (%v): %w", used, errors.Join(err, ErrUnreachable))
	}
	return nil
}

// ServeHTTP serves CONNECT.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "only CONNECT is served", http.StatusMethodNotAllowed)
		return
	}
	target, network, err := p.dial(r.Context(), r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = target.Close() }()
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		http.Error(w, "connections can't be taken over", http.StatusInternalServerError)
		return
	}
	client, buffered, err := hijacker.Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer func() { _ = client.Close() }()
	if !p.remember(target, network) {
		return
	}
	defer p.forget(target)
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	pipe(client, buffered, target)
}

// pipe copies in both directions until one of them ends.
func pipe(client net.Conn, fromClient io.Reader, target net.Conn) {
	ended := make(chan struct{}, 2)
	go func() {
		_, _ = io.Copy(target, fromClient)
		ended <- struct{}{}
	}()
	go func() {
		_, _ = io.Copy(client, target)
		ended <- struct{}{}
	}()
	<-ended
	_ = target.Close()
	_ = client.Close()
	<-ended
}

func (p *proxy) remember(connection net.Conn, n *Network) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, open := range p.networks {
		if open == n {
			p.tunnels[connection] = n
			return true
		}
	}
	return false
}

func (p *proxy) forget(connection net.Conn) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.tunnels, connection)
}

// dial asks one network after the other.
func (p *proxy) dial(ctx context.Context, hostPort string) (net.Conn, *Network, error) {
	p.mutex.Lock()
	networks := append([]*Network{}, p.networks...)
	p.mutex.Unlock()
	failures := []error{}
	for _, n := range networks {
		connection, err := n.Dial(ctx, hostPort)
		if err == nil {
			return connection, n, nil
		}
		failures = append(failures, err)
	}
	return nil, nil, errors.Join(failures...)
}

// Dial connects to a name or address and port as a machine in the sandbox's network would: it tries the addresses that
// the name has, one after the other.
func (n *Network) Dial(ctx context.Context, hostPort string) (net.Conn, error) {
	host, portText, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", hostPort, err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", hostPort, err)
	}
	if route := n.routeTo(host); route != nil {
		return route(ctx, hostPort)
	}
	addresses := n.resolver.Lookup(host)
	if literal, err := netip.ParseAddr(host); err == nil && len(addresses) == 0 {
		addresses = []netip.Addr{literal}
	}
	switch {
	case len(addresses) == 0 && n.leadsOutside(host):
		return n.outside(ctx, hostPort)
	case len(addresses) == 0:
		return nil, fmt.Errorf("connecting to %s: no such name: %w", hostPort, ErrUnreachable)
	}
	var failures []error
	for _, address := range addresses {
		connection, err := n.dialer.Dial(ctx, netip.AddrPortFrom(address, uint16(port)))
		if err == nil {
			return connection, nil
		}
		failures = append(failures, err)
	}
	return nil, fmt.Errorf("connecting to %s: %w", hostPort, errors.Join(failures...))
}
