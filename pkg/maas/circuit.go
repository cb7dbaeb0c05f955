// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

// circuit is the circuit breaker of one client, with its metric.
type circuit struct {
	*guard.Circuit
	apiURL string
	gauge  prometheus.Gauge
	// untrusted is the last error, if that is one.
	untrusted atomic.Pointer[Error]
}

func newCircuit(apiURL string) *circuit {
	gauge := openCircuits(apiURL)
	count := func(open bool) { gauge.Add(map[bool]float64{true: 1, false: -1}[open]) }
	return &circuit{Circuit: guard.NewCircuit("MAAS", count), apiURL: apiURL, gauge: gauge}
}

// enter reports whether a call may be sent, possibly as a probe. Each call that may be sent must call Leave. A read is
// the best probe: if its response is lost, nothing needs to be found out afterwards.
func (c *circuit) enter(call call) (probe bool, refused *Error) {
	probe, refusal := c.Enter(call.method == http.MethodGet && !call.list)
	if refusal == nil {
		return probe, nil
	}
	refused = call.fail(0, refusal.Message, nil)
	if last := c.untrusted.Load(); last != nil {
		refused.Kind, refused.Message, refused.cause = last.Kind, last.Message, last.cause
	}
	refused.NotSent, refused.RetryAfter = true, refusal.After
	return false, refused
}

// note keeps the error of a server that can't prove to be MAAS for the calls that are refused.
func (c *circuit) note(err *Error) {
	if err != nil && err.Kind != Untrusted {
		err = nil
	}
	c.untrusted.Store(err)
}

// end removes the circuit from the metrics.
func (c *circuit) end() {
	if c.End() {
		dropCircuit(c.apiURL)
	}
}

// outcome classifies the result of a call.
func (c call) outcome(caller context.Context, err *Error) guard.Outcome {
	switch {
	case err == nil:
		return guard.Responded
	case caller.Err() != nil, errors.Is(err, guard.ErrTooLate):
		return guard.Unclear
	case c.list && (err.Status == http.StatusGatewayTimeout || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, guard.ErrTooLong)):
		return guard.Unclear // MAAS may still respond to other calls.
	case err.Status == 0, err.Status == http.StatusBadGateway, err.Status == http.StatusGatewayTimeout,
		errors.Is(err, context.DeadlineExceeded), c.isPlainRead() && err.Status >= http.StatusInternalServerError:
		return guard.Silent // A MAAS that can't even be read is of no use: its database may be down.
	case err.Status != http.StatusServiceUnavailable && (err.Kind != Unavailable || err.Status >= 300):
		return guard.Responded
	case c.isPlainRead():
		return guard.Silent
	}
	// MAAS returns 503 for a VM host or a rack controller that it can't reach; a proxy returns it for MAAS itself.
	return guard.Unclear
}

// mayFailAlone reports whether MAAS may serve other calls: it responded to this one, badly. It says itself that a BMC
// takes too long (504; APIRPCErrorsMiddleware in maasserver/middleware.py), as a proxy says of MAAS.
func (c call) mayFailAlone(err *Error) bool {
	return err.Status != 0 && err.Status != http.StatusBadGateway &&
		(err.Status != http.StatusGatewayTimeout || c.slow) && c.endpoint != versionEndpoint
}

// outcomeAmongOthers returns what a response that is of no use means: silence, unless MAAS serves the simplest call.
// One call at a time asks it that, for the others, too.
func (c *Client) outcomeAmongOthers(caller context.Context) guard.Outcome {
	if _, open := c.NextProbe(); open {
		return guard.Silent
	}
	if !c.checking.CompareAndSwap(false, true) {
		return guard.Unclear
	}
	defer c.checking.Store(false)
	if _, err := c.Version(caller); caller.Err() != nil || NotSent(err) || !errors.Is(err, Unavailable) {
		return guard.Unclear
	}
	return guard.Silent
}

// isPlainRead reports whether MAAS alone responds to the call, and no BMC, VM host or rack controller behind it.
func (c call) isPlainRead() bool { return c.method == http.MethodGet && !c.slow }
