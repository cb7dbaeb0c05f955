// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"time"
)

const (
	// maxAnswer bounds an answer, in bytes. A machine is about 20 kB, and the longest lists are those of all of them.
	maxAnswer = 256 << 20
	// maxRetryAfter bounds what is believed of how long MAAS wants to be left alone.
	maxRetryAfter = time.Hour
)

// errTooLate is for a call that was not sent any more.
var errTooLate = errors.New("this process stood still between noting the call and sending it; the call was not sent")

type sendBeforeKey struct{}

// SendBefore answers a context with which no call is sent after the given time. It is for calls that are noted somewhere before: a process
// that was stopped in between, and woke up when another one had taken over and waited long enough, must not send them any more. Errors are
// of Kind Unavailable and not NotSent, so that the note stays: it may be the other's by then.
func SendBefore(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, sendBeforeKey{}, at)
}

var errTooLong = fmt.Errorf("the answer is longer than %d MiB", maxAnswer>>20)

// newTransport makes the connections of one client.
func newTransport(tlsConfig *tls.Config) *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = tlsConfig
	transport.MaxIdleConnsPerHost = keptConnections
	transport.MaxConnsPerHost = 2 * keptConnections
	return transport
}

// exchange is the round tripper of a single call. It puts right what gomaasapi does to requests: no context, connections
// closed after each request, an empty op where there is none, and sleeping (uninterruptible) when MAAS says Retry-After.
// It also keeps answers from taking all memory, or all time.
type exchange struct {
	ctx  context.Context // It lives exactly as long as the call; the library between takes none.
	base http.RoundTripper

	connected  bool // there was a connection to send the request on
	late       bool // it was too late to send the request
	status     int
	retryAfter time.Duration
}

// client does not follow redirects: they would make a GET of a POST, and send the key where nobody said that it belongs.
func (e *exchange) client() *http.Client {
	return &http.Client{Transport: e, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// RoundTrip sends the request with the call's context on a kept connection, and hides Retry-After from the library.
func (e *exchange) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(httptrace.WithClientTrace(e.ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { e.connected = true },
	}))
	request.Close = false
	if query := request.URL.Query(); query.Has("op") && query.Get("op") == "" {
		query.Del("op")
		request.URL.RawQuery = query.Encode()
	}
	if at, limited := e.ctx.Value(sendBeforeKey{}).(time.Time); limited && time.Now().After(at) {
		e.late = true
		return nil, errTooLate
	}
	response, err := e.base.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusSwitchingProtocols {
		// The connection would be ours from here on, and no timeout would end what is read from it.
		return nil, errors.Join(errors.New("MAAS wants to speak another protocol than HTTP"), response.Body.Close())
	}
	e.status = response.StatusCode
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.retryAfter = time.Duration(min(seconds, int(maxRetryAfter/time.Second))) * time.Second
	}
	response.Header.Del("Retry-After")
	response.Body = &boundedBody{ReadCloser: response.Body, left: maxAnswer}
	return response, nil
}

// boundedBody ends with errTooLong where the answer is longer than it may be.
type boundedBody struct {
	io.ReadCloser
	left int64
}

// Read reads no more than what is left of the bound.
func (b *boundedBody) Read(into []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.ReadCloser.Read(into[:min(int64(len(into)), b.left)])
	b.left -= int64(n)
	return n, err
}
