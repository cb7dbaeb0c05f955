// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"errors"
	"fmt"
	"slices"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Unused releases the machines that are recorded so, as a deletion does, and waits until they are in the pool: only
// then another one is acquired.
func (s *Steps) Unused(ctx context.Context, l *life.Life) (life.Outcome, error) {
	for len(l.Record.Unused) > 0 {
		if out, err := s.giveOneBack(ctx, l, l.Record.Unused[0]); err != nil || out.Waits() {
			return out, err
		}
	}
	return life.Proceed, nil
}

func (s *Steps) giveOneBack(ctx context.Context, l *life.Life, id string) (life.Outcome, error) {
	m, err := l.Inventory.Read(ctx, id)
	if err != nil && !errors.Is(err, maas.NotFound) {
		return life.Proceed, fmt.Errorf("reading machine %s, which is given back: %w", id, err)
	}
	if err == nil {
		out, err := s.releaseUnused(ctx, l, m)
		if err != nil || out.Waits() {
			return out, err
		}
	}
	l.Inventory.Forget(id)
	l.MaasMachine.Status.Release = nil
	return life.Proceed, l.Record.Store(ctx, func() { // What was said of this one does not hold for the next.
		l.Record.Unused = slices.DeleteFunc(slices.Clone(l.Record.Unused), func(other string) bool { return other == id })
		l.Record.Release, l.Record.Phase, l.Record.Quarantine = nil, nil, ""
	})
}

// releaseUnused releases a machine as a deletion releases that of the object.
func (s *Steps) releaseUnused(ctx context.Context, l *life.Life, m *maas.Machine) (life.Outcome, error) {
	out, err := s.releaseBareMetal(ctx, l.Of(m))
	if out.Problem().Reason == infrav1.ReleasingReason {
		out = out.Within(report.UnknownRetry) // The inventory triggers no reconcile for it.
	}
	return out, err
}
