// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/cooldown"
)

// cooldowns are for hosts that could not compose a VM. MAAS waits two minutes for a host: with a shorter cooldown the
// host would be tried all the time. After a repair, it should be used again within the hour.
var cooldowns = cooldown.Limits{First: 3 * time.Minute, Longest: time.Hour, Remembered: time.Hour}

// directCooldowns are for direct hosts: only the manager waits for such a host, and one that restarts is soon back.
var directCooldowns = cooldown.Limits{First: 20 * time.Second, Longest: 20 * time.Minute, Remembered: 20 * time.Minute}

// What a host failed to do.
const (
	toCompose = "compose a VM"
	toAnswer  = "answer MAAS"
)

// SetClock sets the clock for cooldowns, for tests.
func (s *Service) SetClock(now func() time.Time) {
	s.failures.SetClock(now)
	s.directFailures.SetClock(now)
}

// failuresOf returns the cooldowns of hosts of this kind.
func (s *Service) failuresOf(host *Host) *cooldown.Cooldowns[HostKey] {
	if host.IsDirect() {
		return s.directFailures
	}
	return s.failures
}

// failed records that a host could not compose a VM. A host that already cools down is not counted again: this compose
// was under way then, or no other host was left.
func (s *Service) failed(host *Host) {
	failures := s.failuresOf(host)
	if _, cooling := failures.Get(host.Key()); !cooling {
		failures.Fail(host.Key())
	}
}

// markCoolingDown marks the hosts that cool down after a failed compose.
func (s *Service) markCoolingDown(hosts []Host) {
	for i := range hosts {
		if e, cooling := s.failuresOf(&hosts[i]).Get(hosts[i].Key()); cooling {
			hosts[i].coolDown(e.Until, toCompose)
		}
	}
}

// coolDown marks a host as failed; the longest cooldown counts.
func (h *Host) coolDown(until time.Time, failedTo string) {
	if until.After(h.CooldownUntil) {
		h.CooldownUntil, h.FailedTo = until, failedTo
	}
}

// blames reports whether an error may be the host's fault. MAAS returns 503 or 500 then, or refuses a VM with 400. A
// direct host whose VM can't be made there, because of another's name for example, is left out for a while as well; not
// where the VM is there, and is searched first.
func blames(err error) bool {
	switch lxdhost.KindOf(err) {
	case lxdhost.KindVolume, lxdhost.KindOutdated, lxdhost.KindTooLate, lxdhost.KindUnfinished:
		return false
	}
	var e *maas.Error
	if !errors.As(err, &e) {
		return true
	}
	switch {
	case e.Kind == maas.Invalid:
		return !maas.InvalidField(err, "hostname") && !maas.InvalidField(err, "mac_addresses") // Another machine has them.
	case e.Status == 0:
		return errors.Is(err, context.DeadlineExceeded) // MAAS waited for the host; otherwise MAAS itself was down.
	case e.Status == http.StatusServiceUnavailable:
		return e.RetryAfter == 0 // MAAS sends no Retry-After: it was a proxy.
	}
	return e.Status == http.StatusInternalServerError
}
