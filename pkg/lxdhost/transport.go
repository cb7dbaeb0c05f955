// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

const (
	dialTimeout = 10 * time.Second
	// idleTimeout is how long a connection is kept for the next call.
	idleTimeout = 30 * time.Second
	// maxResponse bounds a response, in bytes: LXD's client reads it whole. An instance is about 5 kB in a list.
	maxResponse = 16 << 20
	// maxProbe bounds the response to a probe, and probeTimeout the time for it: who did not respond before gets
	// little.
	maxProbe     = 1 << 20
	probeTimeout = 10 * time.Second
	// sendWithin is how long what was read of a thing is taken for true: nothing is sent to change it afterwards.
	// Another manager leads later than that.
	sendWithin = 15 * time.Second
	// slow is from when on a request without a response counts for the circuit: one that fails at once costs no time.
	slow = 3 * time.Second
)

// memory bounds what the responses of all LXDs take together; LXD's client needs several times as much to decode them.
// A host with a hundred VMs needs none of it.
var memory = guard.NewBudget(48<<20, 512<<10)

var requestsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "capmaas_lxd_requests_total",
	Help: "Requests to LXD hosts by operation (connect, read, create, start, stop, find, delete, image) and HTTP status " +
		"(0: no response).",
}, []string{"operation", "code"})

// Collectors returns the Prometheus metrics of all hosts.
func Collectors() []prometheus.Collector { return []prometheus.Collector{requestsTotal} }

// errRedirect is for a response that leads elsewhere: LXD sends none, and the certificate is pinned for this address.
var errRedirect = errors.New("LXD redirects, and redirects are not followed")

// turn is a method's calls, for the transport.
type turn struct {
	// operation is for the metrics.
	operation string
	// before is when it is too late to send what changes something: from the beginning, until LXD is asked what is
	// there.
	before time.Time
	within time.Duration
	// begin is when it is too late to ask for the first time what is there, in order to change it, and end when it is
	// too late to change anything; the zero time is no limit.
	begin, end time.Time
}

type turnKey struct{}

// asks allows changes, for a while, of what LXD is asked for now.
func (t *turn) asks() error {
	if !t.begin.IsZero() && guard.Passed(t.begin) {
		return guard.ErrTooLate
	}
	t.begin, t.before = time.Time{}, time.Now().Add(t.within)
	if !t.end.IsZero() && t.end.Before(t.before) {
		t.before = t.end
	}
	return nil
}

func newCircuit() *guard.Circuit { return guard.NewCircuit("LXD", func(bool) {}) }

// transport gives LXD's client our own connections: it would accept any server whose certificate a public authority
// signed, keep no connection, and not stop dialling when the context ends; it would read responses without end, and
// follow redirects.
type transport struct {
	inner   *http.Transport
	circuit *guard.Circuit
	slow    time.Duration
}

// dialer makes connections; see Options.Dial.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

func newTransport(dial dialer, secure *tls.Config, circuit *guard.Circuit) transport {
	var proxy func(*http.Request) (*url.URL, error)
	if dial == nil {
		dial, proxy = new(net.Dialer).DialContext, http.ProxyFromEnvironment
	}
	return transport{circuit: circuit, slow: slow, inner: &http.Transport{
		Proxy: proxy, TLSClientConfig: secure, TLSHandshakeTimeout: dialTimeout, IdleConnTimeout: idleTimeout,
		MaxResponseHeaderBytes: guard.MaxHeader,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			return dial(ctx, network, address)
		},
	}}
}

// Transport is for LXD's client.
func (t transport) Transport() *http.Transport { return t.inner }

// RoundTrip sends a request, unless LXD has not responded for long, and reads the response.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	isRead := r.Method == http.MethodGet
	probe, refused := t.circuit.Enter(isRead && !takesLong(r))
	if refused != nil {
		return nil, &Error{Kind: KindUnreachable, Problem: refused.Message, unsent: true}
	}
	sent, ended, why := time.Now(), guard.Unclear, ""
	defer func() { t.circuit.Leave(probe, sent, ended, why) }() // Also after a panic.
	limit := int64(maxResponse)
	if probe {
		ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
		defer cancel()
		r, limit = r.WithContext(ctx), maxProbe
	}
	response, err := t.exchange(r, isRead, limit)
	if err == nil {
		ended = guard.Responded
		return response, nil
	}
	costs := errors.Is(err, guard.ErrTooLong) || (time.Since(sent) >= t.slow && !takesLong(r))
	if costs && isSilence(r.Context(), err) {
		ended, why = guard.Silent, text.OneLine(classify(err).Problem, maxMessage)
	}
	if probe && ended == guard.Silent {
		err = &Error{Kind: KindUnreachable, Problem: t.circuit.Message(), cause: err} // The same from probe to probe.
	}
	return nil, err
}

// takesLong reports whether LXD responds late to a request although it is well: it waits for an operation, or examines
// all devices.
func takesLong(r *http.Request) bool {
	last := path.Base(r.URL.Path)
	return last == "wait" || last == "resources"
}

// isSilence reports whether an error means that LXD did not respond; not if the caller left, or sent nothing.
func isSilence(ctx context.Context, err error) bool {
	return !errors.Is(ctx.Err(), context.Canceled) && !errors.Is(err, guard.ErrTooLate) && !errors.Is(err, errPin)
}

// exchange sends a request and reads the response to its end, which is within a limit.
func (t transport) exchange(r *http.Request, isRead bool, limit int64) (*http.Response, error) {
	turn, _ := r.Context().Value(turnKey{}).(*turn)
	var before time.Time
	if !isRead {
		before = turn.before
	}
	response, err := guard.NewSending(before).RoundTrip(t.inner, r)
	status := 0
	if response != nil {
		status = response.StatusCode
	}
	requestsTotal.WithLabelValues(turn.operation, strconv.Itoa(status)).Inc()
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= 300 && response.StatusCode < 400 {
		return nil, errRedirect
	}
	content, release, err := memory.ReadAll(&guard.Body{ReadCloser: response.Body, Remaining: limit})
	if err != nil {
		return nil, err
	}
	response.Body = &decoded{Reader: bytes.NewReader(content), release: release}
	return response, nil
}

// decoded is a response that was read, until LXD's client has decoded it.
type decoded struct {
	io.Reader
	release func()
}

// Close gives its memory back.
func (d *decoded) Close() error {
	if d.release != nil {
		d.release()
		d.release = nil
	}
	return nil
}
