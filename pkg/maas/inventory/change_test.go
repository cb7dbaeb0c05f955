// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
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
	inventory, region, changed := start(t, never, never)
	region.set("a", maas.StatusDeployed)
	inventory.Observe("a", Settled)
	eventually(t, "a is known", func() bool { return changed.count("a") == 1 })
	region.set("a", maas.StatusDeploying)
	_, _ = inventory.Change("a", failedChange)
	eventually(t, "its effect is told", func() bool { return changed.count("a") == 2 })
}
