// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Machines whose commissioning could not apply the layout that a script wrote are Ready, and MAAS allocates them,
// though it can install nothing on them. It allocates DPUs, too, which can't be given back as they were. And machines
// that it then refuses to deploy, for a reason that is theirs: with an external DHCP server, for example, a network
// card may have no link on purpose, so that only the refusal shows it.

const (
	// unsuitedFor is how long a machine that nothing can be made of is left out after it was met.
	unsuitedFor = 30 * time.Minute
	// seenMaxAge is how old the list of all machines may be that shows such machines before they are met.
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
	refusal string // MAAS's words; "" if it depends on the spec whether something can be made of it
	until   time.Time
}

// Unsuited is a machine that nothing can be made of, and why.
type Unsuited struct {
	*maas.Machine
	Why string
}

// IsOwnRefusal reports whether MAAS refuses a deployment for what the machine lacks: another one may be deployed. Its
// network and its power are MAAS's alone, its disks unless the spec has a layout for them.
func IsOwnRefusal(err error, hasLayout bool) bool {
	return errors.Is(err, maas.Unroutable) || maas.InvalidField(err, "network") ||
		(maas.InvalidField(err, "storage") && !hasLayout)
}

// MeetUnsuited records that nothing can be made of a machine. refusal is why MAAS refuses to deploy it; "" if it
// depends on the spec.
func (s *Service) MeetUnsuited(m *maas.Machine, refusal string) {
	s.unsuited.mu.Lock()
	defer s.unsuited.mu.Unlock()
	if s.unsuited.machines == nil {
		s.unsuited.machines = map[string]metUnsuited{}
	}
	s.unsuited.machines[m.SystemID] = metUnsuited{m, refusal, s.Quarantine.Now().Add(unsuitedFor)}
}

// Unsuited returns the machines that are known, and of which MAAS has said, or why says, that nothing can be made, in a
// stable order: of those that were met, and those that are Ready in a recent list of all machines, if there is one.
func (s *Service) Unsuited(why func(*maas.Machine) string) (found []Unsuited) {
	s.unsuited.mu.Lock()
	defer s.unsuited.mu.Unlock()
	add := func(m *maas.Machine, because string) {
		if because != "" {
			found = append(found, Unsuited{m, because})
		}
	}
	now := s.Quarantine.Now()
	for id, met := range s.unsuited.machines {
		if now.After(met.until) {
			delete(s.unsuited.machines, id)
			continue
		}
		add(met.Machine, cmp.Or(met.refusal, why(met.Machine)))
	}
	for _, m := range s.inventory.SeenBareMetal(seenMaxAge) {
		if _, met := s.unsuited.machines[m.SystemID]; !met && m.Status == maas.StatusReady {
			add(m, why(m))
		}
	}
	slices.SortFunc(found, func(a, b Unsuited) int { return strings.Compare(a.SystemID, b.SystemID) })
	return found
}
