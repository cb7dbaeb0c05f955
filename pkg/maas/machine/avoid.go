// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

const (
	// firstPause is how long a machine that failed is skipped once it is back in the pool; each further failure in a row doubles it. MAAS's
	// allocate takes the smallest machine that fits, so it would give the same one again and again.
	firstPause = 10 * time.Minute
	// longestPause bounds it. It may have been the image, and not the machine, that was bad: then a pool that failed as a whole is
	// used again soon enough. And a try that fails takes MAAS half an hour at least.
	longestPause = 2 * time.Hour
	// keptOut is for how long a machine is not allocated after it was last told that something is still to be undone on it.
	keptOut = 15 * time.Minute
	// remembered is for how long after the pause a further failure still counts as one in a row.
	remembered = 24 * time.Hour
)

// failures are the bare-metal machines that failed, by system id. They are forgotten with the process; MaasMachines that failed tell of
// them again.
type failures struct {
	mu    sync.Mutex
	byID  map[string]*failure
	out   map[keptOutBy]keptOutUntil
	clock func() time.Time
}

// keptOutBy is who keeps which machine out. Of two who give it back one after the other, the first may end when the second has begun.
type keptOutBy struct{ systemID, owner string }

// keptOutUntil is a machine that is not allocated for another reason than its failures.
type keptOutUntil struct {
	hostname, address string
	until             time.Time
}

type failure struct {
	LeftAlone
	zone, pool string
	seenBy     string // who told of it last
	held       bool   // not back in the pool yet, as far as is known here
}

// LeftAlone is a machine that failed lately, and is not allocated for a while.
type LeftAlone struct {
	SystemID, Hostname string
	// Failures is how often it failed since it was last deployed.
	Failures int
	Until    time.Time
}

func newFailures() *failures {
	return &failures{byID: map[string]*failure{}, out: map[keptOutBy]keptOutUntil{}, clock: time.Now}
}

// SetClock has pauses measured by another clock; tests wait for nothing.
func (s *Service) SetClock(now func() time.Time) {
	s.failures.mu.Lock()
	defer s.failures.mu.Unlock()
	s.failures.clock = now
}

// KeepOut keeps a machine that its owner, a MaasMachine's UID, gives back from being allocated here, until LetIn: the static address that the
// owner gave it is not taken off yet, and can't be once another user has it. Who gives it back tells again with each look.
func (s *Service) KeepOut(m *maas.Machine, owner, address string) {
	s.failures.mu.Lock()
	defer s.failures.mu.Unlock()
	s.failures.out[keptOutBy{m.SystemID, owner}] = keptOutUntil{hostname: m.Hostname, address: address, until: s.failures.clock().Add(keptOut)}
}

// LeftOn is the static address that KeepOut was told of and that the machine has; "" where there is none. MAAS may take its time for an allocate, and
// then give a machine that is kept out by now.
func (s *Service) LeftOn(m *maas.Machine) string {
	s.failures.mu.Lock()
	defer s.failures.mu.Unlock()
	for by, out := range s.failures.out {
		if by.systemID == m.SystemID && HasAddress(m, out.address) {
			return out.address
		}
	}
	return ""
}

// LetIn ends KeepOut.
func (s *Service) LetIn(systemID, owner string) {
	s.failures.mu.Lock()
	defer s.failures.mu.Unlock()
	delete(s.failures.out, keptOutBy{systemID, owner})
}

// Failed notes that a machine failed, for one who has it: a MaasMachine's UID. However often one tells of it, it failed once. It is skipped from
// then on, and for a while after GivenBack.
func (s *Service) Failed(m *maas.Machine, seenBy string) { s.failures.failed(m, seenBy) }

// GivenBack notes that a machine is back in the pool. If it had failed, it is skipped from now on for as long as it takes.
func (s *Service) GivenBack(systemID string) { s.failures.givenBack(systemID) }

// Forgive notes that a machine was deployed.
func (s *Service) Forgive(systemID string) { s.failures.forgive(systemID) }

// IsLeftAlone reports whether a machine failed lately.
func (s *Service) IsLeftAlone(systemID string) bool {
	return slices.ContainsFunc(s.failures.now(), func(f failure) bool { return f.SystemID == systemID })
}

// LeftAlone returns the machines in the pool that failed lately and that might fit, those that are tried again first in front.
func (s *Service) LeftAlone(constraints maas.AllocateParams) []LeftAlone {
	var list []LeftAlone
	for _, f := range s.failures.now() {
		if !f.held && cmp.Or(constraints.Zone, f.zone) == f.zone && cmp.Or(constraints.Pool, f.pool) == f.pool {
			list = append(list, f.LeftAlone)
		}
	}
	return list
}

func (f *failures) failed(m *maas.Machine, seenBy string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.byID[m.SystemID]
	if e == nil || f.clock().Sub(e.Until) > remembered {
		e = &failure{}
		f.byID[m.SystemID] = e
	}
	if e.seenBy != seenBy {
		e.Failures++
	}
	e.SystemID, e.Hostname, e.zone, e.pool = m.SystemID, m.Hostname, m.Zone.Name, m.Pool.Name
	e.seenBy, e.held = seenBy, true
	e.pause(f.clock())
}

func (f *failures) givenBack(systemID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.byID[systemID]; e != nil && e.held {
		e.held = false
		e.pause(f.clock())
	}
}

func (f *failures) forgive(systemID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byID, systemID)
}

func (e *failure) pause(now time.Time) {
	e.Until = now.Add(maas.Doubled(firstPause, longestPause, e.Failures))
}

// now returns the machines that are skipped, and drops those whose failures are long ago.
func (f *failures) now() []failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []failure
	for id, e := range f.byID {
		switch since := f.clock().Sub(e.Until); {
		case since > remembered:
			delete(f.byID, id)
		case since < 0:
			list = append(list, *e)
		}
	}
	slices.SortFunc(list, func(a, b failure) int {
		return cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.SystemID, b.SystemID))
	})
	return list
}

// hostnames are those of the machines that are not allocated, in an order that stays.
func (f *failures) hostnames() []string {
	var names []string
	for _, e := range f.now() {
		names = append(names, e.Hostname)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for by, m := range f.out {
		if f.clock().After(m.until) {
			delete(f.out, by)
			continue
		}
		names = append(names, m.hostname)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
