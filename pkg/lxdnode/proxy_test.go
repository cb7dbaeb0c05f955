// SPDX-License-Identifier: Apache-2.0

package lxdnode

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
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/canonical/lxd/shared/api"
)

// middleware is put between a client and LXD.
type middleware func(lxd http.Handler) http.Handler

// proxy is a unix socket that leads to LXD, through whatever a test puts in between.
type proxy struct {
	socket string

	mu     sync.Mutex
	change middleware
}

// startProxy opens a socket in front of a daemon's. Everything passes, websockets too, until the test changes that.
func startProxy(t *testing.T, upstream string) *proxy {
	t.Helper()
	dir, err := os.MkdirTemp("", "lxdproxy") //nolint:usetesting // the path of a unix socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	p := &proxy{socket: filepath.Join(dir, "s")}
	listener, err := net.Listen("unix", p.socket)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "lxd" },
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", upstream)
		}},
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	server := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { p.with(forward).ServeHTTP(w, r) })} // a test's own socket
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return p
}

func (p *proxy) with(forward http.Handler) http.Handler {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.change == nil {
		return forward
	}
	return p.change(forward)
}

// set replaces the middleware; nil passes everything.
func (p *proxy) set(change middleware) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change = change
}

func isWrite(r *http.Request) bool { return r.Method != http.MethodGet }

func cut() { panic(http.ErrAbortHandler) }

// atWrite calls do instead of forwarding the n-th write, counted from 1. With thenDown, no request after it passes, as
// if the client had died there.
func atWrite(n int, thenDown bool, do func(lxd http.Handler, w http.ResponseWriter, r *http.Request)) (middleware, *int) {
	var mu sync.Mutex
	seen := new(int)
	return func(lxd http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			if isWrite(r) {
				*seen++
			}
			now, after := isWrite(r) && *seen == n, *seen > n || *seen == n && !isWrite(r)
			mu.Unlock()
			switch {
			case now:
				do(lxd, w, r)
			case after && thenDown:
				cut()
			default:
				lxd.ServeHTTP(w, r)
			}
		})
	}, seen
}

func cutAfter(lxd http.Handler, _ http.ResponseWriter, r *http.Request) {
	lxd.ServeHTTP(httptest.NewRecorder(), r)
	cut()
}

// answer writes a response in LXD's form.
func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(api.ResponseRaw{Type: api.ErrorResponse, Code: status, Error: text})
}

// rewrite forwards a request and lets change alter LXD's response.
func rewrite(lxd http.Handler, w http.ResponseWriter, r *http.Request, change func(status int, body map[string]any) int) {
	recorder := httptest.NewRecorder()
	lxd.ServeHTTP(recorder, r)
	var body map[string]any
	if err := json.NewDecoder(recorder.Body).Decode(&body); err != nil {
		cut()
	}
	status := change(recorder.Code, body)
	var changed bytes.Buffer
	if err := json.NewEncoder(&changed).Encode(body); err != nil {
		cut()
	}
	for key, values := range recorder.Header() {
		w.Header()[key] = values
	}
	w.Header().Set("Content-Length", strconv.Itoa(changed.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(changed.Bytes())
}
