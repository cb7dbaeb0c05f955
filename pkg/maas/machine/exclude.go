// SPDX-License-Identifier: Apache-2.0

package machine

import (
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
	hostname, address string
	until             time.Time
}

// Exclude keeps a machine from being allocated here, until Include. Its owner, a MaasMachine's UID, gives it back, and
// has not yet removed the static address that it gave it; once another user has the machine, it can't. The owner
// excludes it again in each reconcile.
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

// LeftoverAddress returns the static address of the last Exclude if the machine still has it, or "". An allocate may
// take long, and return a machine that was excluded meanwhile.
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
