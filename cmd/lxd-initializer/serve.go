// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	headerTimeout = 10 * time.Second
	shutdownGrace = 5 * time.Second
)

// server serves probes, or Prometheus.
type server struct {
	net.Listener
	http *http.Server
}

// listen binds an address, so that one that is in use ends the program at its start.
func listen(what, address string, handler http.Handler) (*server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serving %s: %w", what, err)
	}
	return &server{listener, &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout}}, nil
}

func (a *agent) probes() http.Handler {
	probes := http.NewServeMux()
	probes.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, true) })
	probes.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, a.ready.Load()) })
	return probes
}

func answer(w http.ResponseWriter, ok bool) {
	if !ok {
		http.Error(w, "not ready", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

func (m *metrics) handler() http.Handler {
	pages := http.NewServeMux()
	pages.Handle("/metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	return pages
}

// run serves until the context ends.
func (s *server) run(ctx context.Context) error {
	failed := make(chan error, 1)
	go func() { failed <- s.http.Serve(s) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving on %s: %w", s.Addr(), err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	_ = s.http.Shutdown(grace) // Requests that are still under way then are cut off.
	return nil
}
