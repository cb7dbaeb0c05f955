// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

const (
	// maxRetryAfter bounds the Retry-After that is accepted from MAAS.
	maxRetryAfter = time.Hour
	// busyPause is how long to wait when MAAS is busy and sends no Retry-After.
	busyPause = 5 * time.Second
	// A connection of HTTP/2 that has been silent for pingAfter is asked whether it is alive, and closed if it does not
	// respond within pingTimeout: after a timeout alone, all calls would go on to use it.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
)

// errSentTwice is for a call that MAAS got twice, of which the second response is worthless.
var errSentTwice = errors.New("the connection broke after MAAS got the call, and MAAS accepts a signature only once")

// ProxyVariable is the environment variable with the URL of the proxy through which MAAS is reached, and nothing else:
// HTTPS_PROXY and HTTP_PROXY are for Kubernetes and LXD, too. Without it, these two and NO_PROXY count.
const ProxyVariable = "MAAS_PROXY"

// proxy returns which proxy a request to MAAS goes through. Its error is a *ConfigError.
func proxy() (func(*http.Request) (*url.URL, error), error) {
	text := os.Getenv(ProxyVariable)
	if text == "" {
		return http.ProxyFromEnvironment, nil
	}
	through, err := url.Parse(text)
	if err != nil || through.Host == "" || (through.Scheme != "http" && through.Scheme != "https") {
		// The text may have a password.
		return nil, &ConfigError{"proxy", "the environment variable " + ProxyVariable + " (chart: maas.proxy) is not the " +
			"URL of a proxy: set it to http://HOST:PORT, or https://HOST:PORT"}
	}
	return http.ProxyURL(through), nil
}

// newTransport makes the connections of one client.
func newTransport(tlsConfig *tls.Config) *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = tlsConfig
	transport.MaxIdleConnsPerHost = keptConnections
	transport.MaxResponseHeaderBytes = guard.MaxHeader
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	return transport
}

// exchange is the round tripper of a single call. It corrects what gomaasapi does to requests: no context, connections
// closed after each request, an empty op where there is none, and an uninterruptible sleep when MAAS sends Retry-After.
// It also bounds the memory and time that a response takes: gomaasapi would read it whole.
type exchange struct {
	ctx     context.Context // It lives exactly as long as the call; the library in between accepts no context.
	base    http.RoundTripper
	out     any // the response is decoded into it, or nil
	sending *guard.Sending
	// content is sent instead of the form, or nil. The signature does not cover it.
	content []byte

	status     int
	busy       bool // MAAS gave up the request because of concurrent ones
	retryAfter time.Duration
	broken     error // why the response could not be decoded
}

// client does not follow redirects: they would turn a POST into a GET, and send the key to a server that nobody
// configured.
func (e *exchange) client() *http.Client {
	return &http.Client{Transport: e, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// RoundTrip sends the request with the call's context on a kept connection, decodes the response, and hides Retry-After
// from the library.
func (e *exchange) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(e.ctx)
	request.Close = false
	if query := request.URL.Query(); query.Has("op") && query.Get("op") == "" {
		query.Del("op")
		request.URL.RawQuery = query.Encode()
	}
	if e.content != nil {
		e.replaceBody(request)
	}
	response, err := e.sending.RoundTrip(e.base, request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusUnauthorized && e.sending.IsRepeated() {
		// Go sends a GET again when a kept connection breaks, with the same OAuth nonce: the key is not to blame.
		return nil, errors.Join(errSentTwice, response.Body.Close())
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
	response.Body = &guard.Body{ReadCloser: response.Body, Remaining: maxObject}
	return response, nil
}

// replaceBody sends the content, which the library can't: it knows forms only.
func (e *exchange) replaceBody(request *http.Request) {
	request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(e.content)), nil }
	request.Body, _ = request.GetBody()
	request.ContentLength = int64(len(e.content))
	request.Header.Set("Content-Type", "application/octet-stream")
}
