// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// heldInVain is the phase of bare metal that can't be deployed until a person does something. Then it is back in the pool
// for a while, whatever others do with it meanwhile.
const (
	heldInVain  = "held-in-vain"
	holdAtMost  = 15 * time.Minute
	backAtLeast = 15 * time.Minute
)

// inVain gives bare metal back that a person must do something for, after a while: other clusters can use it meanwhile.
// It is claimed again later, unless somebody else has it by then. What was changed on it is ours to undo, so then it
// stays. A VM is nobody else's, and stays.
func (r *Reconciler) inVain(ctx context.Context, l *life, cause error) error {
	if l.maas == nil || l.IsLXD() || !deployable(l.maas) || wasProvisioned(l.MaasMachine) || !needsPerson(cause) {
		return cause
	}
	held := l.record.Enter(heldInVain, r.Clock.Now())
	if held < holdAtMost || changed(l) {
		return cause
	}
	ours, err := r.prove(ctx, l)
	if err != nil || !ours {
		return errors.Join(err, cause)
	}
	if err := r.giveBackUnchanged(ctx, l); err != nil {
		return errors.Join(cause, err)
	}
	l.record.Enter("", r.Clock.Now())
	l.record.GivenBack = ptrTime(r.Clock.Now())
	r.Recorder.Eventf(l.MaasMachine, nil, corev1.EventTypeWarning, infrav1.GivenBackForNowReason, "Release",
		"machine %s (%s) is given back, as nothing was done in %s: %s",
		l.maas.Hostname, l.maas.SystemID, holdAtMost, report.Explain(cause).Message)
	return cause
}

// giveBackUnchanged gives a machine back that is as it was. What is recorded of that is forgotten: until the machine is
// claimed again, others may change it.
func (r *Reconciler) giveBackUnchanged(ctx context.Context, l *life) error {
	if _, recorded := l.MaasMachine.Annotations[infrav1.InterfacesAnnotation]; recorded {
		if err := l.record.Forget(ctx, infrav1.InterfacesAnnotation); err != nil {
			return err
		}
	}
	return r.giveBack(ctx, l, l.maas)
}

// changed reports whether something was done to the machine that is ours to undo. MAAS reads the interfaces of a machine
// anew only while it runs, which one that was not deployed for us never did.
func changed(l *life) bool {
	left := leftover(l)
	ran := l.record.Deployed == l.maas.SystemID || l.record.IsPending(record.Deploy)
	if left.Interfaces != nil && !ran {
		left.Interfaces.Reread = false
	}
	return left.On(l.maas) != (machine.Leftover{})
}

// needsPerson reports whether a machine waits for what a person must do in MAAS, in the spec, or in Kubernetes.
func needsPerson(err error) bool {
	var address *machine.AddressError
	var nic *machine.NICError
	var data *scope.BootstrapDataError
	return errors.As(err, &address) || errors.As(err, &nic) || errors.As(err, &data) || maas.NeedsPerson(err)
}

// pause returns why a machine that was given back is not claimed again yet; nil if it may be.
func (r *Reconciler) pause(_ context.Context, l *life) error {
	if l.maas == nil || l.record.GivenBack == nil {
		return nil
	}
	left := backAtLeast - r.Clock.Since(l.record.GivenBack.Time)
	if left <= 0 {
		l.record.GivenBack = nil
		return nil
	}
	return report.NotReady(report.Problem{
		Reason: infrav1.GivenBackForNowReason, RetryAfter: min(left, report.SafetyRetry),
		Message: fmt.Sprintf("machine %s (%s) could not be deployed, as its event %s says, and is in the pool for others; "+
			"it is claimed again at %s",
			l.maas.Hostname, l.maas.SystemID, infrav1.GivenBackForNowReason, timestamp(r.Clock.Now().Add(left))),
	})
}
