// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"time"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// change has MAAS change a bare-metal machine, and notes before that it does. MAAS may go on with a call whose answer nobody waits for any
// more: such a change must not come over the machine when it is back in the pool, or somebody else's. A VM is gone by then.
func (r *MaasMachineReconciler) change(ctx context.Context, l *life, do func() error) error {
	if l.IsLXD() {
		return do()
	}
	earlier := l.MaasMachine.Annotations[infrav1.ChangeStartedAnnotation]
	if err := r.noteChange(ctx, l.MaasMachine, time.Now().UTC().Format(time.RFC3339)); err != nil {
		return err
	}
	err := do()
	if errors.Is(err, maas.Unavailable) && !maas.NotSent(err) {
		return err
	}
	// What became of this one is known, if not of an earlier one.
	return errors.Join(err, r.noteChange(ctx, l.MaasMachine, earlier))
}

func (r *MaasMachineReconciler) noteChange(ctx context.Context, m *infrav1.MaasMachine, at string) error {
	return patchNow(ctx, r.Client, m, func(m *infrav1.MaasMachine) {
		if at == "" {
			delete(m.Annotations, infrav1.ChangeStartedAnnotation)
			return
		}
		annotate(m, infrav1.ChangeStartedAnnotation, at)
	})
}

// unsettled is for how long something may still happen in MAAS that it was asked for, or 0: a machine may turn up, or be changed.
func (r *MaasMachineReconciler) unsettled(m *infrav1.MaasMachine) (left time.Duration) {
	for _, note := range []string{infrav1.AcquireStartedAnnotation, infrav1.ChangeStartedAnnotation} {
		if started, err := time.Parse(time.RFC3339, m.Annotations[note]); err == nil {
			left = max(left, time.Until(started.Add(r.SettleTime)))
		}
	}
	return left
}
