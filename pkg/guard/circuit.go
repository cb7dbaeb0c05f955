// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// SilentCalls is how many calls in a row must fail without a response before the circuit opens. One or two can be a
	// lost connection, or a request that was too much for the server.
	SilentCalls = 3
	// FirstProbe is the time before the first probe: a restart takes seconds.
	FirstProbe = time.Second
	// LastProbe bounds the time between two probes: one call in half a minute does not hurt a server that is in
	// trouble.
	LastProbe = 30 * time.Second
)

// Outcome is what the result of a call means for the health of the server.
type Outcome int

const (
	// Unclear means that the caller gave up, or the server reported that it can't reach something behind it.
	Unclear Outcome = iota
	// Responded means that the server is up, whatever its response.
	Responded
	// Silent means no response, or none that the server would send.
	Silent
)

// Circuit is a circuit breaker: while a server does not respond, it lets through only one call at a time, as a probe.
type Circuit struct {
	server       string
	turned       func(open bool)
	stateChanged chan struct{} // it opened or closed

	mu           sync.Mutex
	closing      bool      // the client is not used any more
	lastResponse time.Time // when the server last responded
	failures     int       // calls in a row without a response
	since        time.Time // when the first of them was sent
	open         bool
	why          string    // the error of the call that opened it
	probing      bool      // a probe is under way
	probes       int       // probes in a row without a response
	next         time.Time // when the next probe is due
}

// NewCircuit returns a circuit for a server, which messages call so. turned is called when the circuit opens or closes;
// it must not block.
func NewCircuit(server string, turned func(open bool)) *Circuit {
	return &Circuit{server: server, turned: turned, stateChanged: make(chan struct{}, 1)}
}

// Refusal is why a call is not sent now.
type Refusal struct {
	// Message stays the same while the server does not respond.
	Message string
	// After is when a call may be a probe.
	After time.Duration
}

// Enter reports whether a call may be sent, possibly as a probe if it may be one. Each call that may be sent must call
// Leave.
func (c *Circuit) Enter(mayProbe bool) (probe bool, refused *Refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open {
		return false, nil
	}
	left := time.Until(c.next)
	if left <= 0 && !c.probing && mayProbe {
		c.probing = true
		return true, nil
	}
	return false, &Refusal{Message: c.message(), After: max(left, FirstProbe)}
}

// WantsProbe reports whether the next call that may be a probe would be one.
func (c *Circuit) WantsProbe() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open && !c.probing && !time.Now().Before(c.next)
}

// message stays the same while the server does not respond. The caller holds c.mu.
func (c *Circuit) message() string {
	return fmt.Sprintf("%s has not responded since %s: %s", c.server, c.since.UTC().Format(time.RFC3339), c.why)
}

// Message is the error text of failed probes and of calls that are not sent.
func (c *Circuit) Message() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.message()
}

// Leave records the outcome of a call that was sent at a certain time. why is the error of a silent one.
func (c *Circuit) Leave(probe bool, sent time.Time, ended Outcome, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if probe {
		c.probing = false
	}
	switch {
	case ended == Responded:
		c.turn(false)
		c.lastResponse, c.failures, c.probes = time.Now(), 0, 0
	case probe:
		if ended == Silent {
			c.probes++
		}
		c.await()
	case c.open, ended == Unclear, sent.Before(c.lastResponse):
		// A call that was sent before the server's last response is no news.
	default:
		c.recordFailure(sent, why)
	}
}

// recordFailure counts a call without a response.
func (c *Circuit) recordFailure(sent time.Time, why string) {
	if c.failures == 0 {
		c.since = sent
	}
	if c.failures++; c.failures < SilentCalls {
		return
	}
	c.why, c.probes = why, 0
	c.turn(true)
	c.await()
}

// await sets when the next probe is due.
func (c *Circuit) await() {
	pause := Doubled(FirstProbe, LastProbe, c.probes+1)
	// Up to a fifth more, so that several managers don't probe at the same time.
	c.next = time.Now().Add(pause + time.Duration(rand.Int64N(int64(pause)/5+1))) // Not a secret.
}

func (c *Circuit) turn(open bool) {
	if open == c.open {
		return
	}
	c.open = open
	if !c.closing {
		c.turned(open)
	}
	select {
	case c.stateChanged <- struct{}{}:
	default:
	}
}

// Due returns the time until the next probe, and whether the circuit is open.
func (c *Circuit) Due() (left time.Duration, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.probing {
		return FirstProbe, c.open
	}
	return max(time.Until(c.next), 0), c.open
}

// StateChanged returns a channel that receives when the circuit opens or closes.
func (c *Circuit) StateChanged() <-chan struct{} { return c.stateChanged }

// End calls turned if the circuit is open, and turned is not called from then on. It reports whether this was the
// first call of it.
func (c *Circuit) End() (first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return false
	}
	if c.closing = true; c.open {
		c.turned(false)
	}
	return true
}

// Doubled returns the backoff after a number of failures in a row: first after one, doubled by each further one, at
// most limit.
func Doubled(first, limit time.Duration, failures int) time.Duration {
	pause := first
	for ; failures > 1 && pause < limit; failures-- {
		pause *= 2
	}
	return min(pause, limit)
}
