// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	inmaas "github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
)

// image checks that MAAS has the image, before a machine is acquired or composed for it.
func (r *Reconciler) image(ctx context.Context, l *life) (outcome, error) {
	if isTaken(l) {
		return proceed, nil
	}
	err := l.Machines.CheckImage(ctx, l.MaasMachine.Spec.Image, l.MaasMachine.Spec.Architecture)
	if l.IsLXD() && guard.Is[*machine.ImageError](err) {
		l.noImage, err = err, nil // Some hosts may have it themselves.
	}
	return proceed, err
}

// constraints returns what bare metal has to be. MAAS would allocate a machine of any architecture, and then refuse to
// deploy an image that it does not have for that one.
func (l *life) constraints(ctx context.Context) (maas.AllocateParams, error) {
	constraints := l.Constraints()
	if constraints.Architecture != "" {
		return constraints, nil
	}
	processors, err := l.Machines.Processors(ctx, l.MaasMachine.Spec.Image)
	if len(processors) == 1 {
		constraints.Architecture = processors[0]
	}
	return constraints, err
}

// allocation acquires a machine from the pool.
func (r *Reconciler) allocation(ctx context.Context, l *life) (outcome, error) {
	if l.maas != nil {
		return proceed, nil
	}
	constraints, err := l.constraints(ctx)
	if err != nil {
		return proceed, err
	}
	held, err := r.heldEarlier(ctx, l, constraints)
	if errors.Is(err, inmaas.ErrHeld) {
		return report.Retry(report.UnknownRetry, infrav1.NoMachineAvailableReason,
			"another manager holds the machine that was to get its storage layout; choosing another one"), nil
	}
	if err != nil {
		return proceed, err
	}
	if held == nil {
		if out := r.awaitSettled(l); out.Waits() {
			return out, nil
		}
		if out, err := r.restoration(ctx, l); err != nil || out.Waits() {
			return out, err
		}
	}
	if constraints.NotOnVMHosts, err = l.Machines.VMHostNames(ctx); err != nil {
		return proceed, err
	}
	done, err := l.Turn(ctx, turns.Machines, turns.Acquire)
	if err != nil {
		return proceed, err
	}
	defer done()
	for _, m := range rootless(l) {
		constraints.NotHostnames = append(constraints.NotHostnames, m.Hostname)
	}
	without, err := r.bridgeless(ctx, l, constraints)
	if err != nil {
		return proceed, err
	}
	constraints.NotHostnames = append(constraints.NotHostnames, without...)
	if l.MaasMachine.Spec.Storage != nil {
		id, out, err := r.shape(ctx, l, constraints, held)
		if err != nil || out.Waits() {
			return out, err
		}
		constraints.SystemID = id
	}
	var allocated *maas.Machine
	var instead *machine.ComposedInsteadError
	err = l.record.Call(ctx, record.Allocate, func(ctx context.Context, permit maas.Permit) (err error) {
		allocated, err = l.Machines.Allocate(ctx, permit, l.Identity(), constraints)
		if errors.As(err, &instead) {
			return nil // It stays ours until it is released.
		}
		return err
	}, l.recordOwner)
	switch {
	case instead != nil:
		_, err := r.giveBack(ctx, l, instead.VM, proceed)
		return proceed, errors.Join(instead, err)
	case errors.Is(err, maas.Conflict):
		if out, err := r.restoration(ctx, l); err != nil || out.Waits() {
			return out, err
		}
		return r.noMachine(ctx, l, err, constraints), nil
	case err != nil:
		return proceed, err
	case hasOthersStorage(l, allocated):
		return r.returnMachine(ctx, l, allocated)
	case lacksRoot(l, allocated):
		return r.setAside(ctx, l, allocated)
	}
	return proceed, r.acquired(ctx, l, allocated, "Allocated")
}

// fit checks that a machine of choice is as before and meets the spec, before it is claimed.
func (r *Reconciler) fit(ctx context.Context, l *life) (outcome, error) {
	if l.maas.Status != maas.StatusReady {
		return proceed, nil
	}
	if out, err := r.undoneByAnother(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	constraints, err := l.constraints(ctx)
	if err != nil {
		return proceed, err
	}
	misfit := machine.Misfit(l.maas, constraints)
	if misfit == "" && lacksRoot(l, l.maas) {
		misfit = noRoot
	}
	if misfit != "" {
		return report.Wait(report.MendRetry, infrav1.MachineDoesNotFitReason, "machine %s, which spec.systemID names, %s",
			l.maas, misfit), nil
	}
	return proceed, nil
}

// undoneByAnother waits while another object, of this or of another manager, undoes what it did to a machine of choice.
func (r *Reconciler) undoneByAnother(ctx context.Context, l *life) (outcome, error) {
	if l.Machines.WithheldByAnother(l.maas.SystemID, l.mark()) {
		return taken(l, "another MaasMachine gives it back, or takes it"), nil
	}
	if !inmaas.IsExcluded(l.maas) {
		return proceed, nil
	}
	by, err := l.Machines.Quarantine.NotedBy(ctx, l.maas.SystemID)
	if err != nil || by == "" || by == l.mark() {
		return proceed, err
	}
	return taken(l, fmt.Sprintf("the MaasMachine with the mark %s gives it back, or takes it; if that is gone, take the "+
		"tag %s off the machine in MAAS", by, inmaas.ExcludeTag)), nil
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
		l.Machines.StopWithholding(l.maas.SystemID, l.mark())
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
