// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// silentCalls is how many calls in a row must fail without a response before the circuit opens. One or two can be a
	// lost connection, or a request that was too much for MAAS.
	silentCalls = 3
	// firstProbe and lastProbe bound the time between two probes. A restart of MAAS takes seconds, and one call in half
	// a minute does not hurt a MAAS that is in trouble.
	firstProbe = time.Second
	lastProbe  = 30 * time.Second
)

// outcome is what the result of a call means for the health of MAAS.
type outcome int

const (
	// unclear: the caller gave up, or MAAS reported that it can't reach something behind it.
	unclear outcome = iota
	// responded: MAAS is up, whatever its response.
	responded
	// silent: no response, or none that MAAS would send.
	silent
)

// circuit is a circuit breaker: while MAAS does not respond, it lets through only one call at a time, as a probe.
type circuit struct {
	apiURL       string
	gauge        prometheus.Gauge
	stateChanged chan struct{} // it opened or closed

	mu           sync.Mutex
	closing      bool      // the client is not used any more
	lastResponse time.Time // when MAAS last responded
	failures     int       // calls in a row without a response
	since        time.Time // when the first of them was sent
	open         bool
	why          string    // the error of the call that opened it
	probing      bool      // a probe is under way
	probes       int       // probes in a row without a response
	next         time.Time // when the next probe is due
}

func newCircuit(apiURL string) *circuit {
	return &circuit{apiURL: apiURL, gauge: openCircuits(apiURL), stateChanged: make(chan struct{}, 1)}
}

// enter reports whether a call may be sent, possibly as a probe. Each call that may be sent must call leave.
func (c *circuit) enter(call call) (probe bool, refused *Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open {
		return false, nil
	}
	left := time.Until(c.next)
	// A read is the best probe: if its response is lost, nothing needs to be found out afterwards.
	if left <= 0 && !c.probing && call.method == http.MethodGet && !call.list {
		c.probing = true
		return true, nil
	}
	refused = call.fail(0, c.message(), nil)
	refused.NotSent, refused.RetryAfter = true, max(left, firstProbe)
	return false, refused
}

// wantsProbe reports whether the next read that is not a list of machines would be a probe.
func (c *circuit) wantsProbe() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open && !c.probing && !time.Now().Before(c.next)
}

// message stays the same while MAAS does not respond. The caller holds c.mu.
func (c *circuit) message() string {
	return fmt.Sprintf("MAAS has not responded since %s: %s", c.since.UTC().Format(time.RFC3339), c.why)
}

// currentMessage is the error text of failed probes and of calls that are not sent.
func (c *circuit) currentMessage() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.message()
}

// leave records the outcome of a call that was sent at a certain time.
func (c *circuit) leave(probe bool, sent time.Time, ended outcome, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if probe {
		c.probing = false
	}
	switch {
	case ended == responded:
		c.turn(false)
		c.lastResponse, c.failures, c.probes = time.Now(), 0, 0
	case probe:
		if ended == silent {
			c.probes++
		}
		c.await()
	case c.open, ended == unclear, sent.Before(c.lastResponse):
		// A call that was sent before MAAS's last response is no news.
	default:
		c.recordFailure(sent, why)
	}
}

// recordFailure counts a call without a response.
func (c *circuit) recordFailure(sent time.Time, why string) {
	if c.failures == 0 {
		c.since = sent
	}
	if c.failures++; c.failures < silentCalls {
		return
	}
	c.why, c.probes = why, 0
	c.turn(true)
	c.await()
}

// await sets when the next probe is due.
func (c *circuit) await() {
	pause := Doubled(firstProbe, lastProbe, c.probes+1)
	// Up to a fifth more, so that several managers don't probe at the same time.
	c.next = time.Now().Add(pause + time.Duration(rand.Int64N(int64(pause)/5+1))) // Not a secret.
}

func (c *circuit) turn(open bool) {
	if open == c.open {
		return
	}
	c.open = open
	if !c.closing {
		c.gauge.Add(map[bool]float64{true: 1, false: -1}[open])
	}
	select {
	case c.stateChanged <- struct{}{}:
	default:
	}
}

// due returns the time until the next probe, and whether the circuit is open.
func (c *circuit) due() (left time.Duration, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.probing {
		return firstProbe, c.open
	}
	return max(time.Until(c.next), 0), c.open
}

// end removes the circuit from the metrics.
func (c *circuit) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return
	}
	if c.closing = true; c.open {
		c.gauge.Add(-1)
	}
	dropCircuit(c.apiURL)
}

// outcome classifies the result of a call.
func (c call) outcome(caller context.Context, err *Error) outcome {
	switch {
	case err == nil:
		return responded
	case caller.Err() != nil, errors.Is(err, errTooLate):
		return unclear
	case c.list && (err.Status == http.StatusGatewayTimeout || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errTooLong)):
		return unclear // MAAS may still respond to other calls.
	case err.Status == 0, err.Status == http.StatusBadGateway, err.Status == http.StatusGatewayTimeout,
		errors.Is(err, context.DeadlineExceeded), c.isPlainRead() && err.Status >= http.StatusInternalServerError:
		return silent // A MAAS that can't even be read is of no use: its database may be down.
	case err.Status != http.StatusServiceUnavailable && (err.Kind != Unavailable || err.Status >= 300):
		return responded
	case c.isPlainRead():
		return silent
	}
	// MAAS returns 503 for a VM host or a rack controller that it can't reach; a proxy returns it for MAAS itself.
	return unclear
}

// isPlainRead reports whether MAAS alone responds to the call, and no BMC, VM host or rack controller behind it.
func (c call) isPlainRead() bool { return c.method == http.MethodGet && !c.slow }

// Doubled returns the backoff after a number of failures in a row: first after one, doubled by each further one, at
// most limit.
func Doubled(first, limit time.Duration, failures int) time.Duration {
	pause := first
	for ; failures > 1 && pause < limit; failures-- {
		pause *= 2
	}
	return min(pause, limit)
}
