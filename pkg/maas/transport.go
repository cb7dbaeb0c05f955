// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"crypto/tls"
	"net/http"
	"strconv"
	"time"
)

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
type exchange struct {
	ctx  context.Context // It lives exactly as long as the call; the library between takes none.
	base http.RoundTripper

	status     int
	retryAfter time.Duration
}

// RoundTrip sends the request with the call's context on a kept connection, and hides Retry-After from the library.
func (e *exchange) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(e.ctx)
	request.Close = false
	if query := request.URL.Query(); query.Has("op") && query.Get("op") == "" {
		query.Del("op")
		request.URL.RawQuery = query.Encode()
	}
	response, err := e.base.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	e.status = response.StatusCode
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.retryAfter = time.Duration(seconds) * time.Second
	}
	response.Header.Del("Retry-After")
	return response, nil
}
