// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
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

// What MAAS can't answer because of one machine does not concern the others.
func TestAMachineThatMAASCannotListKeepsNoOtherWaiting(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"an error":     &maas.Error{Kind: maas.Unavailable, Status: http.StatusInternalServerError},
		"it is long":   fmt.Errorf("%w: %w", &maas.Error{Kind: maas.Unavailable, Status: http.StatusOK}, guard.ErrTooLong),
		"it times out": fmt.Errorf("%w: %w", maas.Unavailable, context.DeadlineExceeded),
	} {
		for _, interest := range []Interest{Settled, Changing} {
			t.Run(fmt.Sprint(name, interest), func(t *testing.T) {
				t.Parallel()
				i, s := newScript(t)
				ids := s.deploy(i, interest, 300)
				bad := ids[70]
				s.bad[bad] = err
				for range sweeps {
					s.polls(i, 1)
					for _, id := range ids {
						if known := i.Observe(id, interest).Known; known == (id == bad) {
							t.Fatalf("%s is known: %t", id, known)
						}
					}
					if i.Health() != nil {
						t.Fatalf("health is %v, and MAAS lists all but one", i.Health())
					}
				}
				s.lists = nil
				s.polls(i, sweeps)
				if n := s.failed(); n == 0 || n > 6 {
					t.Errorf("%d lists with a machine that can't be listed were asked for", n)
				}
				delete(s.bad, bad)
				s.polls(i, sweeps)
				if !i.Observe(bad, interest).Known {
					t.Error("MAAS lists the machine again, and it is not known")
				}
				s.bad[bad] = err
				before := s.told[bad]
				s.polls(i, 2*sweeps)
				if i.Observe(bad, interest).Known || s.told[bad] != before+1 {
					t.Errorf("what was seen of it still counts, or that was told %d times", s.told[bad]-before)
				}
			})
		}
	}
}

// failed returns how many of the lists asked for something that MAAS can't list.
func (s *script) failed() (n int) {
	for _, ids := range s.lists {
		if slices.ContainsFunc(ids, func(id string) bool { return s.bad[id] != nil }) {
			n++
		}
	}
	return n
}

func TestAMAASThatCannotListAnyMachineIsIll(t *testing.T) {
	t.Parallel()
	i, s := newScript(t)
	ids := s.deploy(i, Settled, 300)
	for _, id := range ids {
		s.bad[id] = &maas.Error{Kind: maas.Unavailable, Status: http.StatusInternalServerError}
	}
	for range 20 {
		_ = i.poll(t.Context())
		s.clock = s.clock.Add(scriptedActive)
	}
	if i.Health() == nil {
		t.Error("MAAS lists nothing, and counts as healthy")
	}
	if len(s.lists) > 60 {
		t.Errorf("in 20 polls, it was asked for %d lists", len(s.lists))
	}
	clear(s.bad)
	s.polls(i, 1)
	if i.Health() != nil {
		t.Errorf("MAAS lists again, and health is %v", i.Health())
	}
	s.polls(i, sweeps)
	for _, id := range ids {
		if !i.Observe(id, Settled).Known {
			t.Fatalf("%s is not known", id)
		}
	}
}

func TestListsThatTimeOutForOneMachineAreIllHealth(t *testing.T) {
	t.Parallel()
	i, s := newScript(t)
	s.perItem = time.Minute
	s.deploy(i, Changing, 2)
	for range 2 * failedLists {
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
