// SPDX-License-Identifier: Apache-2.0

// Package quarantine keeps bare-metal machines from being allocated, by tags in MAAS: those that failed, and those on
// which something is to be undone. So all managers of that MAAS know of it, also after a restart, and people see it and
// can lift it.
package quarantine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
)

// Service quarantines machines of one MAAS.
type Service struct {
	inventory *inventory.Inventory

	written atomic.Value // when something was put into quarantine or excluded
	noted   atomic.Bool  // MAAS had notes at the last Tend

	mu     sync.Mutex
	clock  func() time.Time
	failed map[string]Machine // see Remember; by system id
	judged map[string]verdict // of machines that had not passed what they had failed, by system id
}

// verdict is for which tests of a machine MAAS's results have been read, in vain.
type verdict struct {
	set   int // the Note's
	tests maas.Tests
}

// NewService makes a service.
func NewService(inventory *inventory.Inventory) *Service {
	return &Service{inventory: inventory, clock: time.Now}
}

// SetClock sets the clock, for tests.
func (s *Service) SetClock(now func() time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = now
}

// Machine is a machine that failed, as far as MAAS shows it to this identity, or as it was passed to Remember.
type Machine struct {
	*maas.Machine
	Note
}

// List returns the quarantined machines, no older than maxAge, in the order in which they are free again.
func (s *Service) List(ctx context.Context, maxAge time.Duration) ([]Machine, error) {
	tags, err := s.tags(ctx, maxAge)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(tags, func(tag maas.Tag) bool { return tag.Name == Tag }) {
		return nil, nil // Nothing ever was: MAAS would respond with 404.
	}
	machines, err := s.inventory.Tagged(ctx, Tag, maxAge)
	if err != nil {
		return nil, fmt.Errorf("listing the machines in quarantine: %w", err)
	}
	known := quarantined.notes(tags)
	noted := list.Each(machines, func(m *maas.Machine) Machine { return Machine{m, known[m.SystemID]} })
	slices.SortFunc(noted, sooner)
	return noted, nil
}

// sooner compares when machines are free again; those without an end are last.
func sooner(a, b Machine) int {
	return cmp.Or(cmp.Compare(endless(a.Note), endless(b.Note)), a.Until.Compare(b.Until),
		cmp.Compare(a.SystemID, b.SystemID))
}

func endless(n Note) int {
	if n.Until.IsZero() {
		return 1
	}
	return 0
}

// Put quarantines a machine that failed, for a while after it is back in the pool. The caller has proven that the
// machine is ours. maas.Forbidden: the key's user may not change tags, see Remember.
//
// The note comes first: whoever sees the tag knows its end.
func (s *Service) Put(ctx context.Context, permit maas.Permit, systemID string, c Cause) (Note, error) {
	note, err := s.put(ctx, permit, quarantined, systemID, func(last Note) Note { return after(last, c, s.Now()) })
	if err == nil {
		s.forgive(systemID) // MAAS knows, and a person may lift it there.
	}
	return note, err
}

// PutByHand quarantines a machine because a person says so. It ends after the time, or, if that is 0, when a person
// lifts it.
func (s *Service) PutByHand(
	ctx context.Context, permit maas.Permit, systemID, why string, lasts time.Duration,
) (Note, error) {
	return s.put(ctx, permit, quarantined, systemID, func(Note) Note { return s.note(Cause{Why: why}, lasts) })
}

// Exclude keeps a machine that is about to be released from being allocated until Include, or for a week at most. The
// caller has proven that the machine is ours. maas.Forbidden: the key's user may not change tags.
func (s *Service) Exclude(ctx context.Context, permit maas.Permit, systemID string, c Cause) error {
	_, err := s.put(ctx, permit, excluded, systemID, func(Note) Note { return s.note(c, excludedAtMost) })
	return err
}

// note returns a note that ends after a time; 0: never.
func (s *Service) note(c Cause, lasts time.Duration) Note {
	note := Note{Since: s.Now(), By: c.By, Why: c.Why}
	if lasts > 0 {
		note.Until = note.Since.Add(lasts)
	}
	return note
}

// ErrHeld means that another manager is about to take the machine, or has something to undo on it.
var ErrHeld = errors.New("another manager is about to take the machine, or has something to undo on it")

// Hold is Exclude for a machine in the pool that the caller is about to change and then to acquire. ErrHeld: another
// manager is, or was, and its note alone proves what it may undo. maas.Forbidden: the key's user may not change tags.
//
// Of several managers one makes the note: MAAS has one tag of a name.
func (s *Service) Hold(ctx context.Context, permit maas.Permit, systemID string, c Cause) error {
	tags, err := s.tags(ctx, 0)
	if err != nil {
		return err
	}
	note := s.note(c, excludedAtMost)
	other, noted := excluded.notes(tags)[systemID]
	if noted && other.By != c.By && !other.isOver(note.Since) {
		return ErrHeld
	}
	if !noted {
		tag := maas.Tag{Name: excluded.noteName(systemID), Comment: note.String()}
		defer s.inventory.ForgetTags()
		switch err := s.inventory.Client().CreateTag(ctx, permit, tag); {
		case maas.InvalidField(err, "name"):
			return ErrHeld
		case err != nil:
			return fmt.Errorf("noting in MAAS that machine %s is about to be changed: %w", systemID, err)
		}
		tags = append(slices.Clone(tags), tag)
	}
	return s.tag(ctx, permit, excluded, tags, systemID, note)
}

// Acquired is Note for a machine that the caller holds, and has acquired by now: no other user is given it.
func (s *Service) Acquired(ctx context.Context, permit maas.Permit, systemID string, c Cause) error {
	if err := s.Note(ctx, permit, systemID, c); err != nil {
		return err
	}
	return s.untag(ctx, permit, excluded, []string{systemID})
}

// Note has MAAS say that something is being done to a machine which is to be undone when it is back in the pool, and by
// whom. The machine is the caller's. It stays until Include, also while the machine is not excluded. maas.Forbidden:
// the key's user may not change tags.
func (s *Service) Note(ctx context.Context, permit maas.Permit, systemID string, c Cause) error {
	tags, err := s.tags(ctx, 0)
	if err != nil {
		return err
	}
	note := maas.Tag{Name: excluded.noteName(systemID), Comment: s.note(c, notedAtMost).String()}
	defer s.inventory.ForgetTags()
	if err := s.ensure(ctx, permit, tags, note); err != nil {
		return fmt.Errorf("noting in MAAS that machine %s is changed: %w", systemID, err)
	}
	return nil
}

// NotedBy returns by whom something was done to a machine that is to be undone, as MAAS says; "" if it says nothing.
func (s *Service) NotedBy(ctx context.Context, systemID string) (by string, err error) {
	note, _, err := s.exclusion(ctx, systemID)
	return note.By, err
}

// PassOn makes what was done to a machine another object's to undo, if it is the caller's.
func (s *Service) PassOn(ctx context.Context, permit maas.Permit, systemID, from string, to Cause) error {
	if by, err := s.NotedBy(ctx, systemID); err != nil || by != from {
		return err
	}
	return s.Exclude(ctx, permit, systemID, to)
}

// Include ends an exclusion. It is no error if there is none, and it does nothing if another user excludes the machine
// by now.
func (s *Service) Include(ctx context.Context, permit maas.Permit, systemID, by string) error {
	note, noted, err := s.exclusion(ctx, systemID)
	if err != nil || (noted && note.By != by) {
		return err
	}
	if !noted {
		if lacksNote, err := s.lacksNote(ctx, systemID); err != nil || !lacksNote {
			return err
		}
	}
	return s.lift(ctx, permit, excluded, systemID)
}

func (s *Service) exclusion(ctx context.Context, systemID string) (note Note, noted bool, err error) {
	tags, err := s.tags(ctx, 0)
	note, noted = excluded.notes(tags)[systemID]
	return note, noted, err
}

// lacksNote reports whether a machine has the tag of an exclusion, and no note: another object has ended its own
// exclusion, and the note with it, while the caller was about to put the tag on.
func (s *Service) lacksNote(ctx context.Context, systemID string) (bool, error) {
	m, err := s.inventory.Read(ctx, systemID)
	switch {
	case errors.Is(err, maas.NotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading whether machine %s is excluded: %w", systemID, err)
	case !IsExcluded(m):
		return false, nil
	}
	_, noted, err := s.exclusion(ctx, systemID) // Whoever has excluded it meanwhile has noted it first.
	return !noted && err == nil, err
}

// Written returns when this service last put a machine into quarantine, or excluded one; zero if it has not.
func (s *Service) Written() time.Time {
	at, _ := s.written.Load().(time.Time)
	return at
}

// HasNotes reports whether MAAS had notes of quarantines or exclusions when a Tend last asked it.
func (s *Service) HasNotes() bool { return s.noted.Load() }

// put notes why a machine is not to be allocated, given its last note, and tags it.
func (s *Service) put(
	ctx context.Context, permit maas.Permit, k kind, systemID string, next func(last Note) Note,
) (Note, error) {
	tags, err := s.tags(ctx, 0)
	if err != nil {
		return Note{}, err
	}
	note := next(k.notes(tags)[systemID])
	return note, s.tag(ctx, permit, k, tags, systemID, note)
}

func (s *Service) tag(
	ctx context.Context, permit maas.Permit, k kind, tags []maas.Tag, systemID string, note Note,
) error {
	defer func() { s.written.Store(time.Now()) }() // After it, so that no look before counts.
	for _, tag := range []maas.Tag{{Name: k.noteName(systemID), Comment: note.String()}, {Name: k.tag, Comment: k.about}} {
		if err := s.ensure(ctx, permit, tags, tag); err != nil {
			return fmt.Errorf("noting in MAAS why machine %s is not to be allocated: %w", systemID, err)
		}
	}
	defer s.inventory.ForgetTags()
	if err := s.inventory.Client().TagMachine(ctx, permit, k.tag, systemID); err != nil {
		return fmt.Errorf("putting the tag %s on machine %s: %w", k.tag, systemID, err)
	}
	return nil
}

// ensure makes a tag exist with its comment. The comments of Tag and ExcludeTag stay as people may have changed them.
func (s *Service) ensure(ctx context.Context, permit maas.Permit, tags []maas.Tag, tag maas.Tag) error {
	i := slices.IndexFunc(tags, func(other maas.Tag) bool { return other.Name == tag.Name })
	switch {
	case i >= 0 && (slices.Contains(NotTags(), tag.Name) || tags[i].Comment == tag.Comment):
		return nil
	case i >= 0:
		return s.inventory.Client().CommentTag(ctx, permit, tag)
	}
	err := s.inventory.Client().CreateTag(ctx, permit, tag)
	if maas.InvalidField(err, "name") { // Another manager has just created it.
		return s.inventory.Client().CommentTag(ctx, permit, tag)
	}
	return err
}

// Lift ends the quarantine of machines, and forgets their failures. It is no error if they are in none.
func (s *Service) Lift(ctx context.Context, permit maas.Permit, systemIDs ...string) error {
	return s.lift(ctx, permit, quarantined, systemIDs...)
}

func (s *Service) lift(ctx context.Context, permit maas.Permit, k kind, systemIDs ...string) error {
	if err := s.untag(ctx, permit, k, systemIDs); err != nil {
		return err
	}
	return s.forget(ctx, permit, k, systemIDs)
}

// untag takes the tag off machines. The notes stay.
func (s *Service) untag(ctx context.Context, permit maas.Permit, k kind, systemIDs []string) error {
	defer s.inventory.ForgetTags()
	err := s.inventory.Client().UntagMachines(ctx, permit, k.tag, systemIDs)
	if err != nil && !errors.Is(err, maas.NotFound) { // Without the tag, no machine has it.
		return fmt.Errorf("taking the tag %s off %d machine(s): %w", k.tag, len(systemIDs), err)
	}
	return nil
}

// Succeeded lifts the quarantine of a machine that was deployed, and forgets its failures. What people quarantined
// stays. Notes are read from the inventory, no older than maxAge: mostly there is none.
func (s *Service) Succeeded(ctx context.Context, permit maas.Permit, systemID string, maxAge time.Duration) error {
	s.forgive(systemID)
	tags, err := s.tags(ctx, maxAge)
	if err != nil {
		return err
	}
	if quarantined.notes(tags)[systemID].Failures == 0 {
		return nil
	}
	return s.Lift(ctx, permit, systemID)
}

const (
	// maxLifted and maxChanged bound what one Tend does: machines in one call, and notes, or test results, with a call
	// each. The next one does the rest.
	maxLifted  = 100
	maxChanged = 20
	// puttingTakes is how long a note may be there before its tag: whoever quarantines a machine writes it first.
	puttingTakes = 5 * time.Minute
)

// Tend lets the pause of machines begin that are back in the pool, lifts the quarantines and exclusions that are over,
// and deletes notes that are not needed any more. It returns the system ids of the machines that it lifted. Several
// managers may do so at the same time. It asks MAAS once while there is nothing to do.
func (s *Service) Tend(ctx context.Context, permit maas.Permit) (lifted []string, err error) {
	tags, err := s.tags(ctx, 0)
	if err != nil {
		return nil, err
	}
	s.noted.Store(len(quarantined.notes(tags)) > 0 || len(excluded.notes(tags)) > 0)
	for _, k := range []kind{quarantined, excluded} {
		of, failed := s.tend(ctx, permit, k, tags)
		lifted, err = append(lifted, of...), errors.Join(err, failed)
	}
	return lifted, err
}

func (s *Service) tend(ctx context.Context, permit maas.Permit, k kind, tags []maas.Tag) (lifted []string, err error) {
	known, now := k.notes(tags), s.Now()
	maps.DeleteFunc(known, func(_ string, n Note) bool {
		return n.Pause == 0 && n.Checks == "" && !n.isOver(now) && !n.isForgotten(now)
	})
	if len(known) == 0 {
		return nil, nil
	}
	machines, err := s.inventory.Tagged(ctx, k.tag, 0)
	if err != nil {
		return nil, fmt.Errorf("listing the machines with the tag %s: %w", k.tag, err)
	}
	var back []string
	retested := map[string]*maas.Machine{}
	for _, m := range machines {
		switch note := known[m.SystemID]; {
		case note.isOver(now):
			lifted = append(lifted, m.SystemID)
		case note.mayHavePassed(m):
			retested[m.SystemID] = m
		case note.Pause > 0 && isInPool(m):
			back = append(back, m.SystemID)
		}
	}
	if err := s.beginPauses(ctx, permit, k, known, back); err != nil {
		return nil, err
	}
	passed, unread := s.passed(ctx, known, retested)
	lifted = append(lifted, passed...)
	if lifted = lifted[:min(len(lifted), maxLifted)]; len(lifted) > 0 {
		if err := s.untag(ctx, permit, k, lifted); err != nil {
			return nil, err
		}
	}
	maps.DeleteFunc(known, func(id string, n Note) bool {
		return !n.isForgotten(now) || slices.ContainsFunc(machines, func(m *maas.Machine) bool { return m.SystemID == id })
	})
	return lifted, errors.Join(s.forget(ctx, permit, k, s.without(ctx, k, slices.Sorted(maps.Keys(known)))), unread)
}

// passed returns those machines that have passed what they had failed. It reads the results of some of them, in no
// order: one that MAAS does not show keeps no other one in quarantine.
func (s *Service) passed(
	ctx context.Context, known map[string]Note, retested map[string]*maas.Machine,
) (passed []string, err error) {
	read := 0
	s.forgetVerdicts(retested)
	for id, m := range retested {
		now := verdict{known[id].Set, m.Tests}
		if s.isJudged(id, now) {
			continue
		}
		if read++; read > maxChanged {
			break
		}
		results, err := s.inventory.Client().TestResults(ctx, id)
		switch {
		case err != nil:
			return passed, fmt.Errorf("reading whether machine %s has passed its tests: %w", id, err)
		case known[id].isPassed(results):
			passed = append(passed, id)
		default:
			s.judge(id, now)
		}
	}
	return passed, nil
}

// forgetVerdicts forgets those of machines that are not to be judged any more.
func (s *Service) forgetVerdicts(but map[string]*maas.Machine) {
	if len(but) == 0 {
		return // There is nothing of this kind.
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.judged, func(id string, _ verdict) bool { return but[id] == nil })
}

func (s *Service) isJudged(systemID string, now verdict) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.judged[systemID] == now
}

func (s *Service) judge(systemID string, now verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.judged == nil {
		s.judged = map[string]verdict{}
	}
	s.judged[systemID] = now
}

// without returns those machines that MAAS does not have, or that do not have the tag, as MAAS has them now: a list
// does not show machines that this identity may not see.
func (s *Service) without(ctx context.Context, k kind, systemIDs []string) (those []string) {
	for _, id := range systemIDs {
		m, err := s.inventory.Read(ctx, id)
		if errors.Is(err, maas.NotFound) || (err == nil && !slices.Contains(m.Tags, k.tag)) {
			those = append(those, id)
		}
	}
	return those
}

// ForgetLifted deletes the notes of machines that a person has taken the tag off before the end, as List showed them,
// no older than maxAge. It reads each of them: this identity may not see a machine that has the tag still.
func (s *Service) ForgetLifted(ctx context.Context, permit maas.Permit, maxAge time.Duration) error {
	list, err := s.List(ctx, maxAge)
	if err != nil {
		return err
	}
	tags, err := s.tags(ctx, maxAge)
	if err != nil {
		return err
	}
	known, now := quarantined.notes(tags), s.Now()
	maps.DeleteFunc(known, func(id string, n Note) bool {
		hasTag := slices.ContainsFunc(list, func(m Machine) bool { return m.SystemID == id })
		return hasTag || n.isOver(now) || now.Sub(n.Since) <= puttingTakes
	})
	lifted := s.without(ctx, quarantined, slices.Sorted(maps.Keys(known)))
	if len(lifted) == 0 {
		return nil
	}
	defer s.inventory.ForgetTags()
	return s.forget(ctx, permit, quarantined, lifted)
}

// isInPool reports whether a machine could be allocated if it were not quarantined.
func isInPool(m *maas.Machine) bool { return m.Owner == "" && m.Status == maas.StatusReady }

// beginPauses notes the ends of the quarantines of machines that are back in the pool.
func (s *Service) beginPauses(
	ctx context.Context, permit maas.Permit, k kind, known map[string]Note, systemIDs []string,
) error {
	defer s.inventory.ForgetTags()
	for _, id := range systemIDs[:min(len(systemIDs), maxChanged)] {
		err := s.inventory.Client().CommentTag(ctx, permit,
			maas.Tag{Name: k.noteName(id), Comment: known[id].inPool(s.Now()).String()})
		if err != nil && !errors.Is(err, maas.NotFound) {
			return fmt.Errorf("noting in MAAS until when machine %s is quarantined: %w", id, err)
		}
	}
	return nil
}

// forget deletes notes of machines that do not have the tag.
func (s *Service) forget(ctx context.Context, permit maas.Permit, k kind, systemIDs []string) error {
	for _, id := range systemIDs[:min(len(systemIDs), maxChanged)] {
		if err := s.inventory.Client().DeleteTag(ctx, permit, k.noteName(id)); err != nil && !errors.Is(err, maas.NotFound) {
			return fmt.Errorf("deleting the note on machine %s: %w", id, err)
		}
	}
	return nil
}

// tags reads MAAS's tags, no older than maxAge.
func (s *Service) tags(ctx context.Context, maxAge time.Duration) ([]maas.Tag, error) {
	tags, err := s.inventory.Tags(ctx, maxAge)
	if err != nil {
		return nil, fmt.Errorf("reading why machines are in quarantine: %w", err)
	}
	return tags, nil
}

// Now is in whole seconds, as notes are.
func (s *Service) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock().UTC().Truncate(time.Second)
}
