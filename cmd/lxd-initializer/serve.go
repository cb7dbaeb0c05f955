// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
)

const (
	headerTimeout = 10 * time.Second
	shutdownGrace = 5 * time.Second
)

// servers serve probes and Prometheus.
type servers []*server

// The order of servers.
const (
	healthServer = iota
	metricsServer
)

type server struct {
	listener net.Listener
	http     *http.Server
}

// listen binds the addresses, so that an address that is in use ends the program at its start.
func listen(healthAddr, metricsAddr string, a *agent) (servers, error) {
	health, metrics := http.NewServeMux(), http.NewServeMux()
	health.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, true) })
	health.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, a.ready.Load()) })
	metrics.Handle("/metrics", promhttp.HandlerFor(a.metrics.registry, promhttp.HandlerOpts{}))
	var all servers
	for _, one := range []struct {
		name, addr string
		handler    http.Handler
	}{{"health", healthAddr, health}, {"metrics", metricsAddr, metrics}} {
		listener, err := net.Listen("tcp", one.addr)
		if err != nil {
			all.close()
			return nil, fmt.Errorf("serving %s: %w", one.name, err)
		}
		all = append(all, &server{listener, &http.Server{Handler: one.handler, ReadHeaderTimeout: headerTimeout}})
	}
	return all, nil
}

// address returns the address of one of them.
func (s servers) address(which int) string { return s[which].listener.Addr().String() }

func answer(w http.ResponseWriter, ok bool) {
	if !ok {
		http.Error(w, "not ready", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// run serves until the context ends.
func (s servers) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, one := range s {
		group.Go(func() error {
			if err := one.http.Serve(one.listener); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serving on %s: %w", one.listener.Addr(), err)
			}
			return nil
		})
	}
	group.Go(func() error {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		for _, one := range s {
			_ = one.http.Shutdown(grace) // Requests that are still under way then are cut off.
		}
		return nil
	})
	return group.Wait()
}

func (s servers) close() {
	for _, one := range s {
		_ = one.listener.Close()
	}
}
