// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
)

// A machine that MAAS gave is ours from then on, and spec.systemID names it for ever. So it is accepted first.

// Acceptance goes on with the machine that MAAS gave, or gives it back if it can't become this one.
func (s *Steps) Acceptance(ctx context.Context, l *life.Life) (life.Outcome, error) {
	defer l.EndTurn()
	m := s.bid.given
	s.bid.given = nil
	switch {
	case m == nil:
		return life.Proceed, nil
	case m.Pod != nil: // The next try knows the host.
		return s.recordUnused(ctx, l, m, report.Retry(report.UnknownRetry, infrav1.NoMachineAvailableReason,
			"no machine fitted, and MAAS made VM %s on the new VM host %s instead; it is given back", m.Hostname,
			m.HostName()))
	case hasOthersStorage(l, m):
		return s.recordUnusedForStorage(ctx, l, m)
	case life.Deployable(m) && whyUnsuited(l, m) != "":
		l.Machines.MeetUnsuited(m, "") // It is left out for a while.
		return s.recordUnused(ctx, l, m, report.Retry(report.UnknownRetry, infrav1.NoMachineAvailableReason,
			"machine %s %s; it is given back", m, whyUnsuited(l, m)))
	}
	how := "Allocated"
	if s.bid.adopted {
		how = "Adopted"
	}
	if err := s.acquired(ctx, l, m, how); err != nil || len(s.bid.extra) == 0 {
		return life.Proceed, err
	}
	return report.Retry(time.Second, infrav1.NotReadyReason, "MAAS has acquired more machines for this object, which are "+
		"given back: %s", text.List(s.bid.extra, life.MaxSkipped)), nil
}

// recordUnused records that bare metal which was acquired is not used, and returns why; Unused gives it back next. When
// its release has begun, nothing in MAAS leads from the object to the machine.
func (s *Steps) recordUnused(
	ctx context.Context, l *life.Life, m *maas.Machine, why life.Outcome,
) (life.Outcome, error) {
	s.bid.extra = append(s.bid.extra, m.SystemID)
	return why.Within(time.Second), l.Record.Store(ctx, func() { s.acquiredExtra(l) })
}

// acquiredExtra records all machines that MAAS gave the object and that it does not use, in place of the requests that
// acquired them.
func (s *Steps) acquiredExtra(l *life.Life) {
	l.Record.Acquired()
	l.Record.Unused = sets.List(sets.New(l.Record.Unused...).Insert(s.bid.extra...))
}

// acquired continues with a machine that is proven to be ours.
func (s *Steps) acquired(ctx context.Context, l *life.Life, m *maas.Machine, how string) error {
	if s.leftover == (machine.Leftover{}) {
		s.leftover = l.Machines.LeftOn(m, l.Mark())
	}
	if err := s.Take(ctx, l, m, how, func() { s.acquiredExtra(l) }, s.recordLeftover); err != nil {
		return err
	}
	s.tellDataDisks(l)
	return nil
}
