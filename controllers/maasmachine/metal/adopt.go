// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"sort"
	"time"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/internal/states"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// Lookup reads a machine that was acquired before from the inventory.
func (s *Steps) Lookup(_ context.Context, l *life.Life) (life.Outcome, error) {
	if l.MaasMachine.Spec.SystemID == "" {
		return life.Proceed, nil
	}
	if out, err := s.ReadMachine(l, l.Interest()); err != nil || out.Waits() || l.MAAS != nil {
		return out, err
	}
	return s.ReportState(l, states.Vanished), nil
}

// DeletionLookup finds the machine, even if it was acquired but not recorded.
func (s *Steps) DeletionLookup(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MaasMachine.Spec.SystemID != "" {
		out, err := s.ReadMachine(l, inventory.Changing)
		l.NoteDeployment()
		if err != nil || out.Waits() {
			return out, err
		}
		return s.onlyNamed(ctx, l)
	}
	found, err := l.Machines.Find(ctx, l.Identity())
	if err == nil && len(found) == 0 {
		return report.Settle(l.Record.Unsettled()), nil
	}
	if err == nil {
		s.adoptOne(l, found)
	}
	return life.Proceed, err
}

// Adoption finds machines that an earlier attempt acquired but could not record. It keeps one, and releases the others.
func (s *Steps) Adoption(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MAAS != nil {
		return s.onlyNamed(ctx, l)
	}
	found, err := l.Machines.Find(ctx, l.Identity())
	if err == nil && len(found) == 0 {
		// Settlement waits for those, if it has to.
		return report.Settle(l.Record.Unsettled(record.Storage, record.Exclude)), nil
	}
	if err == nil {
		s.adoptOne(l, found)
	}
	return life.Proceed, err
}

// onlyNamed gives back a machine that was acquired and could not be recorded, because a person has named another one in
// the spec meanwhile.
func (s *Steps) onlyNamed(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if !l.Record.IsPending(record.Allocate) && !l.Record.IsPending(record.TakeOver) {
		return life.Proceed, nil
	}
	if out := report.Settle(l.Record.Unsettled()); out.Waits() { // All that was asked for is given back together.
		return out, nil
	}
	found, err := l.Machines.Find(ctx, l.Identity())
	if err != nil {
		return life.Proceed, err
	}
	for _, m := range found {
		if m.SystemID != l.MaasMachine.Spec.SystemID {
			s.bid.extra = append(s.bid.extra, m.SystemID)
		}
	}
	if len(s.bid.extra) == 0 {
		l.Record.Done(record.Allocate)
		l.Record.Done(record.TakeOver)
		return life.Proceed, nil
	}
	return report.Retry(time.Second, infrav1.NotReadyReason, "what the spec does not name is given back: %s",
		text.List(s.bid.extra, life.MaxSkipped)), l.Record.Store(ctx, func() { s.acquiredExtra(l) })
}

// adoptOne continues with one of the machines that were found, and releases the others: those that failed recently.
func (s *Steps) adoptOne(l *life.Life, found []*maas.Machine) {
	sort.SliceStable(found, func(i, j int) bool {
		return !l.Machines.Quarantine.FailedRecently(found[i]) && l.Machines.Quarantine.FailedRecently(found[j])
	})
	for _, extra := range found[1:] {
		s.bid.extra = append(s.bid.extra, extra.SystemID)
	}
	s.bid.given, s.bid.adopted = found[0], true
}
