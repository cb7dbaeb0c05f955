// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// excludedFor is for how long a machine is not allocated after its owner last said that something is still to be undone on it.
const excludedFor = 15 * time.Minute

// exclusions are the machines that are not allocated until something on them is undone.
type exclusions struct {
	mu       sync.Mutex
	machines map[exclusion]excluded
	clock    func() time.Time
}

// exclusion is who excludes which machine. Of two who give it back one after the other, the first may end when the second has begun.
type exclusion struct{ systemID, owner string }

type excluded struct {
	hostname, address string
	until             time.Time
}

// Exclude keeps a machine that its owner, a MaasMachine's UID, gives back from being allocated here, until Include: the static address that the
// owner gave it is not taken off yet, and can't be once another user has it. Who gives it back says so again in each reconcile.
func (s *Service) Exclude(m *maas.Machine, owner, address string) {
	e := &s.exclusions
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.machines == nil {
		e.machines = map[exclusion]excluded{}
	}
	e.machines[exclusion{m.SystemID, owner}] = excluded{hostname: m.Hostname, address: address, until: e.clock().Add(excludedFor)}
}

// Include ends Exclude.
func (s *Service) Include(systemID, owner string) {
	s.exclusions.mu.Lock()
	defer s.exclusions.mu.Unlock()
	delete(s.exclusions.machines, exclusion{systemID, owner})
}

// LeftoverAddress is the static address that Exclude was told of and that the machine has; "" where there is none. MAAS may take its time for an
// allocate, and then give a machine that is excluded by now.
func (s *Service) LeftoverAddress(m *maas.Machine) string {
	s.exclusions.mu.Lock()
	defer s.exclusions.mu.Unlock()
	for by, out := range s.exclusions.machines {
		if by.systemID == m.SystemID && HasAddress(m, out.address) {
			return out.address
		}
	}
	return ""
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
