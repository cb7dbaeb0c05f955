// SPDX-License-Identifier: Apache-2.0

package orphans

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

// Watchlist keeps the findings of one audit for the next: a machine is an orphan only if it was one in two audits that
// are at least the settle time apart, and in all audits between. It is not safe for concurrent use.
type Watchlist struct {
	settle time.Duration
	seen   map[guard.Key]sighting
}

type sighting struct {
	Finding
	since    time.Time
	reported bool
}

// key is the machine's: another MAAS can show the same id.
func (f *Finding) key() guard.Key { return f.Server.Key(f.Machine.SystemID) }

// NewWatchlist makes an empty one.
func NewWatchlist(settle time.Duration) *Watchlist {
	return &Watchlist{settle: settle, seen: map[guard.Key]sighting{}}
}

// Update takes in the findings of an audit, and returns those that are ripe for a report and not reported yet. Findings
// of a MAAS that could not be read are kept.
func (w *Watchlist) Update(now time.Time, findings []Finding, isUnread func(guard.Server) bool) (ripe []Finding) {
	next := maps.Clone(w.seen)
	maps.DeleteFunc(next, func(machine guard.Key, _ sighting) bool { return !isUnread(machine.Server()) })
	for _, f := range findings {
		old, again := w.seen[f.key()]
		s := sighting{Finding: f, since: now}
		if again && old.Doubt == f.Doubt && old.OwnerID == f.OwnerID {
			s.since, s.reported = old.since, old.reported
		}
		if again && !s.reported && now.Sub(s.since) >= w.settle {
			ripe = append(ripe, f)
		}
		next[f.key()] = s
	}
	w.seen = next
	return ripe
}

// Reported records that these need not be reported again while they stay as they are.
func (w *Watchlist) Reported(findings []Finding) {
	for _, f := range findings {
		s := w.seen[f.key()]
		s.reported = true
		w.seen[f.key()] = s
	}
}

// Knows reports whether all of these were reported before.
func (w *Watchlist) Knows(findings []Finding) bool {
	return !slices.ContainsFunc(findings, func(f Finding) bool { return !w.seen[f.key()].reported })
}

// Orphans returns all findings that were reported and still exist, sorted by hostname.
func (w *Watchlist) Orphans() []Finding {
	reported := slices.DeleteFunc(slices.Collect(maps.Values(w.seen)), func(s sighting) bool { return !s.reported })
	slices.SortFunc(reported, func(a, b sighting) int {
		return cmp.Or(cmp.Compare(a.Machine.Hostname, b.Machine.Hostname),
			cmp.Compare(a.Machine.SystemID, b.Machine.SystemID))
	})
	return list.Each(reported, func(s sighting) Finding { return s.Finding })
}
