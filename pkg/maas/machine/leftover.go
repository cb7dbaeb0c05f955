// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
)

// withheldFor is how long a machine is not allocated after its owner last withheld it.
const withheldFor = 15 * time.Minute

// withholding is a machine and the owner that withholds it. If two owners give it back one after the other, the first
// may include it after the second has withheld it.
type withholding struct{ systemID, owner string }

type withheld struct {
	hostname string
	until    time.Time
	Leftover
}

// leftovers are the machines that are not allocated here until something on them is undone.
type leftovers struct {
	mu       sync.Mutex
	machines map[withholding]withheld
}

// Leftover is what is to be undone on a machine.
type Leftover struct {
	Address    string       // a static address, or ""
	Storage    bool         // its storage layout
	Interfaces *Arrangement // its interfaces, or nil
}

// On returns what of it is still to be undone on a machine. That the storage is, the machine does not show.
func (left Leftover) On(machine *maas.Machine) Leftover {
	if left.Interfaces != nil && left.Interfaces.Undone(machine, left.Address) {
		left.Interfaces = nil
	}
	if left.Address != "" && !HasAddress(machine, left.Address) {
		left.Address = ""
	}
	return left
}

// lock returns the machines that are withheld, and the time; no other caller reads or changes them until done.
func (s *Service) lock() (machines map[withholding]withheld, now time.Time, done func()) {
	now = s.Quarantine.Now()
	s.leftovers.mu.Lock()
	if s.leftovers.machines == nil {
		s.leftovers.machines = map[withholding]withheld{}
	}
	maps.DeleteFunc(s.leftovers.machines, func(_ withholding, m withheld) bool { return now.After(m.until) })
	return s.leftovers.machines, now, s.leftovers.mu.Unlock
}

// Withhold keeps a machine from being allocated here, until StopWithholding. Its owner, by the mark of a
// MaasMachine, gives it back, and has not yet undone what it left on it; once another user has the machine, it
// can't. The caller has proven that the machine is or was the owner's. The owner withholds it again in each
// reconcile.
func (s *Service) Withhold(m *maas.Machine, owner string, left Leftover) {
	machines, now, done := s.lock()
	defer done()
	machines[withholding{m.SystemID, owner}] = withheld{m.Hostname, now.Add(withheldFor), left}
}

// TryWithhold withholds a machine for an owner that is about to change its storage layout, and returns false if another
// owner withholds it.
func (s *Service) TryWithhold(m *maas.Machine, owner string) bool {
	machines, now, done := s.lock()
	defer done()
	if byAnother(machines, m.SystemID, owner) {
		return false
	}
	machines[withholding{m.SystemID, owner}] = withheld{m.Hostname, now.Add(withheldFor), Leftover{Storage: true}}
	return true
}

// Withholds reports whether an owner withholds a machine: it was proven to this process that the machine is or was the
// owner's.
func (s *Service) Withholds(systemID, owner string) bool {
	machines, _, done := s.lock()
	defer done()
	_, withholds := machines[withholding{systemID, owner}]
	return withholds
}

// WithheldByAnother reports whether another owner withholds a machine.
func (s *Service) WithheldByAnother(systemID, owner string) bool {
	machines, _, done := s.lock()
	defer done()
	return byAnother(machines, systemID, owner)
}

func byAnother(machines map[withholding]withheld, systemID, owner string) bool {
	for by := range machines {
		if by.systemID == systemID && by.owner != owner {
			return true
		}
	}
	return false
}

// StopWithholding ends Withhold.
func (s *Service) StopWithholding(systemID, owner string) {
	machines, _, done := s.lock()
	defer done()
	delete(machines, withholding{systemID, owner})
}

// LeftOn returns what others have left on a machine, as far as the machine still has it. An allocate may take long, and
// return a machine that was withheld meanwhile.
func (s *Service) LeftOn(m *maas.Machine, owner string) (left Leftover) {
	machines, _, done := s.lock()
	defer done()
	for by, out := range machines {
		if by.systemID != m.SystemID {
			continue
		}
		still := out.On(m)
		left.Address = cmp.Or(still.Address, left.Address)
		if by.owner != owner {
			left.Storage = left.Storage || still.Storage
			left.Interfaces = cmp.Or(still.Interfaces, left.Interfaces)
		}
	}
	return left
}

// notAllocated returns the hostnames of the machines that this process does not allocate, in a stable order.
func (s *Service) notAllocated() (names []string) {
	machines, _, done := s.lock()
	defer done()
	for _, m := range machines {
		names = append(names, m.hostname)
	}
	names = append(names, list.Each(s.Quarantine.Remembered(), func(m quarantine.Machine) string { return m.Hostname })...)
	slices.Sort(names)
	return slices.Compact(names)
}
