// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/internal/presence"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	inmaas "github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// What was put on a machine is taken off again here. MAAS keeps the interfaces, the static address and the storage
// layout of a machine that is released, and lets no user undo them while it is deployed. So a tag goes on before the
// release and off after the undo: no manager allocates the machine in between.

// note has MAAS say that something is done to the machine that this object undoes later: nothing else proves that, once
// the machine is back in the pool. So nothing is done before MAAS says it, unless the API key may not note it. The
// machine is ours.
func (s *Steps) note(ctx context.Context, l *life.Life, m *maas.Machine) error {
	if l.Record.Excluded == m.SystemID { // An earlier try to note it may have failed.
		if by, err := l.Machines.Quarantine.NotedBy(ctx, m.SystemID); err != nil || by == l.Mark() {
			return err
		}
	}
	return s.tell(ctx, l, m.SystemID, l.Machines.Quarantine.Note)
}

// setAside keeps a machine in the pool from being allocated by other managers until acquisition. inmaas.ErrHeld: it is
// set aside for another object.
func (s *Steps) setAside(ctx context.Context, l *life.Life, m *maas.Machine) error {
	before := l.Record.Excluded
	try := func() error {
		err := s.tell(ctx, l, m.SystemID, l.Machines.Quarantine.Hold)
		if errors.Is(err, inmaas.ErrHeld) {
			l.Record.Excluded = before
		}
		return err
	}
	err := try()
	if errors.Is(err, inmaas.ErrHeld) {
		if err = s.endNote(ctx, l, m); err == nil {
			err = try()
		}
	}
	return err
}

// endNote ends the note on a machine in the pool if it is of a MaasMachine of this cluster that is gone: nothing undoes
// any more what it notes. Otherwise the error is inmaas.ErrHeld: before it is gone, a MaasMachine has undone that, or
// left it to the record of a machine that is kept, and while it does, the machine has the tag.
func (s *Steps) endNote(ctx context.Context, l *life.Life, m *maas.Machine) error {
	by, err := l.Machines.Quarantine.NotedBy(ctx, m.SystemID)
	name, isOfCluster := strings.CutPrefix(by, markOf(l, ""))
	cluster, unreadable := record.OfCluster(l.MaasCluster)
	mayBeKept := unreadable != nil || cluster.Kept.Named(m.SystemID) != nil
	if err != nil || !isOfCluster || mayBeKept || inmaas.IsExcluded(m) {
		return cmp.Or(err, inmaas.ErrHeld)
	}
	key := client.ObjectKey{Namespace: l.MaasMachine.Namespace, Name: name}
	there, err := presence.Look(ctx, s.APIReader, clusters.MaasMachineKind, key, &infrav1.MaasMachine{})
	if there || presence.IsUnknown(err) {
		return inmaas.ErrHeld
	}
	if err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Ending the note of a MaasMachine that is gone", "systemID", m.SystemID, "name", name)
	err = l.Machines.Quarantine.Include(ctx, record.TendQuarantines.Permit(), m.SystemID, by)
	if errors.Is(err, maas.Forbidden) {
		return inmaas.ErrHeld
	}
	return err
}

// acquisition ends hold: the machine is ours.
func (s *Steps) acquisition(ctx context.Context, l *life.Life) error {
	if l.Record.Excluded != l.MAAS.SystemID || !inmaas.IsExcluded(l.MAAS) {
		return nil
	}
	err := s.tell(ctx, l, l.MAAS.SystemID, l.Machines.Quarantine.Acquired)
	if err == nil {
		l.MAAS = inmaas.Included(l.MAAS)
	}
	return err
}

// exclude keeps a machine from being allocated by other managers until inclusion, if something is left on it that is to
// be undone. It is proven to be ours. What MAAS refuses does not hold a machine that is to be released, nor what fails
// twice.
func (s *Steps) exclude(ctx context.Context, l *life.Life, out *maas.Machine, left machine.Leftover) error {
	if left = left.On(out); left == (machine.Leftover{}) {
		return nil
	}
	l.Machines.Withhold(out, l.Mark(), left)
	if l.Record.Excluded == out.SystemID && inmaas.IsExcluded(out) {
		return nil
	}
	again := l.Record.IsPending(record.Exclude)
	err := s.tell(ctx, l, out.SystemID, l.Machines.Quarantine.Exclude)
	if !guard.Is[*maas.Error](err) || (errors.Is(err, maas.Unavailable) && !again) {
		return err
	}
	notTold(ctx, out.SystemID, err) // What is to be undone is noted since before it was done.
	return nil
}

// tell writes a note about a machine into MAAS. If the API key may not do that, only this process knows it. After
// another error the same again may succeed; part of it may be noted by then.
func (s *Steps) tell(
	ctx context.Context, l *life.Life, id string, tell func(context.Context, maas.Permit, string, inmaas.Cause) error,
) error {
	l.Record.Excluded = id // Stored with the call.
	err := s.Change(ctx, l, record.Exclude, func(ctx context.Context, permit maas.Permit) error {
		return tell(ctx, permit, id, cause(l))
	})
	if !errors.Is(err, maas.Forbidden) {
		return err
	}
	notTold(ctx, id, err)
	return nil
}

func notTold(ctx context.Context, id string, err error) {
	ctrl.LoggerFrom(ctx).Info("Failed to note in MAAS that a machine is to be as before when it is free", "systemID", id,
		"error", text.Lines(err))
}

func cause(l *life.Life) inmaas.Cause {
	m := l.MaasMachine
	return inmaas.Cause{By: l.Mark(), Why: fmt.Sprintf("its network or storage is not as before (MaasMachine %s/%s)",
		m.Namespace, m.Name)}
}

// mayUndo reports whether something that is recorded of a machine in the pool may be undone on it: it was proven to
// this process that the machine was the object's, or MAAS says so. The record alone proves nothing: others may have
// written it, or a backup has restored it.
func (s *Steps) mayUndo(ctx context.Context, l *life.Life, systemID string, alsoOf ...string) (bool, error) {
	if l.Machines.Withholds(systemID, l.Mark()) {
		return true, nil
	}
	by, err := l.Machines.Quarantine.NotedBy(ctx, systemID)
	if err != nil {
		return false, fmt.Errorf("reading whose machine %s was: %w", systemID, err)
	}
	return by != "" && slices.Contains(append(alsoOf, l.Mark()), by), nil
}

// remember keeps a machine that is not ours any more from being allocated here until what is left on it is undone, and
// reports whether this may be undone. alsoOf are the marks of others whose machine it was, and who have left it to this
// object.
func (s *Steps) remember(
	ctx context.Context, l *life.Life, m *maas.Machine, left machine.Leftover, alsoOf ...string,
) (may bool, err error) {
	if left = left.On(m); left == (machine.Leftover{}) {
		return true, nil
	}
	if may, err = s.mayUndo(ctx, l, m.SystemID, alsoOf...); may {
		l.Machines.Withhold(m, l.Mark(), left)
	}
	return may, err
}

// excludeAgain is remember for all managers, once the machine is in the pool: a person may have released it.
func (s *Steps) excludeAgain(
	ctx context.Context, l *life.Life, m *maas.Machine, left machine.Leftover, alsoOf ...string,
) (may bool, err error) {
	if may, err = s.remember(ctx, l, m, left, alsoOf...); err != nil || !may {
		return false, err
	}
	return true, s.exclude(ctx, l, m, left)
}

// notUndone emits an event that what is recorded of a machine is not undone, because nothing proves that it was the
// object's.
func (s *Steps) notUndone(l *life.Life, systemID string) {
	s.Warn(l.MaasMachine, "NotUndone", "GiveBack",
		"machine %s is in the pool, and MAAS does not say that it was this object's: its network and storage are left as "+
			"they are; check them in MAAS", systemID)
}

// inPool waits until nothing that was asked for can hit the machine any more, and undoes what is left on it. Its
// storage layout follows in restoration.
func (s *Steps) inPool(ctx context.Context, l *life.Life) (life.Outcome, error) {
	l.Record.Idle(record.Release) // MAAS has found the machine off.
	l.Machines.Quarantine.BackInPool(l.MAAS)
	may, err := s.excludeAgain(ctx, l, l.MAAS, leftover(l))
	if err != nil {
		return life.Proceed, err
	}
	if left := l.Record.Unsettled(); left > 0 {
		return report.Wait(min(left, report.CapacityRetry), infrav1.MAASUnavailableReason,
			"the response to a request for machine %s was lost; waiting, because MAAS may still acquire or change it",
			l.MAAS.SystemID), nil
	}
	left := leftover(l).On(l.MAAS)
	switch {
	case !may:
		s.notUndone(l, l.MAAS.SystemID)
		return life.Proceed, nil
	case left.Interfaces == nil && left.Address == "":
		return life.Proceed, nil
	case l.MAAS.Status == maas.StatusNew:
		return s.undo(ctx, l, left) // No user gets it before it is commissioned.
	}
	return s.claimToUndo(ctx, l)
}

// claimToUndo acquires a machine in the pool once more: MAAS changes the network of a deployed one not at all, and a
// call that takes effect late must not hit the next user's. It is released as one that was never deployed.
func (s *Steps) claimToUndo(ctx context.Context, l *life.Life) (life.Outcome, error) {
	l.Record.Enter(life.Undoing, s.Clock.Now())
	if out, err := s.ClaimNow(ctx, l, l.MAAS.SystemID); err != nil || out.Waits() {
		return out, err
	}
	return report.Wait(report.UnknownRetry, infrav1.ReleasingReason,
		"machine %s is acquired once more, until its network is as before", l.MAAS), nil
}

// undo undoes interfaces and a static address on a machine that no other user can get.
func (s *Steps) undo(ctx context.Context, l *life.Life, left machine.Leftover) (life.Outcome, error) {
	switch {
	case left.Interfaces != nil:
		return s.undoInterfaces(ctx, l, left.Interfaces, left.Address)
	case left.Address != "":
		return s.removeAddress(ctx, l, left.Address)
	}
	return life.Proceed, nil
}

// undoInterfaces undoes what an object of ours did to the interfaces of a machine that is ours now, and not deployed:
// MAAS keeps bonds, VLANs, links and MTUs on a released one. A static address that goes with them is undone, too. What
// others made of it stays.
func (s *Steps) undoInterfaces(
	ctx context.Context, l *life.Life, before *machine.Arrangement, address string,
) (life.Outcome, error) {
	err := s.Change(ctx, l, record.Arrange, func(ctx context.Context, permit maas.Permit) error {
		return s.notRestored(l, l.Machines.RestoreInterfaces(ctx, permit, l.MAAS.SystemID, before, address))
	})
	if err != nil {
		return life.Proceed, err
	}
	return report.Retry(report.UnknownRetry, infrav1.NotReadyReason, "the interfaces of machine %s are as before",
		l.MAAS.SystemID), l.Record.Forget(ctx, infrav1.InterfacesAnnotation)
}

// notRestored emits an event if MAAS refuses to restore an interface, which is no reason to keep the machine. Other
// errors are returned.
func (s *Steps) notRestored(l *life.Life, err error) error {
	refused, is := errors.AsType[*machine.NotRestoredError](err)
	if !is {
		return err
	}
	s.Warn(l.MaasMachine, "InterfaceNotRestored", "GiveBack",
		"machine %s: %s: restore its networking configuration in MAAS", l.MAAS, refused.Error())
	return nil
}

// removeAddress removes a static address that an object of ours has put on a machine that is ours now, and not
// deployed.
func (s *Steps) removeAddress(ctx context.Context, l *life.Life, address string) (life.Outcome, error) {
	return report.Retry(report.UnknownRetry, infrav1.NotReadyReason, "the address %s is removed from machine %s", address,
			l.MAAS.SystemID), s.Change(ctx, l, record.Link, func(ctx context.Context, permit maas.Permit) error {
			return l.Machines.RemoveAddress(ctx, permit, l.MAAS, address)
		})
}

// owesAnother reports whether something is recorded that is to be undone on another machine than one.
func owesAnother(l *life.Life, systemID string) bool {
	return (l.Record.Storage != nil && l.Record.Storage.SystemID != systemID) ||
		(l.Record.Excluded != "" && l.Record.Excluded != systemID)
}

// recordUnusedForStorage is recordUnused for a machine that has another storage layout than the spec's; that is
// restored when the machine is back in the pool. Interfaces and an address that another object of ours left, too, are
// undone before.
func (s *Steps) recordUnusedForStorage(ctx context.Context, l *life.Life, m *maas.Machine) (life.Outcome, error) {
	s.leftover = l.Machines.LeftOn(m, l.Mark())
	l.Machines.Withhold(m, l.Mark(), machine.Leftover{Storage: true})
	err := l.Record.Store(ctx, func() {
		l.Record.Storage = &record.StorageLayout{SystemID: m.SystemID}
	}, s.recordLeftover)
	if err != nil {
		return life.Proceed, err
	}
	return s.recordUnused(ctx, l, m, othersStorage(m))
}

// othersStorage waits until a machine is given back.
func othersStorage(m *maas.Machine) life.Outcome {
	return report.Retry(report.UnknownRetry, infrav1.NoMachineAvailableReason,
		"machine %s has a storage layout that another one has set; it is given back", m)
}

// Settlement undoes what an earlier try left on a machine that is not held, before another one is taken.
func (s *Steps) Settlement(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MAAS != nil || s.bid.setAside != nil {
		return life.Proceed, nil
	}
	if out := report.Settle(l.Record.Unsettled()); out.Waits() {
		return out, nil
	}
	return s.Restoration(ctx, l)
}

// Restoration undoes what is recorded of a machine that is not the object's any more, or never was.
func (s *Steps) Restoration(ctx context.Context, l *life.Life) (life.Outcome, error) {
	return reconciler.Through(ctx, l, []life.Step{s.storageRestoration, s.inclusion})
}

// storageRestoration gives the machine whose layout was changed the region's default one, when it is in the pool, or on
// its way there. If another user has it, it is theirs as it is.
func (s *Steps) storageRestoration(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.Record.Storage == nil {
		return life.Proceed, nil
	}
	id := l.Record.Storage.SystemID
	m, err := l.Inventory.Read(ctx, id)
	if err != nil && !errors.Is(err, maas.NotFound) {
		return life.Proceed, fmt.Errorf("reading machine %s, whose storage layout is to be restored: %w", id, err)
	}
	if err == nil && l.Record.Storage.IsOn(machine.Partitions(m)) {
		out, err := s.restoreStorage(ctx, l, m)
		if err != nil || out.Waits() {
			return out, err
		}
	}
	if err := l.Record.Store(ctx, func() { l.Record.Storage = nil }); err != nil {
		return life.Proceed, err
	}
	l.Machines.StopWithholding(id, l.Mark())
	return life.Proceed, nil
}

// restoreStorage restores the layout of a machine that has the one that was set, unless another user has it.
func (s *Steps) restoreStorage(ctx context.Context, l *life.Life, m *maas.Machine) (life.Outcome, error) {
	switch {
	case life.OnItsWay.Has(m.Status):
		return report.Wait(report.CapacityRetry, infrav1.ReleasingReason,
			"machine %s, whose storage layout is to be restored, is given back by another user (%s); if that does not end, "+
				"end it in MAAS", m, m.StatusName), nil
	case m.Owner != "" || m.Status != maas.StatusReady:
		return life.Proceed, nil
	}
	may, err := s.mayUndo(ctx, l, m.SystemID)
	if err != nil {
		return life.Proceed, err
	}
	if !may {
		s.notUndone(l, m.SystemID)
		return life.Proceed, nil
	}
	l.Machines.Withhold(m, l.Mark(), machine.Leftover{Storage: true})
	err = s.Change(ctx, l, record.Storage, func(ctx context.Context, permit maas.Permit) error {
		return l.Machines.RestoreStorage(ctx, permit, m)
	})
	if errors.Is(err, maas.Conflict) || errors.Is(err, maas.NotFound) {
		return report.Retry(report.UnknownRetry, infrav1.NotReadyReason,
			"another user just took machine %s, whose storage was to be as before; reading it again", m.SystemID), nil
	}
	return life.Proceed, err
}

// inclusion ends what exclude began, when nothing is left to be undone. What MAAS says of a machine that is kept stays:
// it proves whose it was if a person releases it.
func (s *Steps) inclusion(ctx context.Context, l *life.Life) (life.Outcome, error) {
	id, by := l.Record.Excluded, l.Mark()
	if id == "" || l.Kept {
		return life.Proceed, nil
	}
	former, err := s.bequeaths(l)
	switch {
	case err != nil:
	case former != "":
		err = l.Machines.Quarantine.PassOn(ctx, record.TendQuarantines.Permit(), id, by,
			inmaas.Cause{By: former, Why: cause(l).Why})
	default:
		err = l.Machines.Quarantine.Include(ctx, record.TendQuarantines.Permit(), id, by)
	}
	if err != nil && !errors.Is(err, maas.Forbidden) {
		return life.Proceed, err
	}
	return life.Proceed, l.Record.Store(ctx, func() { l.Record.Excluded = "" })
}

// bequeaths returns the mark of the former MaasMachine, if the object goes before it had the machine that was kept for
// it. What is left on that is undone by the next one, or when the machine is given back: the exclusion stays until
// then.
func (s *Steps) bequeaths(l *life.Life) (former string, err error) {
	if l.MaasMachine.DeletionTimestamp.IsZero() {
		return "", nil
	}
	cluster, err := s.Records.OpenCluster(l.MaasCluster.DeepCopy())
	if err != nil {
		return "", err
	}
	kept := cluster.Kept.Named(l.Record.Excluded)
	if kept == nil || kept.TakenBy != l.MaasMachine.UID {
		return "", nil
	}
	return markOf(l, kept.Machine), nil
}

// markOf returns the mark of another MaasMachine of the cluster.
func markOf(l *life.Life, machine string) string { return ownership.AgentName(l.OwnerID(), machine) }

// leftover returns what was done to the machine, and is undone once it is back in the pool.
func leftover(l *life.Life) machine.Leftover {
	return machine.Leftover{
		Address: l.MaasMachine.Annotations[infrav1.StaticIPAnnotation], Interfaces: arrangement(l.MaasMachine.Annotations),
		Storage: l.Record.StorageOn(l.MAAS.SystemID) != nil,
	}
}

// leftAddress returns the static address that another object of ours has left on a machine, unless it is ours; "" if
// there is none.
func leftAddress(l *life.Life) string {
	address := l.MaasMachine.Annotations[infrav1.StaticIPAnnotation]
	if address == "" || address == l.MaasMachine.Status.StaticIP || !machine.HasAddress(l.MAAS, address) {
		return ""
	}
	return address
}

// arrangement returns what the annotations of a MaasMachine record about the machine's interfaces; nil if there is
// nothing, or nothing readable.
func arrangement(annotations map[string]string) *machine.Arrangement {
	a := &machine.Arrangement{}
	if json.Unmarshal([]byte(annotations[infrav1.InterfacesAnnotation]), a) != nil {
		return nil
	}
	return a
}

func annotateArrangement(m client.Object, a *machine.Arrangement) {
	if text, err := json.Marshal(a); err == nil {
		record.SetAnnotation(m, infrav1.InterfacesAnnotation, string(text))
	}
}

// recordLeftover records what another object of ours has left on the machine.
func (s *Steps) recordLeftover(m client.Object) {
	if s.leftover.Address != "" {
		record.SetAnnotation(m, infrav1.StaticIPAnnotation, s.leftover.Address)
	}
	if s.leftover.Interfaces != nil {
		annotateArrangement(m, s.leftover.Interfaces)
	}
}
