// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	inmaas "github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// MAAS sets a storage layout only while a machine is Ready, when it has no owner. So it is set right before the machine
// is acquired, in the same turn, and restored when the machine is back in the pool. The record names the machine from
// before the first call until after the last one. MAAS refuses both calls as soon as a user has the machine.

// Storage sets the layout of a machine of choice before it is claimed, or of one that another user released before it
// was deployed.
func (s *Steps) Storage(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MaasMachine.Spec.Storage == nil || l.MAAS.Status != maas.StatusReady {
		return life.Proceed, nil
	}
	if l.Record.StorageOn(l.MAAS.SystemID) == nil {
		if out, err := s.Restoration(ctx, l); err != nil || out.Waits() {
			return out, err
		}
	}
	if !l.Machines.TryWithhold(l.MAAS, l.Mark()) {
		return taken(l, "another MaasMachine gives it back, or takes it"), nil
	}
	free, err := l.Machines.Free(ctx, l.MAAS.SystemID)
	if err != nil {
		return life.Proceed, err
	}
	if free == nil {
		return taken(l, "another user has it"), nil
	}
	misfit, err := s.setStorage(ctx, l, free, false)
	switch {
	case errors.Is(err, maas.Conflict), errors.Is(err, inmaas.ErrHeld):
		return taken(l, "another user just took it, or "+notedByAnother(l.MAAS)), nil
	case err != nil:
		return life.Proceed, err
	case misfit != "":
		return report.Wait(report.MendRetry, infrav1.StorageImpossibleReason,
			"machine %s, which spec.systemID names, can't have the layout %s of spec.storage: it %s",
			l.MAAS.SystemID, l.MaasMachine.Spec.Storage.Layout, misfit), nil
	}
	return life.Proceed, nil
}

// maxPicks bounds how many machines one reconcile looks at.
const maxPicks = 32

// EarlierChoice goes on with the machine in the pool that an earlier try, which ended before the allocation, began to
// set aside.
func (s *Steps) EarlierChoice(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MAAS != nil {
		return life.Proceed, nil
	}
	wanted, err := constraints(ctx, l)
	if err != nil {
		return life.Proceed, err
	}
	before, err := s.setAsideEarlier(ctx, l, wanted)
	if errors.Is(err, inmaas.ErrHeld) {
		return report.Retry(report.UnknownRetry, infrav1.NoMachineAvailableReason,
			"another manager holds the machine that was to get its storage layout; choosing another one"), nil
	}
	s.bid.wanted, s.bid.setAside = wanted, before
	return life.Proceed, err
}

// setAsideEarlier returns that machine, set aside, if MAAS does not say that it is for another object. If it is nil,
// what is recorded of an earlier try is to be undone.
func (s *Steps) setAsideEarlier(
	ctx context.Context, l *life.Life, constraints maas.AllocateParams,
) (*maas.Machine, error) {
	id, storage := l.Record.Excluded, l.MaasMachine.Spec.Storage
	if id == "" || storage == nil || owesAnother(l, id) {
		return nil, nil //nolint:nilnil // None is set aside.
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
		return nil, fmt.Errorf("reading for which object machine %s is set aside: %w", id, err)
	}
	_, misfit := scope.StorageWish(storage).Plan(free)
	misfit = cmp.Or(misfit, machine.Misfit(free, constraints))
	if misfit != "" || l.Machines.Quarantine.FailedRecently(free) {
		return nil, nil //nolint:nilnil // Another one is to be taken.
	}
	switch isOurs := by == l.Mark(); {
	case by != "" && !isOurs, !l.Machines.TryWithhold(free, l.Mark()):
		return nil, nil //nolint:nilnil // It is another object's.
	case isOurs && inmaas.IsExcluded(free):
		return free, nil
	}
	return free, s.setAside(ctx, l, free)
}

// Layout sets the layout of the spec on the machine that is set aside, or else on one that it picks, and has that
// allocated. It stops if none can have it.
func (s *Steps) Layout(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MAAS != nil || l.MaasMachine.Spec.Storage == nil {
		return life.Proceed, nil
	}
	var names, why, noted []string
	for range maxPicks {
		picked, isSetAside := s.bid.setAside, s.bid.setAside != nil
		if s.bid.setAside = nil; !isSetAside {
			var err error
			if picked, err = l.Machines.Pick(ctx, s.bid.wanted, names); errors.Is(err, maas.Conflict) {
				return s.noneForStorage(ctx, l, err, why, noted), nil
			} else if err != nil {
				return life.Proceed, err
			}
		}
		if picked.Pod != nil { // MAAS has composed it; once it is acquired, it is given back.
			s.bid.wanted.SystemID = picked.SystemID
			return life.Proceed, nil
		}
		names = append(names, picked.Hostname)
		if !l.Machines.TryWithhold(picked, l.Mark()) {
			continue // Another object of ours has picked it, too.
		}
		misfit, err := s.setStorage(ctx, l, picked, isSetAside)
		switch {
		case errors.Is(err, inmaas.ErrHeld):
			noted = append(noted, fmt.Sprintf("%s: %s", picked, notedByAnother(picked)))
			continue
		case errors.Is(err, maas.Conflict):
			return report.Retry(report.UnknownRetry, infrav1.NoMachineAvailableReason,
				"another user just took machine %s; choosing another one", picked.Hostname), nil
		case err != nil:
			return life.Proceed, err
		case misfit == "":
			s.bid.wanted.SystemID = picked.SystemID
			return life.Proceed, nil
		}
		why = append(why, fmt.Sprintf("%s %s", picked, misfit))
	}
	return s.noneForStorage(ctx, l, nil, why, noted), nil
}

// notedByAnother says why a machine in the pool gets no layout. Only its own cluster ends the note of a MaasMachine
// that is gone: see endNote.
func notedByAnother(m *maas.Machine) string {
	return fmt.Sprintf("the tag %s-%s says that another MaasMachine changes it: if that is gone, delete the tag in MAAS",
		inmaas.ExcludeTag, m.SystemID)
}

// noneForStorage reports why no machine was picked. Another one may become free meanwhile.
func (s *Steps) noneForStorage(ctx context.Context, l *life.Life, refusal error, why, noted []string) life.Outcome {
	if len(why) == 0 {
		return s.noMachine(ctx, l, refusal, noted...)
	}
	why = append(why, noted...)
	message := fmt.Sprintf("%d Ready machine(s) match, and can't have the layout %s of spec.storage: %s; choose "+
		"machines by tags, or change spec.storage in the template",
		len(why), l.MaasMachine.Spec.Storage.Layout, text.List(why, life.MaxSkipped))
	return report.Wait(report.CapacityRetry, infrav1.StorageImpossibleReason, "%s", message)
}

// setStorage gives a Ready machine, which is withheld, the layout of the spec, or returns why the machine can't have
// it. If it got the layout from an earlier try, that is all.
func (s *Steps) setStorage(
	ctx context.Context, l *life.Life, m *maas.Machine, isSetAside bool,
) (misfit string, err error) {
	former := machine.Partitions(m)
	if l.Record.StorageOn(m.SystemID).WasSet(former) {
		l.Record.Storage = &record.StorageLayout{SystemID: m.SystemID, Partitions: former}
		return "", nil
	}
	before, unchanged := l.Record.Storage, true
	undo := func() {
		l.Record.Storage = before
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
	if !isSetAside { // It has no owner: MAAS must say whose layout it is before it gets one.
		if err := s.setAside(ctx, l, m); err != nil {
			return "", err
		}
	}
	l.Record.Storage = &record.StorageLayout{SystemID: m.SystemID, Former: former} // Stored with the call.
	err = s.Change(ctx, l, record.Storage, func(ctx context.Context, permit maas.Permit) error {
		set, err := l.Machines.SetStorage(ctx, permit, m, layout)
		switch unchanged = err != nil && maas.HadNoEffect(err); { // Stored with the outcome of the call.
		case unchanged:
			undo()
		case err == nil:
			l.Record.Storage = &record.StorageLayout{SystemID: m.SystemID, Partitions: machine.Partitions(set)}
		}
		return err
	})
	if errors.Is(err, maas.Invalid) {
		undo() // What is recorded then is of an earlier try.
		unchanged = false
		if out, failed := s.Restoration(ctx, l); failed != nil || out.Waits() {
			return "", errors.Join(err, failed)
		}
		return "is refused by MAAS: " + maas.Message(err), nil
	}
	return "", err
}

// hasOthersStorage reports whether another user has set the storage layout of a machine that was acquired: another
// object of ours that has not restored it yet, or, between the layout and the allocation, another manager.
func hasOthersStorage(l *life.Life, m *maas.Machine) bool {
	set := l.Record.StorageOn(m.SystemID)
	if l.MaasMachine.Spec.Storage != nil {
		return set == nil || !slices.Equal(set.Partitions, machine.Partitions(m))
	}
	return set != nil || l.Machines.LeftOn(m, l.Mark()).Storage
}

// StorageCheck lets other managers know that the machine is acquired. It gives back a machine of choice if another user
// has set its layout right before it was claimed. The next reconcile sets it again.
func (s *Steps) StorageCheck(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MaasMachine.Spec.Storage == nil || !life.Deployable(l.MAAS) {
		return life.Proceed, nil
	}
	if !hasOthersStorage(l, l.MAAS) {
		return life.Proceed, s.acquisition(ctx, l)
	}
	if out, err := s.Prove(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	return s.recordUnused(ctx, l, l.MAAS, othersStorage(l.MAAS))
}

// taken waits for the machine of choice.
func taken(l *life.Life, why string) life.Outcome {
	return report.Wait(report.CapacityRetry, infrav1.NoMachineAvailableReason,
		"machine %s, which spec.systemID names, is not free: %s", l.MAAS, why)
}
