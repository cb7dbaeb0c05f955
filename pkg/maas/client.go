// SPDX-License-Identifier: Apache-2.0

// Package maas is a typed client of MAAS's REST API 2.0.
//
// It signs and sends through gomaasapi, and adds what that lacks: contexts, kept-alive connections, a timeout for each
// call, a rate limit, metrics, and typed errors. Each method names the endpoint it calls. "For administrators" is so up
// to MAAS 3.7; from 3.8 on, it is for users with the entitlement that package rights names.
package maas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/juju/gomaasapi/v2"
	"golang.org/x/time/rate"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

const (
	// callTimeout bounds ordinary calls.
	callTimeout = 30 * time.Second
	// slowCallTimeout bounds calls to which MAAS responds only after a rack controller has done something. MAAS waits
	// up to 120 s for a VM to be composed.
	slowCallTimeout = 150 * time.Second
	// listTimeout bounds lists of machines, which have no pages: a MAAS that responds to everything else at once may
	// take long for them.
	listTimeout = 60 * time.Second
	// waitTimeout bounds how long a call waits for other calls of its client.
	waitTimeout = 30 * time.Second
	// callsPerSecond and callBurst limit the calls of one identity to one region.
	callsPerSecond = 20
	callBurst      = 40
	// maxUnderWay is how many requests of one identity may be in flight, and keptConnections how many idle connections
	// are kept.
	maxUnderWay     = 16
	keptConnections = 8
)

// Client talks to one MAAS with one identity. It is safe for concurrent use.
type Client struct {
	api      *gomaasapi.Client
	server   guard.Server
	secret   string // of the key: it must not appear in errors
	base     http.RoundTripper
	underWay chan struct{} // holds one item for each request in flight
	limiter  *rate.Limiter
	circuit  *circuit
	checking atomic.Bool // a call checks whether MAAS responds to others
}

// NewClient makes a client. It sends nothing to MAAS. Errors are of type *ConfigError, possibly joined.
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
	transport := newTransport(tlsConfig)
	if transport.Proxy, err = proxy(); err != nil {
		return nil, err
	}
	api, err := gomaasapi.NewAuthenticatedClient(apiURL.String(), config.APIKey)
	if err != nil {
		// The library's text would show the key.
		return nil, &ConfigError{"apiKey", "it can't be used to sign requests"}
	}
	return &Client{
		api: api, server: config.Server(), base: transport, underWay: make(chan struct{}, maxUnderWay),
		secret:  strings.Split(config.APIKey, ":")[2], // A valid key has three parts.
		limiter: rate.NewLimiter(callsPerSecond, callBurst), circuit: newCircuit(apiURL.String()),
	}, nil
}

// Server returns the MAAS that the client talks to.
func (c *Client) Server() guard.Server { return c.server }

// Close closes the client's connections and removes its metrics. Call it when another client replaces this one.
func (c *Client) Close() {
	(&http.Client{Transport: c.base}).CloseIdleConnections()
	c.circuit.end()
}

// NextProbe returns the time until the next probe while MAAS does not respond and calls are refused. open is false
// while calls are sent.
func (c *Client) NextProbe() (left time.Duration, open bool) { return c.circuit.Due() }

// StateChanged returns a channel that receives when MAAS stops responding, or responds again.
func (c *Client) StateChanged() <-chan struct{} { return c.circuit.StateChanged() }

// call is one request to MAAS.
type call struct {
	method   string
	endpoint string     // pattern for metrics and errors, for example machines/{id}/
	path     string     // the endpoint with its values
	op       string     // MAAS's op, or ""
	params   url.Values // GET: the query; POST and PUT: the form
	content  []byte     // PUT: the body, instead of a form
	slow     bool       // MAAS responds only after it did the work
	list     bool       // a list of machines
	permit   Permit     // needed by calls that change MAAS
}

// on begins a call. values are those of the endpoint's {...}, in order: names and numbers, which need no escaping.
func on(endpoint string, values ...any) call {
	path := endpoint
	for _, value := range values {
		start, end := strings.Index(path, "{"), strings.Index(path, "}")
		path = path[:start] + fmt.Sprint(value) + path[end+1:]
	}
	return call{endpoint: endpoint, path: path}
}

func (c call) get() call { return c.query("", nil) }

// query is a GET with an op or parameters.
func (c call) query(op string, params url.Values) call {
	c.method, c.op, c.params = http.MethodGet, op, params
	return c
}

func (c call) post(permit Permit, op string, form url.Values) call {
	c.method, c.permit, c.op, c.params = http.MethodPost, permit, op, form
	return c
}

func (c call) put(permit Permit, form url.Values) call {
	c.method, c.permit, c.params = http.MethodPut, permit, form
	return c
}

func (c call) remove(permit Permit) call {
	c.method, c.permit = http.MethodDelete, permit
	return c
}

// slowly is for what MAAS responds to only after it did the work.
func (c call) slowly() call {
	c.slow = true
	return c
}

// asList is for lists of machines.
func (c call) asList() call {
	c.list = true
	return c
}

// timeout returns how long MAAS may take for the call.
func (c call) timeout() time.Duration {
	switch {
	case c.slow:
		return slowCallTimeout
	case c.list:
		return listTimeout
	}
	return callTimeout
}

// do sends a call and decodes the response into out, unless out is nil. Errors are of type *Error.
func (c *Client) do(ctx context.Context, call call, out any) error {
	if call.method != http.MethodGet && !call.permit.IsGiven() {
		refused := call.fail(0, errNoPermit.Error(), errNoPermit)
		refused.NotSent = true
		return refused
	}
	if call.list && c.circuit.WantsProbe() {
		_, _ = c.Version(ctx) // A list that takes too long would not show whether MAAS is back. This is the cheapest call.
	}
	probe, refused := c.circuit.enter(call)
	if refused != nil {
		return refused
	}
	defer guard.Idle(ctx)()
	if err := c.try(ctx, call, out, probe); err != nil {
		return err // Not a nil *Error.
	}
	return nil
}

// ask sends a call, and returns the decoded response.
func ask[T any](ctx context.Context, c *Client, call call) (out T, err error) {
	err = c.do(ctx, call, &out)
	return out, err
}

// askFor is ask for a pointer, which is never nil.
func askFor[T any](ctx context.Context, c *Client, call call) (*T, error) {
	out := new(T)
	return out, c.do(ctx, call, out)
}

// try sends a call that the circuit has let through.
func (c *Client) try(caller context.Context, call call, out any, probe bool) *Error {
	sent, ended, why, release := time.Now(), guard.Unclear, "", func() {}
	defer func() { // Also after a panic: otherwise a probe would never end, and no other one would be sent.
		c.circuit.Leave(probe, sent, ended, why)
		release() // Only now: whoever waits for the release must see how this call ended.
	}()
	err := c.wait(caller, call)
	if err != nil {
		return err.presentable(nil)
	}
	release = sync.OnceFunc(func() { <-c.underWay })
	if !probe { // The circuit may have opened while this call waited.
		if probe, err = c.circuit.enter(call); err != nil {
			return err
		}
	}
	sent = time.Now()
	err = c.attempt(caller, call, out)
	if ended = call.outcome(caller, err); err == nil {
		c.circuit.note(nil)
		return nil
	}
	if ended == guard.Silent && !probe && call.mayFailAlone(err) {
		release()
		ended = c.outcomeAmongOthers(caller)
	}
	err = err.presentable(append(call.secrets(), c.secret)).steady()
	c.circuit.note(err) // Others read it from now on.
	why = err.Message
	if probe && ended == guard.Silent && err.Kind != Untrusted {
		err.Message = c.circuit.Message()
	}
	return err
}

// wait returns when the limits of requests in flight and of requests per second allow the call. The call then counts as
// in flight.
func (c *Client) wait(caller context.Context, call call) *Error {
	ctx, cancel := context.WithTimeout(caller, waitTimeout)
	defer cancel()
	if at, limited := call.permit.SendBefore(); limited {
		ctx, cancel = context.WithDeadlineCause(ctx, at, guard.ErrTooLate)
		defer cancel()
	}
	select {
	case c.underWay <- struct{}{}:
	case <-ctx.Done():
		return call.notSent(ctx, ctx.Err())
	}
	if err := c.limiter.Wait(ctx); err != nil {
		<-c.underWay
		return call.notSent(ctx, err)
	}
	return nil
}

// notSent returns the error of a call that waited until its context ended.
func (c call) notSent(ctx context.Context, err error) *Error {
	if errors.Is(context.Cause(ctx), guard.ErrTooLate) {
		return c.fail(0, guard.ErrTooLate.Error(), guard.ErrTooLate)
	}
	late := c.fail(0, fmt.Sprintf("too many other calls to MAAS are under way: %v", err), err)
	late.NotSent = true
	return late
}

// attempt sends a call and decodes the response into out.
func (c *Client) attempt(caller context.Context, call call, out any) *Error {
	if call.permit.IsGiven() { // Its outcome matters to whoever stops this process.
		lasting, end := guard.Linger(caller)
		defer end()
		caller = lasting
	}
	ctx, cancel := context.WithTimeout(caller, call.timeout())
	defer cancel()
	before, _ := call.permit.SendBefore()
	exchange := &exchange{ctx: ctx, base: c.base, out: out, sending: guard.NewSending(before), content: call.content}
	start := time.Now()
	err := c.send(exchange, call)
	observe(call, exchange.status, time.Since(start))
	switch {
	case err != nil:
		return call.wrap(err, exchange)
	case errors.Is(exchange.broken, errFormat):
		return call.fail(exchange.status, exchange.broken.Error(), exchange.broken)
	case exchange.broken != nil:
		return call.fail(exchange.status, transportMessage(exchange.broken), exchange.broken)
	case !complete(out):
		return call.fail(exchange.status, "the response lacks required values", nil)
	}
	return nil
}

// secrets returns the values in the call that no other user may see.
func (c call) secrets() []string {
	return slices.Concat(c.params["user_data"], c.params["key"])
}

// send hands the call to gomaasapi, which signs it. Its result is not used: the exchange decodes the response.
func (c *Client) send(exchange *exchange, call call) error {
	api := gomaasapi.Client{APIURL: c.api.APIURL, Signer: c.api.Signer, HTTPClient: exchange.client()}
	uri := &url.URL{Path: call.path}
	var err error
	switch call.method {
	case http.MethodGet:
		_, err = api.Get(uri, call.op, call.params)
	case http.MethodPost:
		_, err = api.Post(uri, call.op, call.params, nil)
	case http.MethodPut:
		_, err = api.Put(uri, call.params, nil)
	default:
		err = api.Delete(uri)
	}
	return err
}

func (c call) fail(status int, message string, cause error) *Error {
	return &Error{
		Kind: Unavailable, Method: c.method, Endpoint: c.endpoint, Op: c.op,
		Status: status, Message: message, cause: cause,
	}
}

// wrap makes an *Error from an error of gomaasapi.
func (c call) wrap(err error, exchange *exchange) *Error {
	server, ok := gomaasapi.GetServerError(err)
	if !ok {
		broke := c.fail(exchange.status, transportMessage(err), err)
		if isUntrusted(err) {
			broke.Kind = Untrusted
			broke.Message, _ = Explain(err)
		}
		broke.NotSent = !exchange.sending.IsConnected() && !exchange.sending.IsLate() && exchange.status == 0
		return broke
	}
	message, fields := describe(server.BodyMessage)
	if exchange.busy || server.StatusCode == http.StatusConflict && isPage(server.BodyMessage) {
		busy := c.fail(server.StatusCode, "MAAS is busy with other requests", nil)
		busy.Kind, busy.RetryAfter = Busy, cmp.Or(exchange.retryAfter, busyPause)
		return busy
	}
	if server.StatusCode >= 300 && server.StatusCode < 400 {
		message = redirectMessage(server.Header.Get("Location"))
	}
	kind := kindOfError(server.StatusCode, message)
	if isAll := c.list && !strings.Contains(c.endpoint, "{"); kind == NotFound && (isAll || isPage(server.BodyMessage)) {
		kind = Unavailable // MAAS says it with a text, and has all lists: this is the response of something before it.
	}
	return &Error{
		Kind: kind, Method: c.method, Endpoint: c.endpoint, Op: c.op,
		Status: server.StatusCode, Message: message, Fields: fields, RetryAfter: exchange.retryAfter,
		Answered: triesNoMore(message),
	}
}

// redirectMessage names the target of a redirect, without parts that may be secret.
func redirectMessage(location string) string {
	target, err := url.Parse(location)
	if err != nil {
		target = &url.URL{}
	}
	where := (&url.URL{Scheme: target.Scheme, Host: target.Host, Path: target.Path}).String()
	return fmt.Sprintf("MAAS redirects to %q, and redirects are not followed: set the endpoint to where MAAS itself is",
		where)
}

// transportMessage leaves out what does not help, such as query strings.
func transportMessage(err error) string {
	var op *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "MAAS did not respond in time"
	case errors.Is(err, guard.ErrTooLong):
		return guard.ErrTooLong.Error()
	case errors.As(err, &op) && op.Op == "dial" && op.Addr == nil:
		return fmt.Sprintf("can't connect to MAAS: %v", op.Err) // Its name can't be resolved.
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Sprintf("can't connect to MAAS at %s: %v", op.Addr, op.Err)
	}
	if u, is := errors.AsType[*url.Error](err); is && op == nil {
		return u.Err.Error()
	}
	return "the connection to MAAS broke"
}
