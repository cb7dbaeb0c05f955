// SPDX-License-Identifier: Apache-2.0

package lxdtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
)

// Socket returns the path of a unix socket that leads to a daemon's, with something in between, until the test ends.
func Socket(t testing.TB, daemon *lxd.Daemon, between Middleware) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lxdsocket") //nolint:usetesting // the path of a unix socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	socket := filepath.Join(dir, "unix.socket")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: between(&httputil.ReverseProxy{ // a test's own socket
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "lxd" },
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", daemon.Socket())
		}},
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:      log.New(io.Discard, "", 0),
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return socket
}

// UniqueNames refuses what LXD refuses from 5.21.5 and 6.6 on, and older ones accept: a name that another certificate
// has.
func UniqueNames(lxd http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		dir, own := path.Split(r.URL.Path)
		isNew := r.Method == http.MethodPost && r.URL.Path == "/1.0/certificates"
		if !isNew && (r.Method == http.MethodGet || r.Method == http.MethodDelete || dir != "/1.0/certificates/") {
			lxd.ServeHTTP(w, r)
			return
		}
		sent, err := io.ReadAll(r.Body)
		var body struct{ Name string }
		if err != nil || json.Unmarshal(sent, &body) != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(sent))
		if hasName := func(c api.Certificate) bool { return c.Name == body.Name }; body.Name != "" {
			all := certificatesOf(lxd, r)
			at := slices.IndexFunc(all, func(c api.Certificate) bool { return c.Fingerprint == own })
			renames := isNew || at < 0 || !hasName(all[at])
			if renames && slices.ContainsFunc(all, hasName) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusConflict)
				_ = json.NewEncoder(w).Encode(api.ResponseRaw{Type: api.ErrorResponse, Code: http.StatusConflict,
					Error: `This "identity" entry already exists`})
				return
			}
		}
		lxd.ServeHTTP(w, r)
	})
}

// certificatesOf asks LXD for its certificates. The request is its client's.
func certificatesOf(lxd http.Handler, r *http.Request) (all []api.Certificate) {
	recorder := httptest.NewRecorder()
	asked := httptest.NewRequestWithContext(r.Context(), http.MethodGet, "/1.0/certificates?recursion=1", nil)
	lxd.ServeHTTP(recorder, asked)
	var response api.Response
	if json.NewDecoder(recorder.Body).Decode(&response) != nil || json.Unmarshal(response.Metadata, &all) != nil {
		panic(http.ErrAbortHandler)
	}
	return all
}
