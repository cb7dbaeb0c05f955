// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

const (
	// firstPause is how long a host is skipped after it could not compose a VM; each further failure in a row doubles it. MAAS waits two minutes
	// for a host, and a shorter pause would have the host tried all the time.
	firstPause = 3 * time.Minute
	// longestPause bounds it: an operator who mended a host should see it used again within the hour.
	longestPause = time.Hour
)

// What hosts fail to do.
const (
	toCompose = "compose a VM"
	toAnswer  = "answer MAAS"
)

// failures are which hosts could not compose a VM, and until when they are skipped.
type failures struct {
	mu     sync.Mutex
	byHost map[string]failure
	clock  func() time.Time
}

type failure struct {
	row   int // failures without a success between them
	until time.Time
}

func newFailures() *failures {
	return &failures{byHost: map[string]failure{}, clock: time.Now}
}

// SetClock has pauses measured by another clock; tests wait for nothing.
func (s *Service) SetClock(now func() time.Time) {
	s.failures.mu.Lock()
	defer s.failures.mu.Unlock()
	s.failures.clock = now
}

// failed notes that a host could not compose a VM.
func (f *failures) failed(host string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, last := f.clock(), f.byHost[host]
	if now.Before(last.until) {
		return // Skipped already: this one was on its way, or had no other host to go to.
	}
	if now.Sub(last.until) > longestPause {
		last.row = 0 // So long ago that it has nothing to do with this one.
	}
	last.row++
	last.until = now.Add(maas.Doubled(firstPause, longestPause, last.row))
	f.byHost[host] = last
}

// succeeded forgets that a host failed.
func (f *failures) succeeded(host string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byHost, host)
}

// tell marks the hosts that are skipped, beside those that are already.
func (f *failures) tell(hosts []Host) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range hosts {
		if until := f.byHost[hosts[i].Name].until; f.clock().Before(until) {
			hosts[i].leaveAlone(until, toCompose)
		}
	}
}

// leaveAlone notes that a host failed; the longest pause counts.
func (h *Host) leaveAlone(until time.Time, failedTo string) {
	if until.After(h.LeftAloneUntil) {
		h.LeftAloneUntil, h.FailedTo = until, failedTo
	}
}

// blames reports whether it may be the host that something failed for. MAAS says so with 503 or 500, or refuses a VM with 400.
func blames(err error) bool {
	var e *maas.Error
	if !errors.As(err, &e) {
		return true
	}
	switch {
	case e.Kind == maas.Invalid:
		return !maas.InvalidField(err, "hostname") // Another machine has the name.
	case e.Status == 0:
		return errors.Is(err, context.DeadlineExceeded) // MAAS waited for the host; else it was MAAS that was not there.
	case e.Status == http.StatusServiceUnavailable:
		return e.RetryAfter == 0 // MAAS never says when to come back: that was a proxy.
	}
	return e.Status == http.StatusInternalServerError
}
