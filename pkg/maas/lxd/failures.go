// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/cooldown"
)

// cooldowns are for hosts that could not compose a VM. MAAS waits two minutes for a host, and a shorter cooldown would have the host tried all
// the time; an operator who mended a host should see it used again within the hour.
var cooldowns = cooldown.Limits{First: 3 * time.Minute, Longest: time.Hour, Remembered: time.Hour}

// What hosts fail to do.
const (
	toCompose = "compose a VM"
	toAnswer  = "answer MAAS"
)

// SetClock has cooldowns measured by another clock; tests wait for nothing.
func (s *Service) SetClock(now func() time.Time) { s.failures.SetClock(now) }

// failed notes that a host could not compose a VM. One that cools down already had this one on its way, or it had no other host to go to.
func (s *Service) failed(host string) {
	if _, cooling := s.failures.Get(host); !cooling {
		s.failures.Fail(host)
	}
}

// tell marks the hosts that cool down, beside those that are already.
func (s *Service) tell(hosts []Host) {
	for i := range hosts {
		if e, cooling := s.failures.Get(hosts[i].Name); cooling {
			hosts[i].coolDown(e.Until, toCompose)
		}
	}
}

// coolDown notes that a host failed; the longest cooldown counts.
func (h *Host) coolDown(until time.Time, failedTo string) {
	if until.After(h.CooldownUntil) {
		h.CooldownUntil, h.FailedTo = until, failedTo
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
