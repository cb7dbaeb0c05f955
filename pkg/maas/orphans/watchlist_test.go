// SPDX-License-Identifier: Apache-2.0

package orphans

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

func found(ids ...string) []Finding {
	var list []Finding
	for _, id := range ids {
		list = append(list, Finding{Machine: &maas.Machine{SystemID: id, Hostname: id}, OwnerID: "owner1"})
	}
	return list
}

func ids(findings []Finding) []string {
	var list []string
	for _, f := range findings {
		list = append(list, f.Machine.SystemID)
	}
	return list
}

// TestAnOrphanIsReportedOnceAfterTheSettleTime runs a series of audits.
func TestAnOrphanIsReportedOnceAfterTheSettleTime(t *testing.T) {
	type audit struct {
		at         time.Duration
		found      []string
		incomplete bool
		ripe, kept []string
	}
	for name, audits := range map[string][]audit{
		"in the second audit": {
			{at: 0, found: []string{"a"}},
			{at: 10 * time.Minute, found: []string{"a"}, ripe: []string{"a"}, kept: []string{"a"}},
			{at: 20 * time.Minute, found: []string{"a"}, kept: []string{"a"}},
		},
		"not before the settle time": {
			{at: 0, found: []string{"a"}},
			{at: time.Minute, found: []string{"a"}},
			{at: 2 * time.Minute, found: []string{"a"}},
			{at: 3 * time.Minute, found: []string{"a"}, ripe: []string{"a"}, kept: []string{"a"}},
		},
		"anew when it was none between": {
			{at: 0, found: []string{"a"}},
			{at: 10 * time.Minute, found: nil},
			{at: 20 * time.Minute, found: []string{"a"}},
			{at: 30 * time.Minute, found: []string{"a"}, ripe: []string{"a"}, kept: []string{"a"}},
			{at: 40 * time.Minute, found: nil},
			{at: 50 * time.Minute, found: []string{"a"}},
		},
		"also when MAAS could not be read between": {
			{at: 0, found: []string{"a"}},
			{at: 10 * time.Minute, incomplete: true},
			{at: 20 * time.Minute, found: []string{"a"}, ripe: []string{"a"}, kept: []string{"a"}},
			{at: 30 * time.Minute, incomplete: true, kept: []string{"a"}},
			{at: 40 * time.Minute, found: []string{"a"}, kept: []string{"a"}},
		},
		"each for itself": {
			{at: 0, found: []string{"b"}},
			{at: 10 * time.Minute, found: []string{"b", "a"}, ripe: []string{"b"}, kept: []string{"b"}},
			{at: 20 * time.Minute, found: []string{"b", "a"}, ripe: []string{"a"}, kept: []string{"a", "b"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, start := NewWatchlist(150*time.Second), time.Now()
			for _, a := range audits {
				ripe := w.Update(start.Add(a.at), found(a.found...), !a.incomplete)
				w.Reported(ripe)
				if diff := cmp.Diff(a.ripe, ids(ripe)); diff != "" {
					t.Errorf("after %s the report differs (-want +got):\n%s", a.at, diff)
				}
				if diff := cmp.Diff(a.kept, ids(w.Orphans())); diff != "" {
					t.Errorf("after %s the orphans differ (-want +got):\n%s", a.at, diff)
				}
			}
		})
	}
}

func TestAFindingThatChangesIsANewOne(t *testing.T) {
	w, start := NewWatchlist(time.Minute), time.Now()
	w.Update(start, found("a"), true)
	w.Reported(w.Update(start.Add(10*time.Minute), found("a"), true))
	changed := found("a")
	changed[0].Doubt = "its MaasCluster is gone"
	if w.Update(start.Add(20*time.Minute), changed, true); w.Knows(changed) || len(w.Orphans()) > 0 {
		t.Error("a finding that is in doubt now is taken for the one that was not")
	}
	if ripe := w.Update(start.Add(30*time.Minute), changed, true); len(ripe) != 1 {
		t.Errorf("it is not reported again: %v", ripe)
	}
}
