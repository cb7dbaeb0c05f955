// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	inmaas "github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// What was put on a machine is taken off again here. MAAS keeps the interfaces, the static address and the storage
// layout of a machine that is released, and lets nobody undo them while it is deployed. So a tag goes on before the
// release and off after the undo: no manager allocates the machine in between.

// note has MAAS say that something is done to the machine that this object undoes later: nothing else proves that, once
// the machine is back in the pool. So nothing is done before MAAS says it, unless the API key may not note it. The
// machine is ours.
func (r *Reconciler) note(ctx context.Context, l *life, m *maas.Machine) error {
	if l.IsLXD() {
		return nil
	}
	if l.record.Excluded == m.SystemID { // An earlier try to note it may have failed.
		if by, err := l.Machines.Quarantine.NotedBy(ctx, m.SystemID); err != nil || by == l.Mark() {
			return err
		}
	}
	return r.tell(ctx, l, m.SystemID, l.Machines.Quarantine.Note)
}

// hold keeps a machine in the pool from being allocated by other managers until acquisition. inmaas.ErrHeld: another
// manager holds it.
func (r *Reconciler) hold(ctx context.Context, l *life, m *maas.Machine) error {
	before := l.record.Excluded
	hold := func() error {
		err := r.tell(ctx, l, m.SystemID, l.Machines.Quarantine.Hold)
		if errors.Is(err, inmaas.ErrHeld) {
			l.record.Excluded = before
		}
		return err
	}
	err := hold()
	if errors.Is(err, inmaas.ErrHeld) {
		if err = r.endNote(ctx, l, m); err == nil {
			err = hold()
		}
	}
	return err
}

// endNote ends the note on a machine in the pool if it is of a MaasMachine of this cluster that is gone: nobody undoes
// any more what it notes. Otherwise the error is inmaas.ErrHeld: before it is gone, a MaasMachine has undone that, or
// left it to the record of a machine that is kept, and while it does, the machine has the tag.
func (r *Reconciler) endNote(ctx context.Context, l *life, m *maas.Machine) error {
	by, err := l.Machines.Quarantine.NotedBy(ctx, m.SystemID)
	name, isOfCluster := strings.CutPrefix(by, l.markOf(""))
	cluster, unreadable := record.OfCluster(l.MaasCluster)
	mayBeKept := unreadable != nil || cluster.Kept.Named(m.SystemID) != nil
	if err != nil || !isOfCluster || mayBeKept || inmaas.IsExcluded(m) {
		return cmp.Or(err, inmaas.ErrHeld)
	}
	err = r.APIReader.Get(ctx, client.ObjectKey{Namespace: l.MaasMachine.Namespace, Name: name}, &infrav1.MaasMachine{})
	if !apierrors.IsNotFound(err) {
		return cmp.Or(err, inmaas.ErrHeld)
	}
	ctrl.LoggerFrom(ctx).Info("Ending the note of a MaasMachine that is gone", "systemID", m.SystemID, "name", name)
	err = l.Machines.Quarantine.Include(ctx, record.TendQuarantines.Permit(), m.SystemID, by)
	if errors.Is(err, maas.Forbidden) {
		return inmaas.ErrHeld
	}
	return err
}

// acquisition ends hold: the machine is ours.
func (r *Reconciler) acquisition(ctx context.Context, l *life) error {
	if l.record.Excluded != l.maas.SystemID || !inmaas.IsExcluded(l.maas) {
		return nil
	}
	err := r.tell(ctx, l, l.maas.SystemID, l.Machines.Quarantine.Acquired)
	if err == nil {
		l.maas = inmaas.Included(l.maas)
	}
	return err
}

// exclude keeps a machine from being allocated by other managers until inclusion, if something is left on it that is to
// be undone. It is proven to be ours. What MAAS refuses does not hold a machine that is to be released, nor what fails
// twice.
func (r *Reconciler) exclude(ctx context.Context, l *life, out *maas.Machine, left machine.Leftover) error {
	if left = left.On(out); left == (machine.Leftover{}) {
		return nil
	}
	l.Machines.Withhold(out, l.Mark(), left)
	if l.record.Excluded == out.SystemID && inmaas.IsExcluded(out) {
		return nil
	}
	again := l.record.IsPending(record.Exclude)
	err := r.tell(ctx, l, out.SystemID, l.Machines.Quarantine.Exclude)
	if !guard.Is[*maas.Error](err) || (errors.Is(err, maas.Unavailable) && !again) {
		return err
	}
	notTold(ctx, out.SystemID, err) // What is to be undone is noted since before it was done.
	return nil
}

// tell has MAAS note something about a machine. If the API key may not do that, only this process knows it. After
// another error the same again may succeed; part of it may be noted by then.
func (r *Reconciler) tell(
	ctx context.Context, l *life, id string, tell func(context.Context, maas.Permit, string, inmaas.Cause) error,
) error {
	l.record.Excluded = id // Stored with the call.
	err := r.change(ctx, l, record.Exclude, func(ctx context.Context, permit maas.Permit) error {
		return tell(ctx, permit, id, l.cause())
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

func (l *life) cause() inmaas.Cause {
	m := l.MaasMachine
	return inmaas.Cause{By: l.Mark(), Why: fmt.Sprintf("its network or storage is not as before (MaasMachine %s/%s)",
		m.Namespace, m.Name)}
}

// mayUndo reports whether something that is recorded of a machine in the pool may be undone on it: it was proven to
// this process that the machine was the object's, or MAAS says so. The record alone proves nothing: others may have
// written it, or a backup has restored it.
func (r *Reconciler) mayUndo(ctx context.Context, l *life, systemID string, alsoOf ...string) (bool, error) {
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
func (r *Reconciler) remember(
	ctx context.Context, l *life, m *maas.Machine, left machine.Leftover, alsoOf ...string,
) (may bool, err error) {
	if left = left.On(m); left == (machine.Leftover{}) {
		return true, nil
	}
	if may, err = r.mayUndo(ctx, l, m.SystemID, alsoOf...); may {
		l.Machines.Withhold(m, l.Mark(), left)
	}
	return may, err
}

// excludeAgain is remember for all managers, once the machine is in the pool: a person may have released it.
func (r *Reconciler) excludeAgain(
	ctx context.Context, l *life, m *maas.Machine, left machine.Leftover, alsoOf ...string,
) (may bool, err error) {
	if may, err = r.remember(ctx, l, m, left, alsoOf...); err != nil || !may {
		return false, err
	}
	return true, r.exclude(ctx, l, m, left)
}

// notUndone emits an event that what is recorded of a machine is not undone, because nothing proves that it was the
// object's.
func (r *Reconciler) notUndone(l *life, systemID string) {
	r.Warn(l.MaasMachine, "NotUndone", "GiveBack",
		"machine %s is in the pool, and MAAS does not say that it was this object's: its network and storage are left as "+
			"they are; check them in MAAS", systemID)
}

// inPool waits until nothing that was asked for can hit the machine any more, and undoes what is left on it. Its
// storage layout follows in restoration.
func (r *Reconciler) inPool(ctx context.Context, l *life) (outcome, error) {
	l.record.Idle(record.Release) // MAAS has found the machine off.
	l.Machines.Quarantine.BackInPool(l.maas)
	may, err := r.excludeAgain(ctx, l, l.maas, leftover(l))
	if err != nil {
		return proceed, err
	}
	if left := l.record.Unsettled(); left > 0 {
		return report.Wait(min(left, report.CapacityRetry), infrav1.MAASUnavailableReason,
			"the response to a request for machine %s was lost; waiting, because MAAS may still acquire or change it",
			l.maas.SystemID), nil
	}
	left := leftover(l).On(l.maas)
	switch {
	case !may:
		r.notUndone(l, l.maas.SystemID)
		return proceed, nil
	case left.Interfaces == nil && left.Address == "":
		return proceed, nil
	case l.maas.Status == maas.StatusNew:
		return r.undo(ctx, l, left) // Nobody gets it before it is commissioned.
	}
	return r.claimToUndo(ctx, l)
}

// undoing is the phase in which a machine that was released is ours once more, until its network is as before.
const undoing = "undoing"

// claimToUndo acquires a machine in the pool once more: MAAS changes the network of a deployed one not at all, and a
// call that takes effect late must not hit the next user's. It is released as one that was never deployed.
func (r *Reconciler) claimToUndo(ctx context.Context, l *life) (outcome, error) {
	l.record.Enter(undoing, r.Clock.Now())
	if out, err := r.claimNow(ctx, l, l.maas.SystemID); err != nil || out.Waits() {
		return out, err
	}
	return report.Wait(report.UnknownRetry, infrav1.ReleasingReason,
		"machine %s is acquired once more, until its network is as before", l.maas), nil
}

// undo undoes interfaces and a static address on a machine that nobody else can get.
func (r *Reconciler) undo(ctx context.Context, l *life, left machine.Leftover) (outcome, error) {
	switch {
	case left.Interfaces != nil:
		return r.undoInterfaces(ctx, l, left.Interfaces, left.Address)
	case left.Address != "":
		return r.takeOff(ctx, l, left.Address)
	}
	return proceed, nil
}

// undoInterfaces undoes what an object of ours did to the interfaces of a machine that is ours now, and not deployed:
// MAAS keeps bonds, VLANs, links and MTUs on a released one. A static address that goes with them is undone, too. What
// others made of it stays.
func (r *Reconciler) undoInterfaces(
	ctx context.Context, l *life, before *machine.Arrangement, address string,
) (outcome, error) {
	err := r.change(ctx, l, record.Arrange, func(ctx context.Context, permit maas.Permit) error {
		return r.notRestored(l, l.Machines.RestoreInterfaces(ctx, permit, l.maas.SystemID, before, address))
	})
	if err != nil {
		return proceed, err
	}
	return report.Retry(report.UnknownRetry, infrav1.NotReadyReason, "the interfaces of machine %s are as before",
		l.maas.SystemID), l.record.Forget(ctx, infrav1.InterfacesAnnotation)
}

// notRestored emits an event if MAAS refuses to restore an interface, which is no reason to keep the machine. Other
// errors are returned.
func (r *Reconciler) notRestored(l *life, err error) error {
	refused, is := errors.AsType[*machine.NotRestoredError](err)
	if !is {
		return err
	}
	r.Warn(l.MaasMachine, "InterfaceNotRestored", "GiveBack",
		"machine %s: %s: restore its networking configuration in MAAS", l.maas, refused.Error())
	return nil
}

// takeOff removes a static address that an object of ours has put on a machine that is ours now, and not deployed.
func (r *Reconciler) takeOff(ctx context.Context, l *life, address string) (outcome, error) {
	return report.Retry(report.UnknownRetry, infrav1.NotReadyReason, "the address %s is removed from machine %s", address,
			l.maas.SystemID), r.change(ctx, l, record.Link, func(ctx context.Context, permit maas.Permit) error {
			return l.Machines.TakeOff(ctx, permit, l.maas, address)
		})
}

// owesAnother reports whether something is recorded that is to be undone on another machine than one.
func (l *life) owesAnother(systemID string) bool {
	return (l.record.Storage != nil && l.record.Storage.SystemID != systemID) ||
		(l.record.Excluded != "" && l.record.Excluded != systemID)
}

// returnMachine gives back a machine that was just acquired with another storage layout than the spec's; that is
// restored when the machine is back in the pool. Interfaces and an address that another object of ours left, too, are
// undone before.
func (r *Reconciler) returnMachine(ctx context.Context, l *life, m *maas.Machine) (outcome, error) {
	l.leftover = l.Machines.LeftOn(m, l.Mark())
	l.Machines.Withhold(m, l.Mark(), machine.Leftover{Storage: true})
	err := l.record.Store(ctx, func() {
		l.record.Storage = &record.StorageLayout{SystemID: m.SystemID}
	}, l.recordLeftover)
	if err != nil {
		return proceed, err
	}
	return r.giveBack(ctx, l, m, othersStorage(m))
}

// othersStorage waits until a machine is given back.
func othersStorage(m *maas.Machine) outcome {
	return report.Retry(report.UnknownRetry, infrav1.NoMachineAvailableReason,
		"machine %s has a storage layout that another one has set; it is given back", m)
}

// settlement undoes what an earlier try left on a machine that is not held, before another one is taken.
func (r *Reconciler) settlement(ctx context.Context, l *life) (outcome, error) {
	if l.maas != nil || l.bid.held != nil {
		return proceed, nil
	}
	if out := report.Settle(l.record.Unsettled()); out.Waits() {
		return out, nil
	}
	return r.restoration(ctx, l)
}

// restoration undoes what is recorded of a machine that is not the object's any more, or never was.
func (r *Reconciler) restoration(ctx context.Context, l *life) (outcome, error) {
	return reconciler.Through(ctx, l, []step{r.storageRestoration, r.inclusion})
}

// storageRestoration gives the machine whose layout was changed the region's default one, when it is in the pool, or on
// its way there. If another user has it, it is theirs as it is.
func (r *Reconciler) storageRestoration(ctx context.Context, l *life) (outcome, error) {
	if l.record.Storage == nil {
		return proceed, nil
	}
	id := l.record.Storage.SystemID
	m, err := l.Inventory.Read(ctx, id)
	if err != nil && !errors.Is(err, maas.NotFound) {
		return proceed, fmt.Errorf("reading machine %s, whose storage layout is to be restored: %w", id, err)
	}
	if err == nil && l.record.Storage.IsOn(machine.Partitions(m)) {
		out, err := r.restoreStorage(ctx, l, m)
		if err != nil || out.Waits() {
			return out, err
		}
	}
	if err := l.record.Store(ctx, func() { l.record.Storage = nil }); err != nil {
		return proceed, err
	}
	l.Machines.StopWithholding(id, l.Mark())
	return proceed, nil
}

// restoreStorage restores the layout of a machine that has the one that was set, unless another user has it.
func (r *Reconciler) restoreStorage(ctx context.Context, l *life, m *maas.Machine) (outcome, error) {
	switch {
	case onItsWay.Has(m.Status):
		return report.Wait(report.CapacityRetry, infrav1.ReleasingReason,
			"machine %s, whose storage layout is to be restored, is given back by another user (%s); if that does not end, "+
				"end it in MAAS", m, m.StatusName), nil
	case m.Owner != "" || m.Status != maas.StatusReady:
		return proceed, nil
	}
	may, err := r.mayUndo(ctx, l, m.SystemID)
	if err != nil {
		return proceed, err
	}
	if !may {
		r.notUndone(l, m.SystemID)
		return proceed, nil
	}
	l.Machines.Withhold(m, l.Mark(), machine.Leftover{Storage: true})
	err = r.change(ctx, l, record.Storage, func(ctx context.Context, permit maas.Permit) error {
		return l.Machines.RestoreStorage(ctx, permit, m)
	})
	if errors.Is(err, maas.Conflict) || errors.Is(err, maas.NotFound) {
		return report.Retry(report.UnknownRetry, infrav1.NotReadyReason,
			"another user just took machine %s, whose storage was to be as before; reading it again", m.SystemID), nil
	}
	return proceed, err
}

// inclusion ends what exclude began, when nothing is left to be undone. What MAAS says of a machine that is kept stays:
// it proves whose it was if a person releases it.
func (r *Reconciler) inclusion(ctx context.Context, l *life) (outcome, error) {
	id, by := l.record.Excluded, l.Mark()
	if id == "" || l.kept {
		return proceed, nil
	}
	former, err := r.bequeaths(l)
	switch {
	case err != nil:
	case former != "":
		err = l.Machines.Quarantine.PassOn(ctx, record.TendQuarantines.Permit(), id, by,
			inmaas.Cause{By: former, Why: l.cause().Why})
	default:
		err = l.Machines.Quarantine.Include(ctx, record.TendQuarantines.Permit(), id, by)
	}
	if err != nil && !errors.Is(err, maas.Forbidden) {
		return proceed, err
	}
	return proceed, l.record.Store(ctx, func() { l.record.Excluded = "" })
}

// bequeaths returns the mark of the former MaasMachine, if the object goes before it had the machine that was kept for
// it. What is left on that is undone by the next one, or when the machine is given back: the exclusion stays until
// then.
func (r *Reconciler) bequeaths(l *life) (former string, err error) {
	if l.MaasMachine.DeletionTimestamp.IsZero() {
		return "", nil
	}
	cluster, err := r.Records.OpenCluster(l.MaasCluster.DeepCopy())
	if err != nil {
		return "", err
	}
	kept := cluster.Kept.Named(l.record.Excluded)
	if kept == nil || kept.TakenBy != l.MaasMachine.UID {
		return "", nil
	}
	return l.markOf(kept.Machine), nil
}

// markOf returns the mark of another MaasMachine of the cluster.
func (l *life) markOf(machine string) string { return ownership.AgentName(l.OwnerID(), machine) }

// leftover returns what was done to the machine, and is undone once it is back in the pool.
func leftover(l *life) machine.Leftover {
	return machine.Leftover{
		Address: l.MaasMachine.Annotations[infrav1.StaticIPAnnotation], Interfaces: arrangement(l.MaasMachine.Annotations),
		Storage: l.record.StorageOn(l.maas.SystemID) != nil,
	}
}

// leftAddress returns the static address that another object of ours has left on a machine, unless it is ours; "" if
// there is none.
func leftAddress(l *life) string {
	address := l.MaasMachine.Annotations[infrav1.StaticIPAnnotation]
	if address == "" || l.IsLXD() || address == l.MaasMachine.Status.StaticIP || !machine.HasAddress(l.maas, address) {
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
func (l *life) recordLeftover(m client.Object) {
	if l.leftover.Address != "" {
		record.SetAnnotation(m, infrav1.StaticIPAnnotation, l.leftover.Address)
	}
	if l.leftover.Interfaces != nil {
		annotateArrangement(m, l.leftover.Interfaces)
	}
}
