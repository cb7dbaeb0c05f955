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
)

const headerTimeout = 10 * time.Second

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

// serve serves pages until the context ends. Requests that are under way then are cut off.
func serve(ctx context.Context, listener net.Listener, pages http.Handler) error {
	server := &http.Server{Handler: pages, ReadHeaderTimeout: headerTimeout}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving on %s: %w", listener.Addr(), err)
	}
	return nil
}
