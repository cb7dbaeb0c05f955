// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

const (
	// restFactor is how many times as long as a sweep took the next one waits: a slow MAAS is not to be kept busy.
	restFactor = 4
	// Machines that are expected to change are observed every few minutes, and settled ones whenever the caches of Kubernetes are synchronized,
	// every 10 hours. After these times no reconciler observes a machine any more: its cluster was moved away, for example.
	changingAbandoned = 30 * time.Minute
	settledAbandoned  = 24 * time.Hour
)

// pace is how far the looks are. A sweep is a look at all machines; it may take many lists, and go on after an error.
type pace struct {
	round  time.Time // when the last look at the changing machines began
	began  time.Time // when the sweep under way began; zero without one
	left   []string  // what it has still to look at
	ended  time.Time // when the last sweep ended
	rested time.Time // when the next one may begin
	due    time.Time // when it is due
	wanted bool      // it is due as soon as it may begin

	checkFailed bool // MAAS lists machines, and did not say what became of one that lists lack
}

func (p *pace) sweepDue(now time.Time) bool {
	return p.began.IsZero() && !now.Before(p.rested) && (p.wanted || !now.Before(p.due))
}

// look asks MAAS for the machines that are due.
func (i *Inventory) look(ctx context.Context) error {
	if i.unknown() > i.batch.next() {
		i.pace.wanted = true // Between its lists, the changing machines have their turn.
	}
	sweep := i.pace.sweepDue(i.now())
	if _, waiting := i.client.NextProbe(); waiting && i.pace.began.IsZero() && (!sweep || i.tracked() == 0) && len(i.due()) == 0 {
		return i.probe(ctx)
	}
	if sweep {
		i.beginSweep()
	} else if err := i.lookAtChanging(ctx); err != nil {
		return err
	}
	if i.pace.began.IsZero() {
		return nil
	}
	for {
		i.pace.left = i.notAskedSince(i.pace.began, i.pace.left)
		if len(i.pace.left) == 0 {
			return i.endSweep(ctx)
		}
		if err := i.lookAt(ctx, i.pace.left); err != nil {
			return err
		}
		if i.isChangingDue() {
			if err := i.lookAtChanging(ctx); err != nil {
				return err
			}
		}
	}
}

// lookAtChanging asks for the machines that are expected to change, or of which something must be found out.
func (i *Inventory) lookAtChanging(ctx context.Context) error {
	began := i.now()
	i.pace.round = began
	for ids := i.due(); len(ids) > 0; ids = i.notAskedSince(began, ids) {
		if err := i.lookAt(ctx, ids); err != nil {
			return err
		}
	}
	return i.judgeAbsent(ctx)
}

// isChangingDue reports whether the changing machines are due, or one was added that nothing is known of.
func (i *Inventory) isChangingDue() bool {
	select {
	case <-i.wake:
		return true
	default:
		return i.now().Sub(i.pace.round) >= i.opts.ActiveInterval
	}
}

// beginSweep has all machines looked at, the changing ones first: they are in its first list.
func (i *Inventory) beginSweep() {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.now()
	i.pace.left = nil
	for id, e := range i.entries {
		if e.isAbandoned(now) {
			delete(i.entries, id)
			continue
		}
		i.pace.left = append(i.pace.left, id)
	}
	slices.SortFunc(i.pace.left, func(a, b string) int {
		return cmp.Or(cmp.Compare(i.entries[b].interest, i.entries[a].interest), cmp.Compare(a, b))
	})
	i.pace.began, i.pace.round, i.pace.wanted = now, now, false
}

func (i *Inventory) endSweep(ctx context.Context) error {
	now := i.now()
	took := now.Sub(i.pace.began)
	i.pace.began, i.pace.ended = time.Time{}, now
	i.pace.rested = now.Add(restFactor * took)
	i.pace.due = now.Add(jitter(i.opts.IdleInterval))
	return i.judgeAbsent(ctx)
}

func (e *entry) isAbandoned(now time.Time) bool {
	if e.interest == Settled {
		return now.Sub(e.observed) > settledAbandoned
	}
	return now.Sub(e.observed) > changingAbandoned
}

// lookAt asks for the first of these machines, as many as go into one list.
func (i *Inventory) lookAt(ctx context.Context, ids []string) error {
	asked, listed, machines, err := i.list(ctx, ids)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil || !i.pace.checkFailed {
		i.noteHealth(err)
	}
	if err != nil {
		return err
	}
	i.notify(i.applyList(asked, listed, machines))
	return nil
}

// applyList takes in a list, and returns the machines that changed. What it lacks is only suspected to be gone: MAAS leaves out what
// the key's user may not see.
func (i *Inventory) applyList(asked time.Time, ids []string, machines []*maas.Machine) []string {
	found := make(map[string]*maas.Machine, len(machines))
	for _, machine := range machines {
		found[machine.SystemID] = machine
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	var changed []string
	for _, id := range ids {
		e := i.entries[id]
		if e == nil {
			continue
		}
		e.asked = asked
		switch {
		case e.written.After(asked):
		case found[id] == nil && e.missing.IsZero():
			e.missing = asked
		case found[id] != nil:
			e.missing, e.unlisted = time.Time{}, false
			if e.set(Observation{Known: true, Machine: found[id]}) {
				changed = append(changed, id)
			}
		}
	}
	return changed
}

// set reports whether the observation changed.
func (e *entry) set(now Observation) bool {
	if reflect.DeepEqual(e.Observation, now) {
		return false
	}
	e.Observation = now
	return true
}

func (i *Inventory) tracked() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.entries)
}

// unknown is how many machines nothing is known of.
func (i *Inventory) unknown() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := 0
	for _, e := range i.entries {
		if !e.Known {
			n++
		}
	}
	return n
}

// due returns the machines that don't wait for a sweep: those nothing is known of, unless the sweep under way comes to them; those
// expected to change; and those that a list lacked.
func (i *Inventory) due() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	var ids []string
	for id, e := range i.entries {
		switch {
		case e.isAbsent(), !e.Known && e.asked.IsZero() && !e.since.After(i.pace.began):
		case e.interest != Settled, !e.Known, !e.missing.IsZero():
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// notAskedSince returns those of the machines that are tracked and that no list has asked for since then.
func (i *Inventory) notAskedSince(then time.Time, ids []string) []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	var left []string
	for _, id := range ids {
		if e := i.entries[id]; e != nil && e.asked.Before(then) {
			left = append(left, id)
		}
	}
	return left
}

// probe asks MAAS for the least that there is, to see whether it responds again.
func (i *Inventory) probe(ctx context.Context) error {
	_, err := i.source.Version(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	i.noteHealth(err)
	return err
}
