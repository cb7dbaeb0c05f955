// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/capmaas/cluster-api-provider-maas/test/audit"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// figures count all events.
type figures struct {
	cancel func()

	mutex    sync.Mutex
	counts   map[string]int
	findings map[audit.Finding]bool
}

func newFigures(maas *simulator.Simulator) *figures {
	f := &figures{counts: map[string]int{}, findings: map[audit.Finding]bool{}}
	f.cancel = maas.Subscribe(f.record)
	return f
}

func (f *figures) close() { f.cancel() }

func (f *figures) add(what string, n int) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.counts[what] += n
}

// record counts changes of machines in MAAS.
func (f *figures) record(m simulator.MachineSnapshot, change simulator.Change) {
	isVM := m.VMHost != ""
	switch {
	case change.Kind == simulator.ChangeCreated && isVM:
		f.add("VMs created", 1)
	case change.Kind == simulator.ChangeDeleted:
		f.add("VMs deleted", 1)
	case change.Kind != simulator.ChangeStatus || isVM:
	case change.From == "Ready":
		f.add("bare metal taken", 1)
	case change.To == "Ready":
		f.add("bare metal given back", 1)
	case strings.HasPrefix(change.To, "Failed") || strings.HasSuffix(change.To, "failed"):
		f.add("bare metal that failed", 1)
	}
}

// found records findings, and returns those that are new.
func (f *figures) found(findings []audit.Finding) (fresh []audit.Finding) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for _, one := range findings {
		if !f.findings[one] {
			f.findings[one] = true
			fresh = append(fresh, one)
		}
	}
	return fresh
}

// line returns all figures, with the faults by kind.
func (f *figures) line(faults map[string]int, total int) string {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	kinds := map[audit.Kind]int{}
	for finding := range f.findings {
		kinds[finding.Kind]++
	}
	return fmt.Sprintf("%s; %d faults (%s); leaks %d, doubles %d, wipes %d, thefts %d, other findings %d",
		listed(f.counts), total, listed(faults), kinds[audit.Leaked], kinds[audit.Doubled], kinds[audit.Wiped], kinds[audit.Stolen],
		len(f.findings)-kinds[audit.Leaked]-kinds[audit.Doubled]-kinds[audit.Wiped]-kinds[audit.Stolen])
}

func listed(counts map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(parts, ", ")
}
