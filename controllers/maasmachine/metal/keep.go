// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/keep"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
)

// MAAS deploys only a machine that is Ready or Allocated, and a Deployed one becomes that only by a release, through
// Ready, when any user may take it. So a machine that is kept stays Deployed until the next MaasMachine is there, which
// releases it and acquires it in the next call. It is off by then: MAAS makes it Ready within the call.

const (
	// switchingOff is the phase in which a machine that is to be kept is switched off; after switchOffLimit it is given
	// back instead.
	switchingOff   = "switching-off"
	switchOffLimit = 5 * time.Minute
	// switchOffRetry: the response comes within seconds, and no event announces it.
	switchOffRetry = 3 * time.Second

	defaultKeep = time.Hour
)

// Keep leaves the machine to the next Machine of the same owner, if one is missing.
func (s *Steps) Keep(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if kept, err := s.wasKept(ctx, l); err != nil || kept {
		return life.Proceed, err
	}
	owner := keep.OwnerOf(l.MaasMachine)
	if !isToBeKept(l) || owner == "" {
		return life.Proceed, nil
	}
	missing, err := keep.Missing(ctx, s.Client, s.APIReader, l.Cluster.Cluster, owner)
	if err != nil || missing == 0 {
		return life.Proceed, err
	}
	ours, err := l.Machines.IsOurs(ctx, l.Identity(), l.MAAS)
	if err != nil || !ours {
		return life.Proceed, err // release says so.
	}
	if l.MAAS.PowerState != maas.PowerOff {
		return s.powerOff(ctx, l)
	}
	if left := l.Record.Unsettled(); left > 0 {
		return report.Wait(min(left, report.CapacityRetry), infrav1.KeepingReason, "%s", record.LostRequest), nil
	}
	return life.Proceed, s.keepNow(ctx, l, owner)
}

// wasKept goes on with a machine that an earlier reconcile has kept, which did not get to let the object go. The next
// MaasMachine may be releasing it, which this one's record does not know of: so this one releases it no more.
func (s *Steps) wasKept(ctx context.Context, l *life.Life) (kept bool, err error) {
	if l.MaasMachine.Spec.Release.Keep == nil || l.MAAS == nil || life.ReleaseBegan(l) || scope.Foreign(l.MaasCluster) {
		return false, nil
	}
	rec, err := s.Records.OpenCluster(l.MaasCluster.DeepCopy())
	if err != nil {
		return false, err
	}
	err = rec.Merge(ctx, func(all *record.KeptMachines) { // They are read anew if these are old.
		k := all.Named(l.MAAS.SystemID)
		kept = k != nil && k.Machine == l.MaasMachine.Name && !k.GivenBack
	})
	if err != nil || !kept {
		return false, err
	}
	l.MAAS, l.Kept, l.Record.Storage = nil, true, nil
	return true, nil
}

// isToBeKept reports whether the spec asks for it, the MaasCluster waits until it is given back, and the machine is as
// the next one can take it. A machine that failed, or whose Machine did, is better replaced by another one.
func isToBeKept(l *life.Life) bool {
	return l.MaasMachine.Spec.Release.Keep != nil && l.MAAS != nil && l.MAAS.Status == maas.StatusDeployed &&
		!l.MAAS.Locked && life.WasProvisioned(l.MaasMachine) && !life.IsHost(l) && !life.ReleaseBegan(l) &&
		!scope.Foreign(l.MaasCluster) &&
		!conditions.IsFalse(l.Machine.Machine, clusterv1.MachineHealthCheckSucceededCondition)
}

// powerOff switches the machine off before it waits: nothing of it may run on.
func (s *Steps) powerOff(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.Record.Enter(switchingOff, s.Clock.Now()) >= switchOffLimit {
		s.Warn(l.MaasMachine, "NotKept", "Delete",
			"machine %s can't be switched off, and is given back instead of being kept", l.MAAS)
		return life.Proceed, nil
	}
	return report.Wait(switchOffRetry, infrav1.KeepingReason, "machine %s is switched off, and kept for the next Machine",
		l.MAAS), s.TellMachine(ctx, l, record.PowerOff, l.Machines.SwitchOff)
}

// keepNow records on the MaasCluster that the machine waits.
func (s *Steps) keepNow(ctx context.Context, l *life.Life, owner string) error {
	m := l.MaasMachine
	rec, err := s.Records.OpenCluster(l.MaasCluster.DeepCopy())
	if err != nil {
		return err
	}
	kept := record.KeptMachine{
		SystemID: l.MAAS.SystemID, Hostname: l.MAAS.Hostname, Zone: l.MAAS.Zone.Name, For: owner,
		Machine: m.Name, Labels: m.Labels, Annotations: m.Annotations, Spec: m.Spec,
		Storage: l.Record.StorageOn(l.MAAS.SystemID),
	}
	lasts := cmp.Or(time.Duration(m.Spec.Release.Keep.TimeoutSeconds)*time.Second, defaultKeep)
	recorded, err := rec.Add(ctx, func(all *record.KeptMachines) bool { return all.Keep(kept, s.Clock.Now(), lasts) })
	if err != nil || !recorded {
		return err // A full record: it is given back.
	}
	s.Tell(m, "Kept", "Delete", "machine %s (%s) waits for the next Machine of %s", kept.Hostname, kept.SystemID, owner)
	l.MAAS, l.Kept, l.Record.Storage = nil, true, nil
	return nil
}

// Succession takes the machine that waits for this MaasMachine, if one does.
func (s *Steps) Succession(ctx context.Context, l *life.Life) (life.Outcome, error) {
	owner := keep.OwnerOf(l.MaasMachine)
	if l.MAAS != nil || l.MaasMachine.Spec.Release.Keep == nil || owner == "" || l.MaasMachine.Spec.SystemID != "" {
		return life.Proceed, nil
	}
	rec, err := s.Records.OpenCluster(l.MaasCluster.DeepCopy())
	if err != nil {
		return life.Proceed, err
	}
	var kept *record.KeptMachine
	err = rec.Merge(ctx, func(all *record.KeptMachines) { // They are read anew if these are old.
		kept = all.Take(l.MaasMachine.UID, func(k record.KeptMachine) bool {
			return k.For == owner && (l.FailureDomain() == "" || k.Zone == l.FailureDomain()) &&
				equality.Semantic.DeepEqual(k.Spec.Storage, l.MaasMachine.Spec.Storage)
		})
	})
	if err != nil || kept == nil {
		return life.Proceed, err
	}
	if owesAnother(l, kept.SystemID) {
		if out, err := s.Restoration(ctx, l); err != nil || out.Waits() {
			return out, err
		}
	}
	return s.succeed(ctx, l, &heir{KeptMachine: *kept, record: rec})
}

// heir is what a MaasMachine takes, and the record of the MaasCluster.
type heir struct {
	record.KeptMachine
	record *record.Cluster
}

// leftover returns what was done to the machine, and is undone once it is back in the pool.
func (h *heir) leftover() machine.Leftover {
	return machine.Leftover{
		Address: h.Annotations[infrav1.StaticIPAnnotation], Interfaces: arrangement(h.Annotations),
		Storage: h.Storage != nil,
	}
}

// succeed brings the machine from where it is to where it is the MaasMachine's.
func (s *Steps) succeed(ctx context.Context, l *life.Life, h *heir) (life.Outcome, error) {
	m, err := l.Inventory.Read(ctx, h.SystemID)
	if errors.Is(err, maas.NotFound) {
		return s.lose(ctx, l, h, "MAAS does not have it any more")
	}
	if err != nil {
		return life.Proceed, err
	}
	if life.BackInPool.Has(m.Status) || life.OnItsWay.Has(m.Status) {
		l.Record.Reclaim() // The release has taken effect.
	}
	switch {
	case m.Status == maas.StatusReady && m.Owner == "":
		if _, err := s.excludeAgain(ctx, l, m, h.leftover(), markOf(l, h.Machine)); err != nil {
			return life.Proceed, err
		}
		return s.claimReleased(ctx, l, h)
	case life.OnItsWay.Has(m.Status):
		// Until it is claimed, no other of our objects allocates it.
		if _, err := s.remember(ctx, l, m, h.leftover(), markOf(l, h.Machine)); err != nil {
			return life.Proceed, err
		}
		l.Inventory.Observe(h.SystemID, inventory.Changing)
		return report.Wait(report.UnknownRetry, infrav1.KeepingReason, "machine %s was kept for this one: %s", m,
			m.StatusName), nil
	case m.Status == maas.StatusDeployed:
		return s.takeOver(ctx, l, h, m.Status)
	}
	ours, err := l.Machines.IsOurs(ctx, l.Identity(), m)
	if err != nil {
		return life.Proceed, err
	}
	if !ours {
		return s.takeOver(ctx, l, h, m.Status)
	}
	return s.inherit(ctx, l, h, m)
}

// takeOver takes the machine if it is proven to be the former MaasMachine's, and as it can be taken.
func (s *Steps) takeOver(ctx context.Context, l *life.Life, h *heir, before maas.Status) (life.Outcome, error) {
	constraints, err := constraints(ctx, l)
	if err == nil && before == maas.StatusDeployed {
		err = l.Machines.CheckImage(ctx, l.MaasMachine.Spec.Image, l.MaasMachine.Spec.Architecture)
	}
	if err != nil {
		return life.Proceed, err
	}
	done, err := l.Turn(ctx, turns.Machines, turns.Claim) // Before the proof: the wait may be long.
	if err != nil {
		return life.Proceed, err
	}
	defer done()
	m, ours, err := s.isFormers(ctx, l, h)
	switch {
	case err != nil:
		return life.Proceed, err
	case m.Status != before:
		return report.Retry(report.UnknownRetry, infrav1.KeepingReason, "machine %s, which was kept for this one, is %s now",
			m, m.StatusName), nil
	case !ours:
		return s.lose(ctx, l, h, fmt.Sprintf("it is not ours any more: it is %s, of MAAS user %q", m.StatusName, m.Owner))
	case before != maas.StatusDeployed:
		return s.giveBackKept(ctx, l, h, "is "+m.StatusName)
	}
	if misfit := machine.Misfit(m, constraints); misfit != "" {
		return s.giveBackKept(ctx, l, h, misfit)
	}
	return s.releaseKept(ctx, l, h, m)
}

// isFormers reads the machine, and proves that it is the former MaasMachine's, as life.IsOursToRelease does.
func (s *Steps) isFormers(ctx context.Context, l *life.Life, h *heir) (m *maas.Machine, ours bool, err error) {
	if m, err = l.Inventory.Read(ctx, h.SystemID); err != nil {
		return nil, false, err
	}
	former := l.Identity()
	former.AgentName = markOf(l, h.Machine)
	former.Annotations[ownership.AnnotationMachine] = l.MaasMachine.Namespace + "." + h.Machine
	ours, err = l.Machines.IsOurs(ctx, former, m)
	if err != nil || ours || h.Giving == nil || !h.Giving.In(life.Releasing) {
		return m, ours, err
	}
	return l.Machines.IsOursInRelease(ctx, former, h.SystemID)
}

// giveBackKept has package keep give the machine back. Another one is allocated.
func (s *Steps) giveBackKept(ctx context.Context, l *life.Life, h *heir, why string) (life.Outcome, error) {
	if out := report.Settle(l.Record.Unsettled()); out.Waits() {
		return out, nil
	}
	s.Warn(l.MaasMachine, "KeptMachineDoesNotFit", "Acquire",
		"machine %s (%s), which was kept, %s: it is given back", h.Hostname, h.SystemID, why)
	l.Machines.StopWithholding(h.SystemID, l.Mark())
	return life.Proceed, h.record.Merge(ctx, func(all *record.KeptMachines) {
		all.StopTaking(h.SystemID, l.MaasMachine.UID, true)
	})
}

// releaseKept releases the machine, and claims it.
func (s *Steps) releaseKept(ctx context.Context, l *life.Life, h *heir, m *maas.Machine) (life.Outcome, error) {
	if m.Locked {
		return report.Wait(report.MendRetry, infrav1.MachineLockedReason,
			"machine %s, which was kept for this one, is locked: unlock it in MAAS", m), nil
	}
	if err := s.exclude(ctx, l, m, h.leftover()); err != nil {
		return life.Proceed, err
	}
	taken := false
	err := h.record.Merge(ctx, func(all *record.KeptMachines) {
		taken = all.Release(h.SystemID, l.MaasMachine.UID, life.Releasing, s.Clock.Now())
	})
	if err != nil {
		return life.Proceed, err
	}
	if !taken {
		return report.Retry(report.UnknownRetry, infrav1.KeepingReason,
			"machine %s, which was kept for this one, is taken by another one", m), nil
	}
	return s.claimKept(ctx, l, h, m)
}

// claimKept releases the machine and acquires it. Both are in one record: between the two others may acquire the
// machine, other managers only if nothing is left on it. It is not Ready yet if MAAS has to switch it off, or
// erases its disks.
func (s *Steps) claimKept(ctx context.Context, l *life.Life, h *heir, m *maas.Machine) (life.Outcome, error) {
	var claimed *maas.Machine
	err := l.Record.CallRelease(ctx, record.TakeOver, func(ctx context.Context, permit maas.ReleasePermit) (err error) {
		if err := l.Machines.Release(ctx, permit, m, maas.EraseDefault); err != nil {
			return err
		}
		claimed, err = l.Machines.Claim(ctx, permit.Permit(), l.Identity(), h.SystemID)
		return err
	}, l.RecordOwner)
	return s.afterClaim(ctx, l, h, claimed, err)
}

// claimReleased acquires the machine after its release: it is not known whether an earlier call got that far.
func (s *Steps) claimReleased(ctx context.Context, l *life.Life, h *heir) (life.Outcome, error) {
	var claimed *maas.Machine
	err := s.Ask(ctx, l, record.Claim, func(ctx context.Context, permit maas.Permit) (err error) {
		claimed, err = l.Machines.Claim(ctx, permit, l.Identity(), h.SystemID)
		return err
	}, l.RecordOwner)
	return s.afterClaim(ctx, l, h, claimed, err)
}

func (s *Steps) afterClaim(
	ctx context.Context, l *life.Life, h *heir, claimed *maas.Machine, err error,
) (life.Outcome, error) {
	if errors.Is(err, maas.Conflict) {
		return report.Retry(report.UnknownRetry, infrav1.KeepingReason,
			"MAAS refuses to allocate machine %s, which was kept for this one; reading why", h.SystemID), nil
	}
	if err != nil {
		return life.Proceed, err
	}
	return s.inherit(ctx, l, h, claimed)
}

// inherit goes on with the machine, and with what was done to it.
func (s *Steps) inherit(ctx context.Context, l *life.Life, h *heir, m *maas.Machine) (life.Outcome, error) {
	s.leftover = h.leftover().On(m)
	s.leftover.Storage = false // It goes with the record.
	if h.Storage != nil {
		if err := l.Record.Store(ctx, func() { l.Record.Storage = h.Storage }); err != nil {
			return life.Proceed, err
		}
	}
	if err := s.acquired(ctx, l, m, "TakenOver"); err != nil {
		return life.Proceed, err
	}
	if err := h.drop(ctx, l); err != nil {
		return life.Proceed, err
	}
	return s.inclusion(ctx, l)
}

// tellDataDisks emits an event if the machine will be kept, and MAAS lists disks beside the one of the root: its
// installer removes the signatures of each disk that it lists, in every deployment.
func (s *Steps) tellDataDisks(l *life.Life) {
	m := l.MaasMachine
	if m.Spec.Release.Keep == nil || m.Spec.DeployInMemory || len(l.MAAS.Disks) < 2 {
		return
	}
	names := list.Each(l.MAAS.Disks, func(d *maas.Disk) string { return d.Name })
	s.Warn(m, "DataDisksNotKept", "Acquire",
		"machine %s: each deployment removes the signatures of all disks that MAAS lists (%s), also when the machine is "+
			"kept; delete the block devices of those to be left alone in MAAS while it is Ready",
		l.MAAS, text.List(names, life.MaxSkipped))
}

// lose reports that another user has the machine. Another one is allocated.
func (s *Steps) lose(ctx context.Context, l *life.Life, h *heir, why string) (life.Outcome, error) {
	l.Machines.StopWithholding(h.SystemID, l.Mark()) // If it comes back, any user may have it.
	message := fmt.Sprintf("machine %s (%s) was kept for this one and is lost: %s", h.Hostname, h.SystemID, why)
	s.Warn(l.MaasMachine, infrav1.KeptMachineLostReason, "Acquire", "%s", message)
	if err := l.Record.Store(ctx, func() { l.Record.Lost = message }); err != nil {
		return life.Proceed, err
	}
	return life.Proceed, h.drop(ctx, l)
}

// drop records that the machine waits no more.
func (h *heir) drop(ctx context.Context, l *life.Life) error {
	return h.record.Merge(ctx, func(all *record.KeptMachines) { all.Drop(h.SystemID, l.MaasMachine.UID) })
}
