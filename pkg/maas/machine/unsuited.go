// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Machines whose commissioning could not apply the layout that a script wrote are Ready, and MAAS allocates them,
// though it can install nothing on them. It allocates DPUs, too, which can't be given back as they were.

const (
	// unsuitedFor is how long a machine that nothing can be made of is left out after it was met.
	unsuitedFor = 30 * time.Minute
	// seenMaxAge is how old the list of all machines may be that tells of such machines before they are met.
	seenMaxAge = 10 * time.Minute
)

// HasRoot reports whether an image can be installed on a machine's disks: one of their file systems is the root, or is
// ESXi's. A machine without disks needs none.
func HasRoot(m *maas.Machine) bool {
	isRoot := func(fs *maas.Filesystem) bool {
		return fs != nil && (fs.MountPoint == "/" || strings.HasPrefix(fs.MountPoint, "/vmfs/"))
	}
	return len(m.Disks) == 0 || slices.ContainsFunc(slices.Concat(m.Disks, m.Volumes), func(d *maas.Disk) bool {
		return isRoot(d.Filesystem) || slices.ContainsFunc(d.Partitions,
			func(p maas.Partition) bool { return isRoot(p.Filesystem) })
	})
}

// unsuited are the machines that were met and that MAAS should not have allocated, by system id.
type unsuited struct {
	mu       sync.Mutex
	machines map[string]metUnsuited
}

type metUnsuited struct {
	*maas.Machine
	until time.Time
}

// MeetUnsuited records that nothing can be made of a machine.
func (s *Service) MeetUnsuited(m *maas.Machine) {
	s.unsuited.mu.Lock()
	defer s.unsuited.mu.Unlock()
	if s.unsuited.machines == nil {
		s.unsuited.machines = map[string]metUnsuited{}
	}
	s.unsuited.machines[m.SystemID] = metUnsuited{m, s.Quarantine.Now().Add(unsuitedFor)}
}

// Unsuited returns the machines that are known, and of which isUnsuited says that nothing can be made, in a stable
// order: of those that were met, and those that are Ready in a recent list of all machines, if there is one.
func (s *Service) Unsuited(isUnsuited func(*maas.Machine) bool) (found []*maas.Machine) {
	s.unsuited.mu.Lock()
	defer s.unsuited.mu.Unlock()
	now := s.Quarantine.Now()
	for id, met := range s.unsuited.machines {
		if now.After(met.until) {
			delete(s.unsuited.machines, id)
			continue
		}
		if isUnsuited(met.Machine) {
			found = append(found, met.Machine)
		}
	}
	for _, m := range s.inventory.SeenBareMetal(seenMaxAge) {
		_, met := s.unsuited.machines[m.SystemID]
		if !met && m.Status == maas.StatusReady && isUnsuited(m) {
			found = append(found, m)
		}
	}
	slices.SortFunc(found, func(a, b *maas.Machine) int { return strings.Compare(a.SystemID, b.SystemID) })
	return found
}
