// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"slices"
	"time"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
)

// change has MAAS change a bare-metal machine. It records before that it does, together with what notes say. MAAS may go on with a call
// after the client stopped waiting for the response: such a change must not reach the machine when it is back in the pool, or another
// user's. A VM is gone by then.
func (r *MaasMachineReconciler) change(ctx context.Context, l *life, do func(context.Context) error, notes ...func(*infrav1.MaasMachine)) error {
	if l.IsLXD() {
		return do(ctx)
	}
	ctx = soon(ctx)
	earlier := l.MaasMachine.Annotations[infrav1.ChangeStartedAnnotation]
	if err := patchLocked(ctx, r.Client, l.MaasMachine, noteChange(clock(time.Now()), notes...)); err != nil {
		return err
	}
	err := do(ctx)
	if err != nil && !hadNoEffect(err) {
		return err
	}
	// What became of this one is known, if not of an earlier one.
	return errors.Join(err, forget(ctx, r.Client, l.MaasMachine, noteChange(earlier)))
}

// hadNoEffect reports whether a call that failed certainly changed nothing in MAAS: it was refused, rolled back, or never sent.
func hadNoEffect(err error) bool {
	return !errors.Is(err, maas.Unavailable) || errors.Is(err, maas.Busy) || maas.NotSent(err)
}

// isOver reports whether MAAS is done with a compose that failed, so that no VM comes of it later.
func isOver(err error) bool { return err != nil && hadNoEffect(err) }

// wasNotComposed reports whether a compose that failed certainly left no VM on the host. MAAS has the host make it before it is done with its own
// part: what it refuses or rolls back after that stays on the host (models/bmc.py: create_machine).
func wasNotComposed(err error) bool {
	var later *lxd.LaterError
	if errors.As(err, &later) || maas.NotSent(err) || maas.InvalidField(err, "hostname") {
		return true
	}
	return slices.ContainsFunc([]maas.Kind{maas.Unauthorized, maas.Forbidden, maas.NotFound, maas.Gone}, func(kind maas.Kind) bool { return errors.Is(err, kind) })
}

// sendWithin is how long after its note a call is sent at the latest; a compose may wait for a look at its host. What is left of the settle
// time is for MAAS to go on with the call.
const sendWithin = 15 * time.Second

// soon returns a context with which MAAS is asked at once or not at all. A manager that was stopped after its note, and wakes up when
// another one has waited for the settle time and taken over, would take a second machine, or change one that is another user's by now.
func soon(ctx context.Context) context.Context {
	return maas.SendBefore(ctx, time.Now().Add(sendWithin))
}

func noteChange(at string, notes ...func(*infrav1.MaasMachine)) func(*infrav1.MaasMachine) {
	return func(m *infrav1.MaasMachine) {
		annotate(m, infrav1.ChangeStartedAnnotation, at)
		for _, note := range notes {
			note(m)
		}
	}
}
