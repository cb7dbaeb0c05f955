// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// excludedFor is how long a machine is not allocated after its owner last excluded it.
const excludedFor = 15 * time.Minute

// exclusions are the machines that are not allocated until something on them is undone.
type exclusions struct {
	mu       sync.Mutex
	machines map[exclusion]excluded
	clock    func() time.Time
}

// exclusion is a machine and the owner that excludes it. If two owners give it back one after the other, the first may
// include it after the second has excluded it.
type exclusion struct{ systemID, owner string }

type excluded struct {
	hostname string
	until    time.Time
	Leftover
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

// Exclude keeps a machine from being allocated here, until Include. Its owner, by the mark of a MaasMachine, gives it
// back, and has not yet undone what it left on it; once another user has the machine, it can't. The caller has proven
// that the machine is or was the owner's. The owner excludes it again in each reconcile.
func (s *Service) Exclude(m *maas.Machine, owner string, left Leftover) {
	s.exclusions.mu.Lock()
	defer s.exclusions.mu.Unlock()
	s.exclusions.add(m, owner, left)
}

// Reserve excludes a machine for an owner who is about to change its storage layout, and reports whether nobody else
// excludes it.
func (s *Service) Reserve(m *maas.Machine, owner string) bool {
	s.exclusions.mu.Lock()
	defer s.exclusions.mu.Unlock()
	for by, out := range s.exclusions.machines {
		if by.systemID == m.SystemID && by.owner != owner && !s.exclusions.clock().After(out.until) {
			return false
		}
	}
	s.exclusions.add(m, owner, Leftover{Storage: true})
	return true
}

func (e *exclusions) add(m *maas.Machine, owner string, left Leftover) {
	if e.machines == nil {
		e.machines = map[exclusion]excluded{}
	}
	e.machines[exclusion{m.SystemID, owner}] = excluded{hostname: m.Hostname, Leftover: left,
		until: e.clock().Add(excludedFor)}
}

// Excludes reports whether an owner excludes a machine here: it was proven to this process that the machine is or was
// the owner's.
func (s *Service) Excludes(systemID, owner string) bool {
	s.exclusions.mu.Lock()
	defer s.exclusions.mu.Unlock()
	out, known := s.exclusions.machines[exclusion{systemID, owner}]
	return known && !s.exclusions.clock().After(out.until)
}

// Include ends Exclude.
func (s *Service) Include(systemID, owner string) {
	s.exclusions.mu.Lock()
	defer s.exclusions.mu.Unlock()
	delete(s.exclusions.machines, exclusion{systemID, owner})
}

// LeftOn returns what others have left on a machine, by their last Exclude, as far as the machine still has it. An
// allocate may take long, and return a machine that was excluded meanwhile.
func (s *Service) LeftOn(m *maas.Machine, owner string) (left Leftover) {
	s.exclusions.mu.Lock()
	defer s.exclusions.mu.Unlock()
	for by, out := range s.exclusions.machines {
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

func (e *exclusions) hostnames() (names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for by, m := range e.machines {
		if e.clock().After(m.until) {
			delete(e.machines, by)
			continue
		}
		names = append(names, m.hostname)
	}
	return names
}
