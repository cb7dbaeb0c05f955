// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

// refused are the errors of calls that fail; the value is whether the machine may not be as it was last seen.
var refused = map[string]struct {
	err  error
	news bool
}{
	"refused":        {&maas.Error{Kind: maas.Invalid, Status: 400}, false},
	"forbidden":      {&maas.Error{Kind: maas.Forbidden, Status: 403}, false},
	"busy":           {&maas.Error{Kind: maas.Busy, Status: 409}, false},
	"not sent":       {&maas.Error{Kind: maas.Unavailable, NotSent: true}, false},
	"not found":      {&maas.Error{Kind: maas.NotFound, Status: 404}, true},
	"in a conflict":  {&maas.Error{Kind: maas.Conflict, Status: 409}, true},
	"no address":     {&maas.Error{Kind: maas.Exhausted, Status: 503}, true},
	"no reserved IP": {&maas.Error{Kind: maas.Unaddressed, Status: 404}, true},
	"lost":           {&maas.Error{Kind: maas.Unavailable}, true},
	"a server error": {&maas.Error{Kind: maas.Unavailable, Status: 500}, true},
}

func TestACallThatFailsWakesNobody(t *testing.T) {
	t.Parallel()
	for name, tc := range refused {
		for _, interest := range []Interest{Settled, Changing, Leaving} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				i, s := newScript(t)
				s.deploy(i, interest, 3)
				s.polls(i, 2)
				before := s.told["m0000"]
				for range 5 {
					_, _ = i.Change("m0000", func(*maas.Client) (*maas.Machine, error) { return nil, tc.err })
					if known := i.Observe("m0000", interest).Known; known == tc.news {
						t.Errorf("before MAAS is asked again, the machine is known: %t", known)
					}
					s.polls(i, 1)
					if !i.Observe("m0000", interest).Known {
						t.Error("the machine is not known, though MAAS was asked again")
					}
				}
				if n := s.told["m0000"] - before; n != 0 {
					t.Errorf("a call that failed five times woke its caller %d times", n)
				}
				s.machines["m0000"] = &maas.Machine{SystemID: "m0000", Status: maas.StatusBroken}
				_, _ = i.Change("m0000", func(*maas.Client) (*maas.Machine, error) { return nil, tc.err })
				s.polls(i, sweeps)
				if n := s.told["m0000"] - before; n != 1 {
					t.Errorf("what changed in MAAS meanwhile was told %d times", n)
				}
			})
		}
	}
}

// Settled machines are polled once a minute: what a call that failed may have done shows sooner.
func TestAMachineIsPolledSoonAfterACallWasLost(t *testing.T) {
	inventory, region, changed := start(t, time.Millisecond, never)
	region.set("a", maas.StatusDeployed)
	inventory.Observe("a", Settled)
	eventually.True(t, "a is known", func() bool { return changed.count("a") == 1 })
	region.set("a", maas.StatusDeploying)
	_, _ = inventory.Change("a", failedChange)
	eventually.True(t, "its effect is told", func() bool { return changed.count("a") == 2 })
}

// counter is a MAAS that has all machines, and counts the lists.
type counter struct {
	source
	lists int
}

func (c *counter) ListMachines(_ context.Context, filter maas.MachineFilter) (found []*maas.Machine, _ error) {
	c.lists++
	for _, id := range filter.SystemIDs {
		found = append(found, &maas.Machine{SystemID: id, Status: maas.StatusDeploying})
	}
	return found, nil
}

// What MAAS says to a change is known: only machines that change by themselves are worth a list.
func TestAChangeCostsNoList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := simtest.Client(t, "http://127.0.0.1:1/MAAS", "a:b:c")
		count := &counter{}
		i := New(client, Options{ActiveInterval: scriptedActive, IdleInterval: scriptedIdle, Notify: func(string) {}, Logger: testr.New(t)})
		i.source = count
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go i.Run(ctx)
		deploying := &maas.Machine{SystemID: "a", Status: maas.StatusDeploying}
		i.Track(deploying)
		for range 60 {
			_, _ = i.Change("a", func(*maas.Client) (*maas.Machine, error) { return deploying, nil })
			<-time.After(time.Second) // On the fake clock.
		}
		cancel()
		synctest.Wait()
		if want := int(time.Minute / scriptedActive); count.lists > want+1 || count.lists < want-1 {
			t.Errorf("%d lists in a minute with 60 changes, want %d, as without", count.lists, want)
		}
	})
}
