// SPDX-License-Identifier: Apache-2.0

package maasmachine

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
// Ready, when anybody may take it. So a machine that is kept stays Deployed until the next MaasMachine is there, which
// releases it and acquires it in the next call. It is off by then: MAAS makes it Ready within the call.

const (
	// switchingOff is the phase in which a machine that is to be kept is switched off; after switchOffLimit it is given
	// back instead.
	switchingOff   = "switching-off"
	switchOffLimit = 5 * time.Minute

	defaultKeep = time.Hour
)

// keep leaves the machine to the next Machine of the same owner, if one is missing.
func (r *Reconciler) keep(ctx context.Context, l *life) (outcome, error) {
	owner := keep.OwnerOf(l.MaasMachine)
	if !isToBeKept(l) || owner == "" {
		return proceed, nil
	}
	missing, err := keep.Missing(ctx, r.Client, r.APIReader, l.Cluster.Cluster, owner)
	if err != nil || missing == 0 {
		return proceed, err
	}
	ours, err := l.Machines.IsOurs(ctx, l.Identity(), l.maas)
	if err != nil || !ours {
		return proceed, err // release says so.
	}
	if l.maas.PowerState != maas.PowerOff {
		return r.powerOff(ctx, l)
	}
	if left := l.record.Unsettled(); left > 0 {
		return report.Wait(min(left, report.CapacityRetry), infrav1.KeepingReason, "%s", record.LostRequest), nil
	}
	return proceed, r.keepNow(ctx, l, owner)
}

// isToBeKept reports whether the spec asks for it, the MaasCluster waits until it is given back, and the machine is as
// the next one can take it. A machine that failed, or whose Machine did, is better replaced by another one.
func isToBeKept(l *life) bool {
	return l.MaasMachine.Spec.Release.Keep != nil && l.maas != nil && l.maas.Status == maas.StatusDeployed &&
		!l.maas.Locked && wasProvisioned(l.MaasMachine) && !isHost(l) && !releaseBegan(l) && !scope.Foreign(l.MaasCluster) &&
		!conditions.IsFalse(l.Machine.Machine, clusterv1.MachineHealthCheckSucceededCondition)
}

// powerOff switches the machine off before it waits: nothing of it may run on.
func (r *Reconciler) powerOff(ctx context.Context, l *life) (outcome, error) {
	if l.record.Enter(switchingOff, r.Clock.Now()) >= switchOffLimit {
		r.Warn(l.MaasMachine, "NotKept", "Delete",
			"machine %s can't be switched off, and is given back instead of being kept", l.maas)
		return proceed, nil
	}
	return report.Wait(retireRetry, infrav1.KeepingReason, "machine %s is switched off, and kept for the next Machine",
		l.maas), r.tellMachine(ctx, l, record.PowerOff, l.Machines.SwitchOff)
}

// keepNow records on the MaasCluster that the machine waits.
func (r *Reconciler) keepNow(ctx context.Context, l *life, owner string) error {
	m := l.MaasMachine
	rec, err := r.Records.OpenCluster(l.MaasCluster.DeepCopy())
	if err != nil {
		return err
	}
	kept := record.KeptMachine{
		SystemID: l.maas.SystemID, Hostname: l.maas.Hostname, Zone: l.maas.Zone.Name, For: owner,
		Machine: m.Name, Labels: m.Labels, Annotations: m.Annotations, Spec: m.Spec,
		Storage: l.record.StorageOn(l.maas.SystemID),
	}
	lasts := cmp.Or(time.Duration(m.Spec.Release.Keep.TimeoutSeconds)*time.Second, defaultKeep)
	recorded, err := rec.Add(ctx, func(all *record.KeptMachines) bool { return all.Keep(kept, r.Clock.Now(), lasts) })
	if err != nil || !recorded {
		return err // A full record: it is given back.
	}
	r.Tell(m, "Kept", "Delete", "machine %s (%s) waits for the next Machine of %s", kept.Hostname, kept.SystemID, owner)
	l.maas, l.kept, l.record.Storage = nil, true, nil
	return nil
}

// succession takes the machine that waits for this MaasMachine, if one does.
func (r *Reconciler) succession(ctx context.Context, l *life) (outcome, error) {
	owner := keep.OwnerOf(l.MaasMachine)
	if l.maas != nil || l.MaasMachine.Spec.Release.Keep == nil || owner == "" || l.MaasMachine.Spec.SystemID != "" {
		return proceed, nil
	}
	rec, err := r.Records.OpenCluster(l.MaasCluster.DeepCopy())
	if err != nil {
		return proceed, err
	}
	var kept *record.KeptMachine
	err = rec.Merge(ctx, func(all *record.KeptMachines) { // They are read anew if these are old.
		kept = all.Take(l.MaasMachine.UID, func(k record.KeptMachine) bool {
			return k.For == owner && (l.FailureDomain() == "" || k.Zone == l.FailureDomain()) &&
				equality.Semantic.DeepEqual(k.Spec.Storage, l.MaasMachine.Spec.Storage)
		})
	})
	if err != nil || kept == nil {
		return proceed, err
	}
	if l.owesAnother(kept.SystemID) {
		if out, err := r.restoration(ctx, l); err != nil || out.Waits() {
			return out, err
		}
	}
	return r.succeed(ctx, l, &heir{KeptMachine: *kept, record: rec})
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
func (r *Reconciler) succeed(ctx context.Context, l *life, h *heir) (outcome, error) {
	m, err := l.Inventory.Read(ctx, h.SystemID)
	if errors.Is(err, maas.NotFound) {
		return r.lose(ctx, l, h, "MAAS does not have it any more")
	}
	if err != nil {
		return proceed, err
	}
	if backInPool.Has(m.Status) || onItsWay.Has(m.Status) {
		l.record.Reclaim() // The release has taken effect.
	}
	switch {
	case m.Status == maas.StatusReady && m.Owner == "":
		if _, err := r.excludeAgain(ctx, l, m, h.leftover(), l.markOf(h.Machine)); err != nil {
			return proceed, err
		}
		return r.claimFree(ctx, l, h)
	case onItsWay.Has(m.Status):
		// Until it is claimed, no other of our objects allocates it.
		if _, err := r.remember(ctx, l, m, h.leftover(), l.markOf(h.Machine)); err != nil {
			return proceed, err
		}
		l.Inventory.Observe(h.SystemID, inventory.Changing)
		return report.Wait(report.UnknownRetry, infrav1.KeepingReason, "machine %s was kept for this one: %s", m,
			m.StatusName), nil
	case m.Status == maas.StatusDeployed:
		return r.takeOver(ctx, l, h, m.Status)
	}
	ours, err := l.Machines.IsOurs(ctx, l.Identity(), m)
	if err != nil {
		return proceed, err
	}
	if !ours {
		return r.takeOver(ctx, l, h, m.Status)
	}
	return r.inherit(ctx, l, h, m)
}

// takeOver takes the machine if it is proven to be the former MaasMachine's, and as it can be taken.
func (r *Reconciler) takeOver(ctx context.Context, l *life, h *heir, before maas.Status) (outcome, error) {
	constraints, err := l.constraints(ctx)
	if err == nil && before == maas.StatusDeployed {
		err = l.Machines.CheckImage(ctx, l.MaasMachine.Spec.Image, l.MaasMachine.Spec.Architecture)
	}
	if err != nil {
		return proceed, err
	}
	done, err := l.Turn(ctx, turns.Machines, turns.Claim) // Before the proof: the wait may be long.
	if err != nil {
		return proceed, err
	}
	defer done()
	m, ours, err := r.isFormers(ctx, l, h)
	switch {
	case err != nil:
		return proceed, err
	case m.Status != before:
		return report.Retry(report.UnknownRetry, infrav1.KeepingReason, "machine %s, which was kept for this one, is %s now",
			m, m.StatusName), nil
	case !ours:
		return r.lose(ctx, l, h, fmt.Sprintf("it is not ours any more: it is %s, of MAAS user %q", m.StatusName, m.Owner))
	case before != maas.StatusDeployed:
		return r.returnKept(ctx, l, h, "is "+m.StatusName)
	}
	if misfit := machine.Misfit(m, constraints); misfit != "" {
		return r.returnKept(ctx, l, h, misfit)
	}
	return r.releaseKept(ctx, l, h, m)
}

// isFormers reads the machine, and proves that it is the former MaasMachine's, as isOursToRelease does.
func (r *Reconciler) isFormers(ctx context.Context, l *life, h *heir) (m *maas.Machine, ours bool, err error) {
	if m, err = l.Inventory.Read(ctx, h.SystemID); err != nil {
		return nil, false, err
	}
	former := l.Identity()
	former.AgentName = l.markOf(h.Machine)
	former.Annotations[ownership.AnnotationMachine] = l.MaasMachine.Namespace + "." + h.Machine
	ours, err = l.Machines.IsOurs(ctx, former, m)
	if err != nil || ours || h.Giving == nil || !h.Giving.In(releasing) {
		return m, ours, err
	}
	return l.Machines.IsOursInRelease(ctx, former, h.SystemID)
}

// returnKept has the machine given back. Another one is allocated.
func (r *Reconciler) returnKept(ctx context.Context, l *life, h *heir, why string) (outcome, error) {
	if out := report.Settle(l.record.Unsettled()); out.Waits() {
		return out, nil
	}
	r.Warn(l.MaasMachine, "KeptMachineDoesNotFit", "Acquire",
		"machine %s (%s), which was kept, %s: it is given back", h.Hostname, h.SystemID, why)
	l.Machines.StopWithholding(h.SystemID, l.Mark())
	return proceed, h.record.Merge(ctx, func(all *record.KeptMachines) { all.Return(h.SystemID, l.MaasMachine.UID, true) })
}

// releaseKept releases the machine, and claims it.
func (r *Reconciler) releaseKept(ctx context.Context, l *life, h *heir, m *maas.Machine) (outcome, error) {
	if m.Locked {
		return report.Wait(report.MendRetry, infrav1.MachineLockedReason,
			"machine %s, which was kept for this one, is locked: unlock it in MAAS", m), nil
	}
	if err := r.exclude(ctx, l, m, h.leftover()); err != nil {
		return proceed, err
	}
	taken := false
	err := h.record.Merge(ctx, func(all *record.KeptMachines) {
		taken = all.Release(h.SystemID, l.MaasMachine.UID, releasing, r.Clock.Now())
	})
	if err != nil {
		return proceed, err
	}
	if !taken {
		return report.Retry(report.UnknownRetry, infrav1.KeepingReason,
			"machine %s, which was kept for this one, is taken by another one", m), nil
	}
	return r.claimKept(ctx, l, h, m)
}

// claimKept releases the machine and acquires it. Both are in one record: between the two others may acquire the
// machine, other managers only if nothing is left on it. It is not Ready yet if MAAS has to switch it off, or
// erases its disks.
func (r *Reconciler) claimKept(ctx context.Context, l *life, h *heir, m *maas.Machine) (outcome, error) {
	var claimed *maas.Machine
	err := l.record.LetGo(ctx, record.TakeOver, func(ctx context.Context, permit maas.ReleasePermit) (err error) {
		if err := l.Machines.Release(ctx, permit, m, maas.EraseDefault); err != nil {
			return err
		}
		claimed, err = l.Machines.Claim(ctx, permit.Permit(), l.Identity(), h.SystemID)
		return err
	}, l.recordOwner)
	return r.afterClaim(ctx, l, h, claimed, err)
}

// claimFree acquires the machine after its release: nobody knows whether an earlier call got that far.
func (r *Reconciler) claimFree(ctx context.Context, l *life, h *heir) (outcome, error) {
	var claimed *maas.Machine
	err := l.record.Call(ctx, record.Claim, func(ctx context.Context, permit maas.Permit) (err error) {
		claimed, err = l.Machines.Claim(ctx, permit, l.Identity(), h.SystemID)
		return err
	}, l.recordOwner)
	return r.afterClaim(ctx, l, h, claimed, err)
}

func (r *Reconciler) afterClaim(
	ctx context.Context, l *life, h *heir, claimed *maas.Machine, err error,
) (outcome, error) {
	if errors.Is(err, maas.Conflict) {
		return report.Retry(report.UnknownRetry, infrav1.KeepingReason,
			"MAAS refuses to allocate machine %s, which was kept for this one; reading why", h.SystemID), nil
	}
	if err != nil {
		return proceed, err
	}
	return r.inherit(ctx, l, h, claimed)
}

// inherit goes on with the machine, and with what was done to it.
func (r *Reconciler) inherit(ctx context.Context, l *life, h *heir, m *maas.Machine) (outcome, error) {
	l.leftover = h.leftover().On(m)
	l.leftover.Storage = false // It goes with the record.
	if h.Storage != nil {
		if err := l.record.Store(ctx, func() { l.record.Storage = h.Storage }); err != nil {
			return proceed, err
		}
	}
	if err := r.acquired(ctx, l, m, "TakenOver"); err != nil {
		return proceed, err
	}
	if err := h.drop(ctx, l); err != nil {
		return proceed, err
	}
	return r.inclusion(ctx, l)
}

// tellDataDisks emits an event if the machine will be kept, and MAAS lists disks beside the one of the root: its
// installer removes the signatures of each disk that it lists, in every deployment.
func (r *Reconciler) tellDataDisks(l *life) {
	m := l.MaasMachine
	if m.Spec.Release.Keep == nil || m.Spec.DeployInMemory || len(l.maas.Disks) < 2 {
		return
	}
	names := list.Each(l.maas.Disks, func(d *maas.Disk) string { return d.Name })
	r.Warn(m, "DataDisksNotKept", "Acquire",
		"machine %s: each deployment removes the signatures of all disks that MAAS lists (%s), also when the machine is "+
			"kept; delete the block devices of those to be left alone in MAAS while it is Ready",
		l.maas, text.List(names, maxSkipped))
}

// lose reports that another user has the machine. Another one is allocated.
func (r *Reconciler) lose(ctx context.Context, l *life, h *heir, why string) (outcome, error) {
	l.Machines.StopWithholding(h.SystemID, l.Mark()) // If it comes back, anybody may have it.
	message := fmt.Sprintf("machine %s (%s) was kept for this one and is lost: %s", h.Hostname, h.SystemID, why)
	r.Warn(l.MaasMachine, infrav1.KeptMachineLostReason, "Acquire", "%s", message)
	if err := l.record.Store(ctx, func() { l.record.Lost = message }); err != nil {
		return proceed, err
	}
	return proceed, h.drop(ctx, l)
}

// drop records that the machine waits no more.
func (h *heir) drop(ctx context.Context, l *life) error {
	return h.record.Merge(ctx, func(all *record.KeptMachines) { all.Drop(h.SystemID, l.MaasMachine.UID) })
}
