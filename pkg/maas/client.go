// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/juju/gomaasapi/v2"
	"golang.org/x/time/rate"
)

const (
	// callTimeout bounds ordinary calls.
	callTimeout = 30 * time.Second
	// slowCallTimeout bounds calls that MAAS answers only after a rack controller did something. It waits up to 120 s for
	// a VM to be composed.
	slowCallTimeout = 150 * time.Second
	// callsPerSecond and callBurst are what one identity may ask of a region.
	callsPerSecond = 20
	callBurst      = 40
	// keptConnections is how many idle connections are kept open to a region.
	keptConnections = 8
)

// Client talks to one MAAS with one identity. It is safe for concurrent use.
type Client struct {
	api     *gomaasapi.Client
	secret  string // of the key: it must not come back in what MAAS says
	base    http.RoundTripper
	limiter *rate.Limiter
	circuit *circuit
}

// NewClient makes a client. It does not talk to MAAS. Errors are of type *ConfigError, possibly joined.
func NewClient(config Config) (*Client, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	apiURL, err := config.apiURL()
	if err != nil {
		return nil, err
	}
	tlsConfig, err := config.tlsConfig()
	if err != nil {
		return nil, err
	}
	api, err := gomaasapi.NewAuthenticatedClient(apiURL.String(), config.APIKey)
	if err != nil {
		// The library's text would show the key.
		return nil, &ConfigError{"apiKey", "it can't be used to sign requests"}
	}
	return &Client{
		api: api, secret: config.secret(), base: newTransport(tlsConfig), limiter: rate.NewLimiter(callsPerSecond, callBurst),
		circuit: newCircuit(apiURL.String()),
	}, nil
}

// Close ends the client's connections, and what its metrics say of it. It is for clients that others take the place of.
func (c *Client) Close() {
	(&http.Client{Transport: c.base}).CloseIdleConnections()
	c.circuit.end()
}

// NextProbe tells while MAAS does not answer, so that calls are refused, how long it is until one is sent again to see whether MAAS is
// back; open is false while calls are sent.
func (c *Client) NextProbe() (left time.Duration, open bool) { return c.circuit.due() }

// Turned tells one who waits that MAAS stopped answering, or answers again.
func (c *Client) Turned() <-chan struct{} { return c.circuit.turned }

// call is one request to MAAS.
type call struct {
	method   string
	endpoint string     // pattern for metrics and errors, for example machines/{id}/
	args     []string   // what stands for the pattern's {...}, in order: ids, which need no escaping
	op       string     // MAAS's op, or ""
	query    url.Values // for DELETE
	params   url.Values // GET: the query; POST and PUT: the form
	slow     bool       // MAAS answers only after work was done
}

// path fills the endpoint's placeholders.
func (c call) path() string {
	path := c.endpoint
	for _, arg := range c.args {
		start, end := strings.Index(path, "{"), strings.Index(path, "}")
		path = path[:start] + arg + path[end+1:]
	}
	return path
}

// do sends a call and decodes its answer into out, unless out is nil. Errors are of type *Error.
func (c *Client) do(ctx context.Context, call call, out any) error {
	if err := c.try(ctx, call, out); err != nil {
		return err // Not a nil *Error.
	}
	return nil
}

// try sends a call unless MAAS is known not to answer.
func (c *Client) try(caller context.Context, call call, out any) *Error {
	probe, refused := c.circuit.enter(call)
	if refused != nil {
		return refused
	}
	sent, ended, why := time.Now(), unclear, ""
	defer func() { c.circuit.leave(probe, sent, ended, why) }() // Also after a panic: a probe that never ends would be the last one.
	timeout := callTimeout
	if call.slow {
		timeout = slowCallTimeout
	}
	ctx, cancel := context.WithTimeout(caller, timeout)
	defer cancel()
	if err := c.limiter.Wait(ctx); err != nil {
		late := call.fail(0, fmt.Sprintf("waiting for the rate limit: %v", err), err)
		late.NotSent = true
		return late.presentable(nil)
	}
	sent = time.Now()
	err := c.attempt(ctx, call, out)
	if ended = call.sign(caller, err); err == nil {
		return nil
	}
	err = err.presentable(append(call.secrets(), c.secret))
	why = err.Message
	if probe && ended == silent {
		err.Message = c.circuit.says()
	}
	return err
}

// attempt sends a call and decodes its answer into out.
func (c *Client) attempt(ctx context.Context, call call, out any) *Error {
	exchange := &exchange{ctx: ctx, base: c.base}
	start := time.Now()
	body, err := c.send(exchange, call)
	observe(call, exchange.status, time.Since(start))
	if err != nil {
		return call.wrap(err, exchange)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return call.fail(exchange.status, "the answer can't be read: "+err.Error(), err)
	}
	if !complete(out) {
		return call.fail(exchange.status, "the answer lacks what it should have", nil)
	}
	return nil
}

// secrets are what the call sends that nobody else may see.
func (c call) secrets() []string {
	return append(slices.Clone(c.params["user_data"]), c.params["key"]...)
}

// send hands the call to gomaasapi, which signs it.
func (c *Client) send(exchange *exchange, call call) ([]byte, error) {
	api := gomaasapi.Client{APIURL: c.api.APIURL, Signer: c.api.Signer, HTTPClient: exchange.client()}
	uri := &url.URL{Path: call.path(), RawQuery: call.query.Encode()}
	switch call.method {
	case http.MethodGet:
		return api.Get(uri, call.op, call.params)
	case http.MethodPost:
		return api.Post(uri, call.op, call.params, nil)
	case http.MethodPut:
		return api.Put(uri, call.params, nil)
	default:
		return nil, api.Delete(uri)
	}
}

func (c call) fail(status int, message string, cause error) *Error {
	return &Error{
		Kind: Unavailable, Method: c.method, Endpoint: c.endpoint, Op: c.op,
		Status: status, Message: message, cause: cause,
	}
}

// wrap makes an *Error of what gomaasapi returned.
func (c call) wrap(err error, exchange *exchange) *Error {
	server, ok := gomaasapi.GetServerError(err)
	if !ok {
		broke := c.fail(exchange.status, transportMessage(err), err)
		broke.NotSent = !exchange.connected && !exchange.late && exchange.status == 0
		return broke
	}
	message, fields := describe(server.BodyMessage)
	if server.StatusCode >= 300 && server.StatusCode < 400 {
		message = redirectMessage(server.Header.Get("Location"))
	}
	return &Error{
		Kind: kindOf(server.StatusCode), Method: c.method, Endpoint: c.endpoint, Op: c.op,
		Status: server.StatusCode, Message: message, Fields: fields, RetryAfter: exchange.retryAfter,
	}
}

// redirectMessage names where MAAS sends us, without what may be secret there.
func redirectMessage(location string) string {
	target, err := url.Parse(location)
	if err != nil {
		target = &url.URL{}
	}
	where := (&url.URL{Scheme: target.Scheme, Host: target.Host, Path: target.Path}).String()
	return fmt.Sprintf("MAAS redirects to %q, and redirects are not followed: set the endpoint to where MAAS itself is", where)
}

// transportMessage leaves out what differs from try to try (ports, query strings), so that conditions don't flap.
func transportMessage(err error) string {
	var op *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "MAAS did not answer in time"
	case errors.Is(err, errTooLong):
		return errTooLong.Error()
	case errors.As(err, &op) && op.Op == "dial" && op.Addr == nil:
		return fmt.Sprintf("can't connect to MAAS: %v", op.Err) // Its name can't be resolved.
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Sprintf("can't connect to MAAS at %s: %v", op.Addr, op.Err)
	}
	var u *url.Error
	if errors.As(err, &u) && !errors.As(err, &op) {
		return u.Err.Error()
	}
	return "the connection to MAAS broke"
}
