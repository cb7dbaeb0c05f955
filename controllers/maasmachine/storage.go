// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	inmaas "github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// MAAS sets a storage layout only while a machine is Ready, when it is nobody's. So it is set right before the machine
// is acquired, in the same turn, and restored when the machine is back in the pool. The record names the machine from
// before the first call until after the last one. MAAS refuses both calls as soon as anybody has the machine.

// storage sets the layout of a machine of choice before it is claimed, or of one that another user released before it
// was deployed.
func (r *Reconciler) storage(ctx context.Context, l *life) (outcome, error) {
	if l.MaasMachine.Spec.Storage == nil || l.maas.Status != maas.StatusReady {
		return proceed, nil
	}
	if l.record.StorageOn(l.maas.SystemID) == nil {
		if out, err := r.restoration(ctx, l); err != nil || out.Waits() {
			return out, err
		}
	}
	if !l.Machines.Reserve(l.maas, l.Mark()) {
		return taken(l, "another MaasMachine gives it back, or takes it"), nil
	}
	free, err := l.Machines.Free(ctx, l.maas.SystemID)
	if err != nil {
		return proceed, err
	}
	if free == nil {
		return taken(l, "another user has it"), nil
	}
	misfit, err := r.setStorage(ctx, l, free, false)
	switch {
	case errors.Is(err, maas.Conflict), errors.Is(err, inmaas.ErrHeld):
		return taken(l, "another user just took it, or "+notedByAnother(l.maas)), nil
	case err != nil:
		return proceed, err
	case misfit != "":
		return report.Wait(report.MendRetry, infrav1.StorageImpossibleReason,
			"machine %s, which spec.systemID names, can't have the layout %s of spec.storage: it %s",
			l.maas.SystemID, l.MaasMachine.Spec.Storage.Layout, misfit), nil
	}
	return proceed, nil
}

// maxPicks bounds how many machines one reconcile looks at.
const maxPicks = 32

// holding goes on with the machine in the pool that an earlier try, which ended before the allocation, began to hold.
func (r *Reconciler) holding(ctx context.Context, l *life) (outcome, error) {
	if l.maas != nil {
		return proceed, nil
	}
	wanted, err := l.constraints(ctx)
	if err != nil {
		return proceed, err
	}
	held, err := r.heldEarlier(ctx, l, wanted)
	if errors.Is(err, inmaas.ErrHeld) {
		return report.Retry(report.UnknownRetry, infrav1.NoMachineAvailableReason,
			"another manager holds the machine that was to get its storage layout; choosing another one"), nil
	}
	l.bid.wanted, l.bid.held = wanted, held
	return proceed, err
}

// heldEarlier returns that machine, if MAAS does not say that another one holds it; it is held then. If it is nil, what
// is recorded of an earlier try is to be undone.
func (r *Reconciler) heldEarlier(ctx context.Context, l *life, constraints maas.AllocateParams) (*maas.Machine, error) {
	id, storage := l.record.Excluded, l.MaasMachine.Spec.Storage
	if id == "" || storage == nil || l.owesAnother(id) {
		return nil, nil //nolint:nilnil // It holds none.
	}
	free, err := l.Machines.Free(ctx, id)
	if errors.Is(err, maas.NotFound) || (err == nil && free == nil) {
		return nil, nil //nolint:nilnil // It is gone, or another user has it.
	}
	if err != nil {
		return nil, err
	}
	by, err := l.Machines.Quarantine.NotedBy(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("reading who holds machine %s: %w", id, err)
	}
	_, misfit := scope.StorageWish(storage).Plan(free)
	misfit = cmp.Or(misfit, machine.Misfit(free, constraints))
	if misfit != "" || l.Machines.Quarantine.FailedRecently(free) {
		return nil, nil //nolint:nilnil // Another one is to be taken.
	}
	switch isOurs := by == l.Mark(); {
	case by != "" && !isOurs, !l.Machines.Reserve(free, l.Mark()):
		return nil, nil //nolint:nilnil // It is another one's.
	case isOurs && inmaas.IsExcluded(free):
		return free, nil
	}
	return free, r.hold(ctx, l, free)
}

// layout sets the layout of the spec on the machine that is held, or else on one that it picks, and has that allocated.
// It stops if none can have it.
func (r *Reconciler) layout(ctx context.Context, l *life) (outcome, error) {
	if l.maas != nil || l.MaasMachine.Spec.Storage == nil {
		return proceed, nil
	}
	var names, why, noted []string
	for range maxPicks {
		picked, isHeld := l.bid.held, l.bid.held != nil
		if l.bid.held = nil; !isHeld {
			var err error
			if picked, err = l.Machines.Pick(ctx, l.bid.wanted, names); errors.Is(err, maas.Conflict) {
				return r.noneForStorage(ctx, l, err, why, noted), nil
			} else if err != nil {
				return proceed, err
			}
		}
		if picked.Pod != nil { // MAAS has composed it; once it is acquired, it is given back.
			l.bid.wanted.SystemID = picked.SystemID
			return proceed, nil
		}
		names = append(names, picked.Hostname)
		if !l.Machines.Reserve(picked, l.Mark()) {
			continue // Another object of ours has picked it, too.
		}
		misfit, err := r.setStorage(ctx, l, picked, isHeld)
		switch {
		case errors.Is(err, inmaas.ErrHeld):
			noted = append(noted, fmt.Sprintf("%s: %s", picked, notedByAnother(picked)))
			continue
		case errors.Is(err, maas.Conflict):
			return report.Retry(report.UnknownRetry, infrav1.NoMachineAvailableReason,
				"another user just took machine %s; choosing another one", picked.Hostname), nil
		case err != nil:
			return proceed, err
		case misfit == "":
			l.bid.wanted.SystemID = picked.SystemID
			return proceed, nil
		}
		why = append(why, fmt.Sprintf("%s %s", picked, misfit))
	}
	return r.noneForStorage(ctx, l, nil, why, noted), nil
}

// notedByAnother says why a machine in the pool gets no layout. Only its own cluster ends the note of a MaasMachine
// that is gone: see endNote.
func notedByAnother(m *maas.Machine) string {
	return fmt.Sprintf("the tag %s-%s says that another MaasMachine changes it: if that is gone, delete the tag in MAAS",
		inmaas.ExcludeTag, m.SystemID)
}

// noneForStorage reports why no machine was picked. Another one may become free meanwhile.
func (r *Reconciler) noneForStorage(ctx context.Context, l *life, refusal error, why, noted []string) outcome {
	if len(why) == 0 {
		return r.noMachine(ctx, l, refusal, noted...)
	}
	why = append(why, noted...)
	message := fmt.Sprintf("%d Ready machine(s) match, and can't have the layout %s of spec.storage: %s; choose "+
		"machines by tags, or change spec.storage in the template",
		len(why), l.MaasMachine.Spec.Storage.Layout, text.List(why, maxSkipped))
	return report.Wait(report.CapacityRetry, infrav1.StorageImpossibleReason, "%s", message)
}

// setStorage gives a Ready machine, which is reserved, the layout of the spec, or returns why the machine can't have
// it. If it got the layout from an earlier try, that is all.
func (r *Reconciler) setStorage(ctx context.Context, l *life, m *maas.Machine, held bool) (misfit string, err error) {
	former := machine.Partitions(m)
	if l.record.StorageOn(m.SystemID).WasSet(former) {
		l.record.Storage = &record.StorageLayout{SystemID: m.SystemID, Partitions: former}
		return "", nil
	}
	before, unchanged := l.record.Storage, true
	undo := func() {
		l.record.Storage = before
		l.Machines.StopWithholding(m.SystemID, l.Mark())
	}
	defer func() {
		if unchanged {
			undo()
		}
	}()
	layout, misfit := scope.StorageWish(l.MaasMachine.Spec.Storage).Plan(m)
	if misfit != "" {
		return misfit, nil
	}
	if !held { // It is nobody's: MAAS must say whose layout it is before it gets one.
		if err := r.hold(ctx, l, m); err != nil {
			return "", err
		}
	}
	l.record.Storage = &record.StorageLayout{SystemID: m.SystemID, Former: former} // Stored with the call.
	err = r.change(ctx, l, record.Storage, func(ctx context.Context, permit maas.Permit) error {
		set, err := l.Machines.SetStorage(ctx, permit, m, layout)
		switch unchanged = err != nil && maas.HadNoEffect(err); { // Stored with the outcome of the call.
		case unchanged:
			undo()
		case err == nil:
			l.record.Storage = &record.StorageLayout{SystemID: m.SystemID, Partitions: machine.Partitions(set)}
		}
		return err
	})
	if errors.Is(err, maas.Invalid) {
		undo() // What is recorded then is of an earlier try.
		unchanged = false
		if out, failed := r.restoration(ctx, l); failed != nil || out.Waits() {
			return "", errors.Join(err, failed)
		}
		return "is refused by MAAS: " + maas.Message(err), nil
	}
	return "", err
}

// hasOthersStorage reports whether another user has set the storage layout of a machine that was acquired: another
// object of ours that has not restored it yet, or, between the layout and the allocation, another manager.
func hasOthersStorage(l *life, m *maas.Machine) bool {
	set := l.record.StorageOn(m.SystemID)
	if l.MaasMachine.Spec.Storage != nil {
		return set == nil || !slices.Equal(set.Partitions, machine.Partitions(m))
	}
	return !l.IsLXD() && (set != nil || l.Machines.LeftOn(m, l.Mark()).Storage)
}

// storageCheck lets other managers know that the machine is acquired. It gives back a machine of choice if another user
// has set its layout right before it was claimed. The next reconcile sets it again.
func (r *Reconciler) storageCheck(ctx context.Context, l *life) (outcome, error) {
	if l.MaasMachine.Spec.Storage == nil || !deployable(l.maas) {
		return proceed, nil
	}
	if !hasOthersStorage(l, l.maas) {
		return proceed, r.acquisition(ctx, l)
	}
	if out, err := r.prove(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	return r.giveBack(ctx, l, l.maas, othersStorage(l.maas))
}

// taken waits for the machine of choice.
func taken(l *life, why string) outcome {
	return report.Wait(report.CapacityRetry, infrav1.NoMachineAvailableReason,
		"machine %s, which spec.systemID names, is not free: %s", l.maas, why)
}
