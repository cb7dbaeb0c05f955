// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"time"
)

const (
	// maxRetryAfter bounds what is believed of how long MAAS wants no calls.
	maxRetryAfter = time.Hour
	// busyPause is when to try again what MAAS was too busy for, where it does not say so.
	busyPause = 5 * time.Second
)

// errTooLate is for a call that was not sent any more.
var errTooLate = errors.New("this process stood still between noting the call and sending it; the call was not sent")

// newTransport makes the connections of one client.
func newTransport(tlsConfig *tls.Config) *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = tlsConfig
	transport.MaxIdleConnsPerHost = keptConnections
	return transport
}

// exchange is the round tripper of a single call. It puts right what gomaasapi does to requests: no context, connections
// closed after each request, an empty op where there is none, and sleeping (uninterruptible) when MAAS says Retry-After.
// It also keeps answers from taking all memory, or all time: gomaasapi would read them as a whole.
type exchange struct {
	ctx    context.Context // It lives exactly as long as the call; the library between takes none.
	cancel context.CancelCauseFunc
	base   http.RoundTripper
	out    any // what the answer is decoded into, or nil
	permit Permit

	status     int
	busy       bool // MAAS gave the request up because of others
	retryAfter time.Duration
	broken     error // why the answer could not be decoded

	mu        sync.Mutex
	connected bool // there was a connection to send the request on
	late      bool // it was too late to send the request
}

// client does not follow redirects: they would make a GET of a POST, and send the key to a server that no one configured.
func (e *exchange) client() *http.Client {
	return &http.Client{Transport: e, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// RoundTrip sends the request with the call's context on a kept connection, decodes the answer, and hides Retry-After from the library.
func (e *exchange) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(httptrace.WithClientTrace(e.ctx, &httptrace.ClientTrace{GotConn: e.gotConn}))
	request.Close = false
	if query := request.URL.Query(); query.Has("op") && query.Get("op") == "" {
		query.Del("op")
		request.URL.RawQuery = query.Encode()
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
	if response.StatusCode == http.StatusSwitchingProtocols {
		// The connection would be ours from here on, and no timeout would end what is read from it.
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
		_ = response.Body.Close() // All of it was read, or it is of no use.
		response.Body = http.NoBody
	}
	response.Body = &boundedBody{ReadCloser: response.Body, left: maxObject}
	return response, nil
}

// giveUp sees to it that the request is not sent any more, unless it is on its way.
func (e *exchange) giveUp() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.connected {
		e.late = true
		e.cancel(errTooLate)
	}
}

// gotConn is called before anything is written to a connection, and again where a kept one turned out to be closed.
func (e *exchange) gotConn(info httptrace.GotConnInfo) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at, limited := e.permit.SendBefore(); limited && time.Now().After(at) {
		e.late = true
		e.cancel(errTooLate)
	}
	if !e.late {
		e.connected = true
		return
	}
	// HTTP/2 looks at the context again before it writes. HTTP/1 may not; there, no other request has the connection.
	if secure, ok := info.Conn.(*tls.Conn); !ok || secure.ConnectionState().NegotiatedProtocol != "h2" {
		_ = info.Conn.Close()
	}
}

// sent reports how far the request came: whether there was a connection for it, and whether it was too late.
func (e *exchange) sent() (connected, late bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.connected, e.late
}
