// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
)

// bid is the attempt of one reconcile to get bare metal from the pool: the steps from holding to acceptance.
type bid struct {
	// wanted is what the machine has to be.
	wanted maas.AllocateParams
	// held is the machine that an earlier try began to hold; nil if there is none.
	held *maas.Machine
	// given is the machine that MAAS gave this or an earlier try; nil if there is none, or it is accepted.
	given *maas.Machine
	// adopted means that an earlier try was given it.
	adopted bool
	// extra are the system ids of machines that MAAS gave as well, or that can't become this one.
	extra []string
	// refusal is why MAAS gave none; nil if it was not asked, or gave one.
	refusal error
}

// allocation acquires a machine from the pool.
func (r *Reconciler) allocation(ctx context.Context, l *life) (outcome, error) {
	if l.maas != nil {
		return proceed, nil
	}
	err := l.record.Call(ctx, record.Allocate, func(ctx context.Context, permit maas.Permit) (err error) {
		l.bid.given, err = l.Machines.Allocate(ctx, permit, l.Identity(), l.bid.wanted)
		return err
	}, l.recordOwner)
	if errors.Is(err, maas.Conflict) {
		l.bid.refusal, err = err, nil
	}
	return proceed, err
}

// refused reports that MAAS gave no machine. What this try did to one is undone.
func (r *Reconciler) refused(ctx context.Context, l *life) (outcome, error) {
	if l.bid.refusal == nil {
		return proceed, nil
	}
	if out, err := r.restoration(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	return r.noMachine(ctx, l, l.bid.refusal), nil
}

// claim acquires a free machine: a composed VM, a machine of choice, or one that another user released before it was
// deployed. From then on MAAS gives it to no other client, and its record proves that it is ours.
func (r *Reconciler) claim(ctx context.Context, l *life) (outcome, error) {
	if l.maas.Status != maas.StatusReady {
		if l.record.IsPending(record.Claim) { // Another user may have it, and release it before the claim takes effect.
			if out, err := r.prove(ctx, l); err != nil || out.Waits() {
				return out, err
			}
		}
		l.record.Acquired() // The outcome of the claim is known.
		l.Machines.StopWithholding(l.maas.SystemID, l.Mark())
		return proceed, nil
	}
	return r.claimNow(ctx, l, l.maas.SystemID)
}

// claimNow acquires the machine in MAAS. The claim of bare metal is recorded first: if it takes effect late, the
// machine may have been released by then.
func (r *Reconciler) claimNow(ctx context.Context, l *life, systemID string) (outcome, error) {
	done, err := l.Turn(ctx, turns.Machines, turns.Claim)
	if err != nil {
		return proceed, err
	}
	defer done()
	err = r.change(ctx, l, record.Claim, func(ctx context.Context, permit maas.Permit) error {
		claimed, err := l.Machines.Claim(ctx, permit, l.Identity(), systemID)
		if err == nil {
			l.maas, l.proven = claimed, true
		}
		return err
	}, l.recordOwner)
	if err == nil {
		l.record.Acquired()
		return proceed, nil
	}
	if errors.Is(err, maas.Conflict) {
		// The inventory triggers a reconcile when the state changes.
		return report.Wait(report.CapacityRetry, infrav1.NoMachineAvailableReason, "%s", maas.Message(err)), nil
	}
	return proceed, err
}

// recordOwner records which cluster asks for the machine.
func (l *life) recordOwner(m client.Object) {
	record.SetAnnotation(m, infrav1.OwnerIDAnnotation, l.OwnerID())
}
