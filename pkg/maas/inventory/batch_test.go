// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Such MAASes exist: 2.5 needed 0.4 s for each machine in a list.
func TestASlowMAASIsSweptInSmallerLists(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{30 * time.Second, 5 * time.Second} {
		t.Run(timeout.String(), func(t *testing.T) {
			t.Parallel()
			i, s := newScript(t)
			s.perItem, s.timeout = 160*time.Millisecond, timeout
			ids := s.deploy(i, Settled, 1000)
			s.polls(i, 1)
			for _, id := range ids {
				if !i.Observe(id, Settled).Known {
					t.Fatalf("%s is not known after a sweep of %d lists", id, len(s.lists))
				}
			}
			if i.Health() != nil {
				t.Errorf("health is %v, and smaller lists work", i.Health())
			}
		})
	}
}

func TestTheBatchGrowsAgain(t *testing.T) {
	t.Parallel()
	i, s := newScript(t)
	s.perItem = time.Second
	s.deploy(i, Settled, 250)
	s.polls(i, 1)
	if size := i.batch.next(); size > 10 {
		t.Fatalf("after lists that need a second for each machine, the next one asks for %d", size)
	}
	s.perItem = time.Millisecond
	for range 3 {
		s.clock = s.clock.Add(time.Hour)
		s.polls(i, 1)
	}
	if size := i.batch.next(); size != batchSize {
		t.Errorf("MAAS is fast again, and a list asks for %d", size)
	}
}

func TestASweepDoesNotKeepChangingMachinesWaiting(t *testing.T) {
	t.Parallel()
	i, s := newScript(t)
	s.perItem = 160 * time.Millisecond
	s.deploy(i, Settled, 1000)
	s.machines["moving"] = &maas.Machine{SystemID: "moving", Status: maas.StatusDeploying}
	i.Observe("moving", Changing)
	s.polls(i, 1) // A sweep.
	first := slices.IndexFunc(s.lists, func(ids []string) bool { return slices.Contains(ids, "moving") })
	since := 0
	for _, ids := range s.lists[first:] {
		if since++; slices.Contains(ids, "moving") {
			since = 0
		}
		if since > 3 { // Only while lists time out.
			t.Fatalf("%d lists of a sweep went by without the changing machine", since)
		}
	}
	ended := s.clock.Add(-scriptedActive)
	took := ended.Sub(time.Unix(1_000_000, 0))
	s.lists = nil
	for s.clock.Before(ended.Add(restFactor * took)) {
		s.polls(i, 1)
	}
	for _, ids := range s.lists[:len(s.lists)-1] {
		if len(ids) > 1 {
			t.Fatalf("a sweep that took %s was followed by the next before MAAS could rest", took)
		}
	}
	s.lists = nil
	s.polls(i, 2)
	if !slices.ContainsFunc(s.lists, func(ids []string) bool { return len(ids) > 1 }) {
		t.Error("there was no further sweep")
	}
}

func TestListsThatTimeOutForOneMachineAreIllHealth(t *testing.T) {
	t.Parallel()
	i, s := newScript(t)
	s.perItem = time.Minute
	s.deploy(i, Changing, 2)
	for range 2 * silentLists {
		_ = i.poll(t.Context())
		s.clock = s.clock.Add(scriptedActive)
	}
	if i.Health() == nil {
		t.Error("MAAS lists nothing in time, and counts as healthy")
	}
	s.perItem = time.Second
	s.polls(i, 1)
	if i.Health() != nil {
		t.Errorf("MAAS lists again, and health is %v", i.Health())
	}
}
