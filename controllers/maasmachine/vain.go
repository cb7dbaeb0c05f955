// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"errors"
	"time"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// heldInVain is the phase of bare metal that can't be deployed until a person does something. Then it is back in the
// pool for a while, whatever others do with it meanwhile.
const (
	heldInVain  = "held-in-vain"
	holdAtMost  = 15 * time.Minute
	backAtLeast = 15 * time.Minute
)

// inVain begins to give bare metal back that a person must do something for, after a while: other clusters can use it
// meanwhile. It is claimed again later, unless another user has it by then. A VM is nobody else's, and stays.
func (r *Reconciler) inVain(ctx context.Context, l *life, cause error) (outcome, error) {
	if l.maas == nil || l.IsLXD() || !deployable(l.maas) || wasProvisioned(l.MaasMachine) || !needsPerson(cause) ||
		isHandedBack(l) {
		return proceed, cause
	}
	if l.record.Enter(heldInVain, r.Clock.Now()) < holdAtMost {
		l.record.GivenBack = nil // It is ours again.
		return proceed, cause
	}
	if notOurs, err := r.prove(ctx, l); err != nil || notOurs.Waits() {
		return proceed, errors.Join(err, cause)
	}
	l.record.GivenBack = ptrTime(r.Clock.Now())
	if l.record.Deployed != l.maas.SystemID && !l.record.IsPending(record.Deploy) {
		l.record.Enter(undoing, r.Clock.Now()) // Its disks are as they were.
	}
	r.Warn(l.MaasMachine, infrav1.GivenBackForNowReason, "GiveBack",
		"machine %s is given back, as nothing was done in %s: %s", l.maas, holdAtMost, report.Explain(cause).Message)
	out, err := r.handBack(ctx, l)
	if err != nil {
		return proceed, errors.Join(cause, err)
	}
	return out, nil
}

// isHandedBack reports whether the machine is on its way back to the pool, for now.
func isHandedBack(l *life) bool {
	return l.record.GivenBack != nil && (l.record.In(heldInVain) || releaseBegan(l))
}

// returnable are the states of a machine of ours that handBack goes on with.
var returnable = onItsWay.Union(backInPool).Insert(maas.StatusAllocated, maas.StatusReleasingFailed,
	maas.StatusFailedDiskErasing)

// handBack gives a machine back for now as a deletion does, and with it all that was done to its network and its
// storage. What is recorded of that is forgotten in the end: until the machine is claimed again, others may change it.
func (r *Reconciler) handBack(ctx context.Context, l *life) (outcome, error) {
	if l.maas == nil || !isHandedBack(l) {
		return proceed, nil
	}
	if !returnable.Has(l.maas.Status) {
		ours, err := l.Machines.IsOurs(ctx, l.Identity(), l.maas)
		if err != nil {
			return proceed, err
		}
		if ours { // A person does something with it.
			l.record.GivenBack = nil
			l.record.Enter("", r.Clock.Now())
			return proceed, nil
		}
	}
	if out, err := reconciler.Through(ctx, l, []step{r.release, r.restoration}); err != nil || out.Waits() {
		return out, err
	}
	l.Machines.StopWithholding(l.maas.SystemID, l.Mark())
	for _, undone := range []string{infrav1.InterfacesAnnotation, infrav1.StaticIPAnnotation} {
		if _, recorded := l.MaasMachine.Annotations[undone]; !recorded {
			continue
		}
		if err := l.record.Forget(ctx, undone); err != nil {
			return proceed, err
		}
	}
	l.record.Release, l.MaasMachine.Status.Release = nil, nil
	l.record.Enter("", r.Clock.Now())
	l.record.GivenBack = ptrTime(r.Clock.Now())
	return proceed, nil
}

// needsPerson reports whether a machine waits for what a person must do in MAAS, in the spec, or in Kubernetes.
func needsPerson(err error) bool {
	return guard.Is[*machine.AddressError](err) || guard.Is[*machine.NICError](err) ||
		guard.Is[*scope.BootstrapDataError](err) || maas.NeedsPerson(err)
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
	return report.Later(min(left, report.SafetyRetry), infrav1.GivenBackForNowReason, "machine %s could not be deployed, "+
		"as its event %s says, and is in the pool for others; it is claimed again at %s", l.maas,
		infrav1.GivenBackForNowReason, timestamp(r.Clock.Now().Add(left)))
}
