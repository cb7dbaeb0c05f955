// SPDX-License-Identifier: Apache-2.0

package orphans

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

func found(ids ...string) []Finding {
	var list []Finding
	for _, id := range ids {
		list = append(list, Finding{Machine: &maas.Machine{SystemID: id, Hostname: id}, OwnerID: "owner1"})
	}
	return list
}

// unread reports the same for each MAAS.
func unread(all bool) func(guard.Server) bool { return func(guard.Server) bool { return all } }

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
				ripe := w.Update(start.Add(a.at), found(a.found...), unread(a.incomplete))
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
	w.Update(start, found("a"), unread(false))
	w.Reported(w.Update(start.Add(10*time.Minute), found("a"), unread(false)))
	changed := found("a")
	changed[0].Doubt = "its MaasCluster is gone"
	if w.Update(start.Add(20*time.Minute), changed, unread(false)); w.Knows(changed) || len(w.Orphans()) > 0 {
		t.Error("a finding that is in doubt now is taken for the one that was not")
	}
	if ripe := w.Update(start.Add(30*time.Minute), changed, unread(false)); len(ripe) != 1 {
		t.Errorf("it is not reported again: %v", ripe)
	}
}

// Another MAAS shows a machine of the same id, or can't be read: what is known of this one stays as it is.
func TestOrphansOfTwoMAASesAreNotMixedUp(t *testing.T) {
	here := maas.Config{Endpoint: "http://maas.example.com/MAAS"}.Server()
	there := maas.Config{Endpoint: "http://staging.example.com/MAAS"}.Server()
	in := func(server guard.Server, owner string) []Finding {
		list := found("a")
		list[0].Server, list[0].OwnerID = server, owner
		return list
	}
	w, start := NewWatchlist(time.Minute), time.Unix(0, 0)
	both := append(in(here, "owner1"), in(there, "owner2")...)
	w.Update(start, both, unread(false))
	ripe := w.Update(start.Add(time.Hour), both, unread(false))
	if len(ripe) != 2 {
		t.Fatalf("%d machines are reported, want one in each MAAS", len(ripe))
	}
	w.Reported(ripe)
	w.Update(start.Add(2*time.Hour), nil, func(server guard.Server) bool { return server == there })
	left := w.Orphans()
	if len(left) != 1 || left[0].Server != there {
		t.Errorf("after one of them is gone, and the other MAAS did not answer, there are %+v", left)
	}
}
