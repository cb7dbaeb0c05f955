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
func (r *MaasMachineReconciler) change(ctx context.Context, l *life, do func(context.Context) error) error {
	if l.IsLXD() {
		return do(ctx)
	}
	ctx = soon(ctx)
	earlier := l.MaasMachine.Annotations[infrav1.ChangeStartedAnnotation]
	if err := r.noteChange(ctx, l.MaasMachine, time.Now().UTC().Format(time.RFC3339)); err != nil {
		return err
	}
	err := do(ctx)
	if errors.Is(err, maas.Unavailable) && !maas.NotSent(err) {
		return err
	}
	// What became of this one is known, if not of an earlier one.
	return errors.Join(err, r.noteChange(ctx, l.MaasMachine, earlier))
}

// sendWithin is how long after its note a call is sent at the latest; a compose may wait for a look at its host. What is left of the settle
// time is for MAAS to go on with the call.
const sendWithin = 15 * time.Second

// soon answers a context with which MAAS is asked at once or not at all. A manager that was stopped after its note, and wakes up when
// another one has waited for the settle time and taken over, would take a second machine, or change one that is somebody else's by now.
func soon(ctx context.Context) context.Context {
	return maas.SendBefore(ctx, time.Now().Add(sendWithin))
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
