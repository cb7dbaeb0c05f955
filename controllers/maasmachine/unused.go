// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"errors"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// giveBack records that bare metal which was acquired is not used, and returns why; unused gives it back next. When its
// release has begun, nothing in MAAS leads from the object to the machine.
func (r *Reconciler) giveBack(ctx context.Context, l *life, m *maas.Machine, why outcome) (outcome, error) {
	ctrl.LoggerFrom(ctx).Info("Giving back a machine that is not used", "systemID", m.SystemID)
	return why.Within(time.Second), l.record.Store(ctx, func() {
		l.record.Acquired()
		l.record.Unused = m.SystemID
	})
}

// unused releases the machine that giveBack has recorded, as a deletion does, and waits until it is in the pool: only
// then another one is acquired.
func (r *Reconciler) unused(ctx context.Context, l *life) (outcome, error) {
	id := l.record.Unused
	if id == "" {
		return proceed, nil
	}
	m, err := l.Inventory.Read(ctx, id)
	if err != nil && !errors.Is(err, maas.NotFound) {
		return proceed, fmt.Errorf("reading machine %s, which is given back: %w", id, err)
	}
	if err == nil {
		own := l.maas
		l.maas = m
		out, err := r.releaseBareMetal(ctx, l)
		l.maas = own
		if out.Problem().Reason == infrav1.ReleasingReason {
			out = out.Within(report.UnknownRetry) // The inventory triggers no reconcile for it.
		}
		if err != nil || out.Waits() {
			return out, err
		}
	}
	l.Inventory.Forget(id)
	l.MaasMachine.Status.Release = nil
	return proceed, l.record.Store(ctx, func() {
		l.record.Unused, l.record.Release, l.record.Phase = "", nil, nil
	})
}
