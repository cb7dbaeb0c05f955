// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"maps"
	"slices"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Remember is Put for a machine that MAAS does not let us tag: only this process leaves it alone, and forgets that when
// it ends. MaasMachines that failed report it again.
func (s *Service) Remember(m *maas.Machine, c Cause) {
	now := s.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = map[string]Machine{}
	}
	s.failed[m.SystemID] = Machine{m, after(s.failed[m.SystemID].Note, c, now)}
}

// forgive ends what Remember began for a machine.
func (s *Service) forgive(systemID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.failed, systemID)
}

// BackInPool lets the pause of a machine begin that is remembered. MAAS shows it in the pool.
func (s *Service) BackInPool(m *maas.Machine) {
	now := s.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, known := s.failed[m.SystemID]; known && last.Pause > 0 {
		s.failed[m.SystemID] = Machine{m, last.inPool(now)}
	}
}

// Remembered returns the machines that this process leaves alone, in the order in which they are free again.
func (s *Service) Remembered() (list []Machine) {
	now := s.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.failed, func(_ string, m Machine) bool { return m.isForgotten(now) })
	for _, m := range s.failed {
		if !m.isOver(now) {
			list = append(list, m)
		}
	}
	slices.SortFunc(list, sooner)
	return list
}

// FailedRecently reports whether a machine is quarantined, or left alone by this process.
func (s *Service) FailedRecently(m *maas.Machine) bool {
	return Has(m) || slices.ContainsFunc(s.Remembered(), func(other Machine) bool { return other.SystemID == m.SystemID })
}
