// SPDX-License-Identifier: Apache-2.0

package life

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/states"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
)

// proofLasts is how long a proof stays valid.
const proofLasts = 5 * time.Second

// Prove proves that the machine is ours before it is changed. It waits if it is not.
func (s *Steps) Prove(ctx context.Context, l *Life) (Outcome, error) {
	if l.Proven {
		return Proceed, nil
	}
	ours, err := l.Machines.IsOurs(ctx, l.Identity(), l.MAAS)
	if err != nil {
		return Proceed, err
	}
	if !ours {
		return s.ReportState(l, states.NotOurs(l.MAAS, WasProvisioned(l.MaasMachine))).Within(report.MendRetry), nil
	}
	l.Proven = true
	return Proceed, nil
}

// IsOursToRelease proves that the machine is ours. Once MAAS was asked to release it, the agent name may be gone though
// the machine is still ours; then our annotations in MAAS prove it, if it has them now.
func (s *Steps) IsOursToRelease(ctx context.Context, l *Life) (ours bool, err error) {
	failed := l.MAAS.Status == maas.StatusReleasingFailed
	if !failed {
		ours, err = l.Machines.IsOurs(ctx, l.Identity(), l.MAAS)
		if ours && l.MAAS.Status != maas.StatusFailedDiskErasing {
			l.Record.Idle(record.Release) // None has begun: MAAS removes the mark then, except to erase.
		}
		if err != nil || ours || !ReleaseBegan(l) {
			return ours, err
		}
	}
	now, ours, err := l.Machines.IsOursInRelease(ctx, l.Identity(), l.MAAS.SystemID)
	if err != nil {
		return false, err
	}
	l.MAAS = now
	if failed && !ours {
		return l.Machines.IsOurs(ctx, l.Identity(), l.MAAS)
	}
	return ours, nil
}

// NotOursAnyMore emits an event that the machine is another user's now, and does not change it. It waits while that is
// not certain: MAAS removes the mark when a release starts, also that of a person, and the machine may have been seen
// before. After the release, a VM that was made for us is ours again.
func (s *Steps) NotOursAnyMore(ctx context.Context, l *Life, m *maas.Machine) (Outcome, error) {
	if l.Record.MayAcquire() { // The other user may release it before that takes effect.
		if out := report.Settle(l.Record.Unsettled()); out.Waits() {
			return out, nil
		}
	}
	now, err := l.Inventory.Read(ctx, m.SystemID)
	switch {
	case err != nil:
		return Proceed, fmt.Errorf("reading whose machine %s is: %w", m.SystemID, err)
	case OnItsWay.Has(now.Status):
		return report.Wait(report.CapacityRetry, infrav1.ReleasingReason, "machine %s: %s", now, now.StatusName), nil
	case now.Status != m.Status:
		return report.Retry(report.UnknownRetry, infrav1.ReleasingReason, "machine %s is %s now", now, now.StatusName), nil
	}
	s.Warn(l.MaasMachine, infrav1.MachineNotOursReason, "GiveBack", "machine %s is no longer ours; it is not changed", m)
	l.Foreign = m
	return Proceed, nil
}

// WaitForUnlock reports that a user has locked the machine in MAAS, which refuses to release or delete it until it is
// unlocked.
func WaitForUnlock(l *Life) Outcome {
	return report.Wait(report.MendRetry, infrav1.MachineLockedReason,
		"machine %s is locked: unlock it in MAAS to have it given back", l.MAAS)
}

// Annotation writes our ownership annotations to the machine in MAAS. It first proves that a machine without them is
// ours.
func (s *Steps) Annotation(ctx context.Context, l *Life) (Outcome, error) {
	if l.Identity().HasAnnotations(l.MAAS) {
		return Proceed, nil
	}
	if out, err := s.Prove(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	if !l.Machines.CanMark(l.MAAS) {
		return Proceed, nil
	}
	return Proceed, s.Annotate(ctx, l)
}

// Annotate writes our ownership annotations to the machine in MAAS.
func (s *Steps) Annotate(ctx context.Context, l *Life) error {
	return s.Change(ctx, l, record.Annotate, func(ctx context.Context, permit maas.Permit) error {
		return l.Machines.Mark(ctx, permit, l.Identity(), l.MAAS)
	})
}

// Claim acquires a free machine: a composed VM, a machine of choice, or one that another user released before it was
// deployed. From then on MAAS gives it to no other client, and its record proves that it is ours.
func (s *Steps) Claim(ctx context.Context, l *Life) (Outcome, error) {
	if l.MAAS.Status != maas.StatusReady {
		if l.Record.IsPending(record.Claim) { // Another user may have it, and release it before the claim takes effect.
			if out, err := s.Prove(ctx, l); err != nil || out.Waits() {
				return out, err
			}
		}
		l.Record.Acquired() // The outcome of the claim is known.
		l.Machines.StopWithholding(l.MAAS.SystemID, l.Mark())
		return Proceed, nil
	}
	l.Record.TestAnew(l.MAAS.Tests.Set)
	return s.ClaimNow(ctx, l, l.MAAS.SystemID)
}

// ClaimNow acquires the machine in MAAS. The claim of bare metal is recorded first: if it takes effect late, the
// machine may have been released by then.
func (s *Steps) ClaimNow(ctx context.Context, l *Life, systemID string) (Outcome, error) {
	done, err := l.Turn(ctx, turns.Machines, turns.Claim)
	if err != nil {
		return Proceed, err
	}
	defer done()
	err = s.Change(ctx, l, record.Claim, func(ctx context.Context, permit maas.Permit) error {
		claimed, err := l.Machines.Claim(ctx, permit, l.Identity(), systemID)
		if err == nil {
			l.MAAS, l.Proven = claimed, true
		}
		return err
	}, l.RecordOwner)
	if err == nil {
		l.Record.Acquired()
		return Proceed, nil
	}
	if errors.Is(err, maas.Conflict) {
		// The inventory triggers a reconcile when the state changes.
		return report.Wait(report.CapacityRetry, infrav1.NoMachineAvailableReason, "%s", maas.Message(err)), nil
	}
	return Proceed, err
}

// Ask is Record.Call. The first call for a machine is sent only if the MaasCluster stays, and its MAAS: the call and
// the owner id are recorded, and then the MaasCluster is read. One that is being deleted, or that is about to follow
// its credentials to another MAAS, says so before it lists its machines: so one of the two sees the other.
func (s *Steps) Ask(
	ctx context.Context, l *Life, op record.Op, do func(context.Context, maas.Permit) error, also ...func(client.Object),
) error {
	if !clusters.NothingAcquired(l.MaasMachine) && !clusters.OnlyChosen(l.MaasMachine) {
		return l.Record.Call(ctx, op, do, also...)
	}
	var adrift error
	err := l.Record.Call(ctx, op, func(ctx context.Context, permit maas.Permit) error {
		if adrift = s.adrift(ctx, l); adrift != nil {
			return adrift
		}
		return do(ctx, permit)
	}, append(also, l.RecordOwner)...)
	if adrift == nil || err == nil {
		return err
	}
	unbind := func(m client.Object) { record.SetAnnotation(m, infrav1.OwnerIDAnnotation, "") }
	return errors.Join(err, l.Record.Store(ctx, func() {}, unbind)) // Another MaasCluster may have the machine.
}

// adrift returns why no machine is taken with the MaasCluster, as Kubernetes has it now; nil if it stays where it is.
func (s *Steps) adrift(ctx context.Context, l *Life) error {
	c := l.MaasCluster
	now := &infrav1.MaasClusterList{}
	if err := s.APIReader.List(ctx, now, client.InNamespace(c.Namespace),
		client.MatchingFields{"metadata.name": c.Name}); err != nil {
		return fmt.Errorf("reading MaasCluster %s as it is now: %w", c.Name, err)
	}
	live := list.Find(now.Items, func(is infrav1.MaasCluster) bool { return is.UID == c.UID })
	switch {
	// One that is the infrastructure of its Cluster waits for all of its machines.
	case live == nil, !live.DeletionTimestamp.IsZero() && c.Spec.ClusterName != "":
		return report.Later(report.MendRetry, infrav1.WaitingForClusterInfrastructureReason,
			"MaasCluster %s is being deleted: no machine is taken with it any more", c.Name)
	case live.Annotations[infrav1.MAASAnnotation] != l.Home:
		return report.Later(report.SafetyRetry, infrav1.WaitingForClusterInfrastructureReason,
			"MaasCluster %s follows its credentials to another MAAS: no machine is taken until it is there", c.Name)
	}
	return nil
}

// RecordOwner records which cluster asks for the machine.
func (l *Life) RecordOwner(m client.Object) {
	record.SetAnnotation(m, infrav1.OwnerIDAnnotation, l.OwnerID())
}

// TellMachine is change for a call about the machine alone.
func (s *Steps) TellMachine(
	ctx context.Context, l *Life, op record.Op, do func(context.Context, maas.Permit, *maas.Machine) error,
) error {
	return s.Change(ctx, l, op, func(ctx context.Context, permit maas.Permit) error { return do(ctx, permit, l.MAAS) })
}

// Take goes on with a machine that is proven to be ours. acquired records what that ends, and annotate more of it.
func (s *Steps) Take(
	ctx context.Context, l *Life, m *maas.Machine, how string, acquired func(), annotate ...func(client.Object),
) error {
	l.MAAS, l.Proven = m, true
	l.Inventory.Track(m)
	s.Tell(l.MaasMachine, how, "Acquire", "machine %s in zone %s", m, m.Zone.Name)
	return s.Store(ctx, l, m.SystemID, "", acquired, annotate...)
}

// Store records the machine's id at once: from here on it can't be lost. runs is the host of a VM that MAAS does not
// switch; it is recorded with the id of the VM's device, and with no other.
func (s *Steps) Store(
	ctx context.Context, l *Life, systemID, runs string, acquired func(), annotate ...func(client.Object),
) error {
	return l.Record.Store(ctx, func() {
		acquired()
		l.Record.Lost, l.Record.Runs = "", runs
	}, append(annotate, l.RecordOwner, func(m client.Object) { m.(*infrav1.MaasMachine).Spec.SystemID = systemID })...)
}
