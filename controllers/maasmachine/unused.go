// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// unused releases the machines that are recorded so, as a deletion does, and waits until they are in the pool: only
// then another one is acquired.
func (r *Reconciler) unused(ctx context.Context, l *life) (outcome, error) {
	for len(l.record.Unused) > 0 {
		if out, err := r.giveOneBack(ctx, l, l.record.Unused[0]); err != nil || out.Waits() {
			return out, err
		}
	}
	return proceed, nil
}

func (r *Reconciler) giveOneBack(ctx context.Context, l *life, id string) (outcome, error) {
	m, err := l.Inventory.Read(ctx, id)
	if err != nil && !errors.Is(err, maas.NotFound) {
		return proceed, fmt.Errorf("reading machine %s, which is given back: %w", id, err)
	}
	if err == nil {
		out, err := r.releaseUnused(ctx, l, m)
		if err != nil || out.Waits() {
			return out, err
		}
	}
	l.Inventory.Forget(id)
	l.MaasMachine.Status.Release = nil
	return proceed, l.record.Store(ctx, func() { // What was said of this one does not hold for the next.
		l.record.Unused = slices.DeleteFunc(slices.Clone(l.record.Unused), func(other string) bool { return other == id })
		l.record.Release, l.record.Phase, l.record.Quarantine = nil, nil, ""
	})
}

// releaseUnused releases a machine in place of the object's.
func (r *Reconciler) releaseUnused(ctx context.Context, l *life, m *maas.Machine) (outcome, error) {
	defer func(own *maas.Machine) { l.maas = own }(l.maas)
	l.maas = m
	out, err := r.releaseBareMetal(ctx, l)
	if out.Problem().Reason == infrav1.ReleasingReason {
		out = out.Within(report.UnknownRetry) // The inventory triggers no reconcile for it.
	}
	return out, err
}
