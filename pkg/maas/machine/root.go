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
// though it can install nothing on them.

const (
	// rootlessFor is how long a machine without a root file system is left out after it was met.
	rootlessFor = 30 * time.Minute
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

// rootless are the machines that were met without a root file system, by system id.
type rootless struct {
	mu       sync.Mutex
	machines map[string]metRootless
}

type metRootless struct {
	*maas.Machine
	until time.Time
}

// MeetRootless records that a machine has no root file system.
func (s *Service) MeetRootless(m *maas.Machine) {
	s.rootless.mu.Lock()
	defer s.rootless.mu.Unlock()
	if s.rootless.machines == nil {
		s.rootless.machines = map[string]metRootless{}
	}
	s.rootless.machines[m.SystemID] = metRootless{m, s.Quarantine.Now().Add(rootlessFor)}
}

// Rootless returns the machines without a root file system that are known, in a stable order: those that were met, and
// those in a recent list of all machines, if there is one.
func (s *Service) Rootless() (found []*maas.Machine) {
	s.rootless.mu.Lock()
	defer s.rootless.mu.Unlock()
	now := s.Quarantine.Now()
	for id, met := range s.rootless.machines {
		if now.After(met.until) {
			delete(s.rootless.machines, id)
			continue
		}
		found = append(found, met.Machine)
	}
	for _, m := range s.inventory.SeenBareMetal(seenMaxAge) {
		_, met := s.rootless.machines[m.SystemID]
		if !met && m.Status == maas.StatusReady && !HasRoot(m) {
			found = append(found, m)
		}
	}
	slices.SortFunc(found, func(a, b *maas.Machine) int { return strings.Compare(a.SystemID, b.SystemID) })
	return found
}
