// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/cooldown"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
)

// failures are the bare-metal machines that failed, and that MAAS does not let us quarantine. They are forgotten with
// the process; MaasMachines that failed report them again.
type failures struct {
	cooldowns *cooldown.Cooldowns[string] // by system id
	mu        sync.Mutex
	machines  map[string]*failure
}

// failure is a machine that failed.
type failure struct {
	hostname, zone, pool string
	seenBy               string // who reported it last
	held                 bool   // not back in the pool yet, as far as is known here
}

// CoolingDown is a machine that failed recently and is not allocated for a while.
type CoolingDown struct {
	SystemID, Hostname string
	// Failures is how often it failed since it was last deployed.
	Failures int
	Until    time.Time
}

func newFailures() *failures {
	return &failures{cooldowns: cooldown.New[string](quarantine.Limits), machines: map[string]*failure{}}
}

// SetClock sets the clock for quarantines, cooldowns and exclusions, for tests.
func (s *Service) SetClock(now func() time.Time) {
	s.Quarantine.SetClock(now)
	s.failures.cooldowns.SetClock(now)
	s.exclusions.mu.Lock()
	defer s.exclusions.mu.Unlock()
	s.exclusions.clock = now
}

// Failed records here that a machine failed: MAAS does not let us quarantine it. seenBy is the UID of the MaasMachine
// that has it: repeated reports of one MaasMachine count as one failure. The machine cools down from then on, and for a
// while after BackInPool.
func (s *Service) Failed(m *maas.Machine, seenBy string) {
	f := s.failures
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.machines[m.SystemID]
	if last != nil && last.seenBy == seenBy && f.cooldowns.Known(m.SystemID) {
		f.cooldowns.Restart(m.SystemID)
	} else {
		f.cooldowns.Fail(m.SystemID)
	}
	f.machines[m.SystemID] = &failure{hostname: m.Hostname, zone: m.Zone.Name, pool: m.Pool.Name, seenBy: seenBy,
		held: true}
}

// BackInPool records that a machine is back in the pool. If it had failed, it cools down from now on.
func (s *Service) BackInPool(systemID string) {
	f := s.failures
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.machines[systemID]; e != nil && e.held {
		e.held = false
		f.cooldowns.Restart(systemID)
	}
}

// ClearFailures records that a machine was deployed.
func (s *Service) ClearFailures(systemID string) {
	s.failures.mu.Lock()
	defer s.failures.mu.Unlock()
	delete(s.failures.machines, systemID)
	s.failures.cooldowns.Clear(systemID)
}

// FailedRecently reports whether a machine is quarantined, or cools down.
func (s *Service) FailedRecently(m *maas.Machine) bool {
	_, cooling := s.failures.cooldowns.Get(m.SystemID)
	return cooling || quarantine.Has(m)
}

// CoolingDown returns the machines in the pool that failed recently and that might fit, in the order in which they are
// tried again.
func (s *Service) CoolingDown(constraints maas.AllocateParams) []CoolingDown {
	return s.failures.coolingDown(func(f *failure) bool {
		return !f.held && cmp.Or(constraints.Zone, f.zone) == f.zone && cmp.Or(constraints.Pool, f.pool) == f.pool
	})
}

// coolingDown returns the wanted ones that cool down, and drops those whose failures are long ago.
func (f *failures) coolingDown(wanted func(*failure) bool) (list []CoolingDown) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, e := range f.machines {
		if !f.cooldowns.Known(id) {
			delete(f.machines, id)
			continue
		}
		if now, cooling := f.cooldowns.Get(id); cooling && wanted(e) {
			list = append(list, CoolingDown{SystemID: id, Hostname: e.hostname, Failures: now.Failures, Until: now.Until})
		}
	}
	slices.SortFunc(list, func(a, b CoolingDown) int {
		return cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.SystemID, b.SystemID))
	})
	return list
}

// notAllocated returns the hostnames of the machines that are not allocated, in a stable order.
func (s *Service) notAllocated() []string {
	names := s.exclusions.hostnames()
	for _, m := range s.failures.coolingDown(func(*failure) bool { return true }) {
		names = append(names, m.Hostname)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
