// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"time"
)

const (
	// maxRetryAfter bounds the Retry-After that is accepted from MAAS.
	maxRetryAfter = time.Hour
	// busyPause is how long to wait when MAAS is busy and sends no Retry-After.
	busyPause = 5 * time.Second
)

// errTooLate is for a call whose send deadline has passed.
var errTooLate = errors.New("this process was paused between recording the call and sending it; the call was not sent")

// errSentTwice is for a call that MAAS got twice, of which the second response is worthless.
var errSentTwice = errors.New("the connection broke after MAAS got the call, and MAAS accepts a signature only once")

// newTransport makes the connections of one client.
func newTransport(tlsConfig *tls.Config) *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = tlsConfig
	transport.MaxIdleConnsPerHost = keptConnections
	return transport
}

// exchange is the round tripper of a single call. It corrects what gomaasapi does to requests: no context, connections
// closed after each request, an empty op where there is none, and an uninterruptible sleep when MAAS sends Retry-After.
// It also bounds the memory and time that a response takes: gomaasapi would read it whole.
type exchange struct {
	ctx    context.Context // It lives exactly as long as the call; the library in between accepts no context.
	cancel context.CancelCauseFunc
	base   http.RoundTripper
	out    any // the response is decoded into it, or nil
	permit Permit
	// content is sent instead of the form, or nil. The signature does not cover it.
	content []byte

	status     int
	busy       bool // MAAS gave up the request because of concurrent ones
	retryAfter time.Duration
	broken     error // why the response could not be decoded

	mu        sync.Mutex
	connected bool // there was a connection to send the request on
	again     bool // there was another one, because the first broke
	late      bool // the send deadline had passed
}

// client does not follow redirects: they would turn a POST into a GET, and send the key to a server that nobody
// configured.
func (e *exchange) client() *http.Client {
	return &http.Client{Transport: e, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// RoundTrip sends the request with the call's context on a kept connection, decodes the response, and hides Retry-After
// from the library.
func (e *exchange) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(httptrace.WithClientTrace(e.ctx, &httptrace.ClientTrace{GotConn: e.gotConn}))
	request.Close = false
	if query := request.URL.Query(); query.Has("op") && query.Get("op") == "" {
		query.Del("op")
		request.URL.RawQuery = query.Encode()
	}
	if e.content != nil {
		e.replaceBody(request)
	}
	if at, limited := e.permit.SendBefore(); limited {
		if time.Now().After(at) {
			e.giveUp()
			return nil, errTooLate
		}
		defer time.AfterFunc(time.Until(at), e.giveUp).Stop() // Connecting takes time, too.
	}
	response, err := e.base.RoundTrip(request)
	if err != nil {
		if _, late := e.sent(); late {
			err = errTooLate
		}
		return nil, err
	}
	if response.StatusCode == http.StatusUnauthorized && e.sentAgain() {
		// Go sends a GET again when a kept connection breaks, with the same OAuth nonce: the key is not to blame.
		return nil, errors.Join(errSentTwice, response.Body.Close())
	}
	if response.StatusCode == http.StatusSwitchingProtocols {
		// The connection would be ours from here on, and no timeout would bound reading from it.
		return nil, errors.Join(errors.New("MAAS wants to speak another protocol than HTTP"), response.Body.Close())
	}
	e.status = response.StatusCode
	wait := response.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(wait); err == nil && seconds > 0 {
		e.retryAfter = time.Duration(min(seconds, int(maxRetryAfter/time.Second))) * time.Second
	}
	e.busy = response.StatusCode == http.StatusConflict && wait != ""
	response.Header.Del("Retry-After")
	if e.out != nil && e.status >= 200 && e.status < 300 {
		e.broken = decode(response.Body, e.out)
		_ = response.Body.Close() // It was read to the end, or is of no use.
		response.Body = http.NoBody
	}
	response.Body = &boundedBody{ReadCloser: response.Body, left: maxObject}
	return response, nil
}

// replaceBody sends the content, which the library can't: it knows forms only.
func (e *exchange) replaceBody(request *http.Request) {
	request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(e.content)), nil }
	request.Body, _ = request.GetBody()
	request.ContentLength = int64(len(e.content))
	request.Header.Set("Content-Type", "application/octet-stream")
}

// giveUp prevents the request from being sent, unless it is already on its way.
func (e *exchange) giveUp() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.connected {
		e.late = true
		e.cancel(errTooLate)
	}
}

// gotConn is called before anything is written to a connection, and again if a kept one turned out to be closed.
func (e *exchange) gotConn(info httptrace.GotConnInfo) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at, limited := e.permit.SendBefore(); limited && time.Now().After(at) {
		e.late = true
		e.cancel(errTooLate)
	}
	if !e.late {
		e.again, e.connected = e.connected, true
		return
	}
	// HTTP/2 checks the context again before it writes. HTTP/1 may not; there, no other request has the connection.
	if secure, ok := info.Conn.(*tls.Conn); !ok || secure.ConnectionState().NegotiatedProtocol != "h2" {
		_ = info.Conn.Close()
	}
}

// sent reports whether there was a connection for the request, and whether it was too late to send it.
func (e *exchange) sent() (connected, late bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.connected, e.late
}

// sentAgain reports whether the request may have been sent twice.
func (e *exchange) sentAgain() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.again
}
