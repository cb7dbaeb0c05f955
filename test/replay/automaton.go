// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Difference is where a run left the model.
type Difference struct {
	// Object is whose events they are.
	Object string
	// Matched are the last events that the model allows, Event is the one that it does not.
	Matched []Event
	Event   Event
	// Allowed is what the model would have allowed in place of it, and States what was known then.
	Allowed, States []string
	// Promise means that MAAS did what must not be, and that no decision before it was against the model.
	Promise bool
}

func (d *Difference) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: the model does not allow: %s\n", d.Object, d.Event)
	for _, e := range d.Matched {
		fmt.Fprintf(&text, "  it was   %s\n", e)
	}
	for _, state := range d.States {
		fmt.Fprintf(&text, "  then     %s\n", state)
	}
	for _, row := range d.Allowed {
		fmt.Fprintf(&text, "  allowed  %s\n", row)
	}
	return text.String()
}

const (
	// shown is how many events before the difference are shown.
	shown = 12
	// maxStates bounds the states that one replay may be in.
	maxStates = 4096
)

// Replay replays the events of one object. It returns where they leave the table, or nil, and the names of the rows
// that they took: of what an event can have been, all of them.
func (t *Table) Replay(object string, events []Event) (difference *Difference, taken map[string]bool) {
	taken = map[string]bool{}
	states := []*State{{Unused: map[string]bool{}, Pending: map[string]Entry{}, Machines: map[string]Look{},
		Saw: map[string]map[Look]bool{}, SawSettled: map[string]map[Look]bool{}, SawNone: true}}
	for i, e := range events {
		states = t.settled(states, e)
		var next []*State
		seen := map[string]bool{}
		for _, s := range states {
			if row := t.row(s, e); row != nil {
				taken[row.Name] = true
			} else if !e.People {
				continue
			}
			after := t.step(s, e)
			if key := after.key(); !seen[key] {
				seen[key] = true
				next = append(next, after)
			}
		}
		if len(next) == 0 || len(next) > maxStates {
			return t.difference(object, events[max(0, i-shown):i], e, states), taken
		}
		states = next
	}
	return nil, taken
}

func (t *Table) difference(object string, matched []Event, e Event, states []*State) *Difference {
	d := &Difference{Object: object, Matched: matched, Event: e}
	for _, row := range t.Rows {
		if row.Kind == e.Kind && (row.Ops == nil || slices.Contains(row.Ops, e.Op)) {
			d.Allowed = append(d.Allowed, row.Name)
			d.Promise = d.Promise || row.Promise
		}
	}
	if len(d.Allowed) == 0 {
		d.Allowed = []string{"nothing of this kind"}
	}
	for _, s := range states[:min(len(states), 3)] {
		d.States = append(d.States, s.String())
	}
	return d
}

// settled adds, to the states that there may be, those in which a settle time is over by now.
func (t *Table) settled(states []*State, e Event) []*State {
	if e.At.IsZero() {
		return states // Of a model, which tells.
	}
	seen := map[string]bool{}
	for i := 0; i < len(states) && i < maxStates; i++ {
		s := states[i]
		if i == 0 {
			for _, other := range states {
				seen[other.key()] = true
			}
		}
		for _, op := range slices.Sorted(maps.Keys(s.Pending)) {
			entry := s.Pending[op]
			if entry.Settled || e.At.Before(entry.From) {
				continue
			}
			after := t.step(s, Event{Kind: Settles, Op: op, At: e.At})
			if key := after.key(); !seen[key] {
				seen[key] = true
				states = append(states, after)
			}
		}
	}
	return states
}
