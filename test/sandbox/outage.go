// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"syscall"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

// Outage is what MAAS's place on the network is like while MAAS is away.
type Outage int

const (
	// Refusing means that no process listens there.
	Refusing Outage = iota
	// Silent means that connections are accepted, and get no response.
	Silent
)

// StopMAAS takes MAAS's API off the network, and with it the simulator's own endpoint. Calls under way lose their
// connection, and take effect all the same. The region continues. Don't call it while MAAS is away.
func (s *Sandbox) StopMAAS(ctx context.Context, how Outage) (*Away, error) {
	if err := s.maasServer.Close(); err != nil {
		return nil, fmt.Errorf("taking the simulated MAAS off the network: %w", err)
	}
	away := &Away{box: s, held: map[net.Conn]struct{}{}}
	if how == Refusing {
		return away, nil
	}
	listener, err := s.listenMAAS(ctx)
	if err != nil {
		return nil, err
	}
	away.listener = listener
	away.serving.Go(away.accept)
	return away, nil
}

// Away is MAAS while it is off the network.
type Away struct {
	box      *Sandbox
	listener net.Listener // nil: nobody listens
	serving  sync.WaitGroup

	mutex  sync.Mutex
	held   map[net.Conn]struct{}
	closed bool
	most   int
}

// Return brings MAAS back, at the same address.
func (a *Away) Return(ctx context.Context) error {
	if err := a.close(); err != nil {
		return fmt.Errorf("ending the outage of the simulated MAAS: %w", err)
	}
	listener, err := a.box.listenMAAS(ctx)
	if err != nil {
		return err
	}
	a.box.serve(listener)
	return nil
}

// Most is how many connections to a silent MAAS were open at the same time, at most, since the last call of Most.
func (a *Away) Most() int {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	most := a.most
	a.most = len(a.held)
	return most
}

func (a *Away) accept() {
	for {
		connection, err := a.listener.Accept()
		if err != nil {
			return // it was closed
		}
		a.take(connection)
	}
}

func (a *Away) take(connection net.Conn) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.closed {
		_ = connection.Close()
		return
	}
	a.held[connection] = struct{}{}
	a.most = max(a.most, len(a.held))
	a.serving.Go(func() { a.hold(connection) })
}

// hold reads from the client, until it gives up or the outage ends.
func (a *Away) hold(connection net.Conn) {
	ignored := make([]byte, 4096)
	for {
		if _, err := connection.Read(ignored); err != nil {
			break
		}
	}
	_ = connection.Close()
	a.mutex.Lock()
	defer a.mutex.Unlock()
	delete(a.held, connection)
}

func (a *Away) close() error {
	if a.listener == nil {
		return nil
	}
	err := a.listener.Close()
	a.mutex.Lock()
	a.closed = true
	for connection := range a.held {
		_ = connection.Close()
	}
	a.mutex.Unlock()
	a.serving.Wait()
	return err
}

// listenMAAS listens where MAAS is.
func (s *Sandbox) listenMAAS(ctx context.Context) (listener net.Listener, err error) {
	at, err := url.Parse(s.MAASURL)
	if err != nil {
		return nil, fmt.Errorf("reading MAAS's address: %w", err)
	}
	// A process that was forked while MAAS stopped has the listener open until it executes its program.
	err = eventually.Wait(ctx, "the address where MAAS was", func() (done bool, status string, err error) {
		listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", at.Host)
		if errors.Is(err, syscall.EADDRINUSE) {
			return false, err.Error(), nil
		}
		return err == nil, "", err
	})
	return listener, err
}

func (s *Sandbox) serve(listener net.Listener) {
	server := &http.Server{Handler: s.MAAS.Handler(), ConnState: s.MAAS.ConnState, ReadHeaderTimeout: eventually.Limit}
	s.maasServer = server
	go func() { _ = server.Serve(listener) }()
}

// StopKubernetes ends the management cluster's API server with SIGKILL. What is stored stays.
func (s *Sandbox) StopKubernetes() error { return s.controlPlane.StopAPIServer() }

// StartKubernetes starts it again, and returns when it is ready.
func (s *Sandbox) StartKubernetes(ctx context.Context) error {
	return s.controlPlane.StartAPIServer(ctx)
}
