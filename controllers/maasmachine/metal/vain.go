// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"errors"
	"time"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

const (
	// HoldAtMost is how long bare metal is held that can't be deployed until a person does something.
	HoldAtMost = 15 * time.Minute
	// BackAtLeast is how long it is back in the pool then, whatever others do with it meanwhile.
	BackAtLeast = 15 * time.Minute
)

// InVain begins to give bare metal back that a person must do something for, after a while: other clusters can use it
// meanwhile. It is claimed again later, unless another user has it by then.
func (s *Steps) InVain(ctx context.Context, l *life.Life, cause error) (life.Outcome, error) {
	if l.MAAS == nil || !life.Deployable(l.MAAS) || life.WasProvisioned(l.MaasMachine) || !needsPerson(cause) ||
		isGivenBackForNow(l) {
		return life.Proceed, cause
	}
	if l.Record.Enter(life.HeldInVain, s.Clock.Now()) < HoldAtMost {
		l.Record.GivenBack = nil // It is ours again.
		return life.Proceed, cause
	}
	if notOurs, err := s.Prove(ctx, l); err != nil || notOurs.Waits() {
		return life.Proceed, errors.Join(err, cause)
	}
	l.Record.GivenBack = life.PtrTime(s.Clock.Now())
	if l.Record.Deployed != l.MAAS.SystemID && !l.Record.IsPending(record.Deploy) {
		l.Record.Enter(life.Undoing, s.Clock.Now()) // Its disks are as they were.
	}
	s.Warn(l.MaasMachine, infrav1.GivenBackForNowReason, "GiveBack",
		"machine %s is given back, as nothing was done in %s: %s", l.MAAS, HoldAtMost, report.Explain(cause).Message)
	out, err := s.GiveBackForNow(ctx, l)
	if err != nil {
		return life.Proceed, errors.Join(cause, err)
	}
	return out, nil
}

// isGivenBackForNow reports whether GiveBackForNow has begun.
func isGivenBackForNow(l *life.Life) bool {
	return l.Record.GivenBack != nil && (l.Record.In(life.HeldInVain) || life.ReleaseBegan(l))
}

// releasable are the states of a machine of ours that GiveBackForNow goes on with.
var releasable = life.OnItsWay.Union(life.BackInPool).Insert(maas.StatusAllocated, maas.StatusReleasingFailed,
	maas.StatusFailedDiskErasing)

// GiveBackForNow gives a machine back for now as a deletion does, and with it all that was done to its network and its
// storage. What is recorded of that is forgotten in the end: until the machine is claimed again, others may change it.
func (s *Steps) GiveBackForNow(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MAAS == nil || !isGivenBackForNow(l) {
		return life.Proceed, nil
	}
	if !releasable.Has(l.MAAS.Status) {
		ours, err := l.Machines.IsOurs(ctx, l.Identity(), l.MAAS)
		if err != nil {
			return life.Proceed, err
		}
		if ours { // A person does something with it.
			l.Record.GivenBack = nil
			l.Record.Enter("", s.Clock.Now())
			return life.Proceed, nil
		}
	}
	if out, err := reconciler.Through(ctx, l, []life.Step{s.Release, s.Restoration}); err != nil || out.Waits() {
		return out, err
	}
	l.Machines.StopWithholding(l.MAAS.SystemID, l.Mark())
	for _, undone := range []string{infrav1.InterfacesAnnotation, infrav1.StaticIPAnnotation} {
		if _, recorded := l.MaasMachine.Annotations[undone]; !recorded {
			continue
		}
		if err := l.Record.Forget(ctx, undone); err != nil {
			return life.Proceed, err
		}
	}
	l.Record.TestAnew(l.MAAS.Tests.Set)
	l.Record.Release, l.MaasMachine.Status.Release = nil, nil
	l.Record.Enter("", s.Clock.Now())
	l.Record.GivenBack = life.PtrTime(s.Clock.Now())
	return life.Proceed, nil
}

// needsPerson reports whether a machine waits for what a person must do in MAAS, in the spec, or in Kubernetes.
func needsPerson(err error) bool {
	return guard.Is[*machine.AddressError](err) || guard.Is[*machine.NICError](err) ||
		guard.Is[*scope.BootstrapDataError](err) || guard.Is[*scope.BootstrapFormatError](err) || maas.NeedsPerson(err) ||
		report.Explain(err).Reason == infrav1.TooManyFailedReason
}

// pause returns why a machine that was given back is not claimed again yet; nil if it may be.
func (s *Steps) pause(_ context.Context, l *life.Life) error {
	if l.MAAS == nil || l.Record.GivenBack == nil {
		return nil
	}
	left := BackAtLeast - s.Clock.Since(l.Record.GivenBack.Time)
	if left <= 0 {
		l.Record.GivenBack = nil
		return nil
	}
	return report.Later(min(left, report.SafetyRetry), infrav1.GivenBackForNowReason, "machine %s could not be deployed, "+
		"as its event %s says, and is in the pool for others; it is claimed again at %s", l.MAAS,
		infrav1.GivenBackForNowReason, life.Timestamp(s.Clock.Now().Add(left)))
}
