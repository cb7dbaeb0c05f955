// SPDX-License-Identifier: Apache-2.0

// Package replay holds the log of a run against the models in model/: what the manager recorded and what it asked MAAS
// for is replayed, object by object, against a table of the same transitions. The table is checked against the models
// by hack/model: it allows every trace that Spin produces, and none of those in which a guard is taken away.
package replay

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Kind is the kind of an event.
type Kind string

// The events that a run shows of one object. What nobody sees, that a settle time is over, is a step that the replay
// may put in anywhere, once it is possible: Settles is an event of the models' traces alone.
const (
	// Begins: the object is there, as the event's State says.
	Begins  Kind = "begins"
	Deletes Kind = "is deleted"
	// Records is a call that is pending from now on, Forgets one that is not any more.
	Records Kind = "records"
	Forgets Kind = "forgets"
	// Stores is spec.systemID, SetsAside a machine that is not used and given back, IsRid one that was.
	Stores    Kind = "stores"
	SetsAside Kind = "sets aside"
	IsRid     Kind = "is rid of"
	// Releasing: it is recorded whether the release has begun.
	Releasing Kind = "is releasing"
	Finishes  Kind = "finishes"
	// Sends is a call that has come to MAAS, Does one that had an effect, Answered one whose answer was sent.
	Sends    Kind = "sends"
	Does     Kind = "MAAS does"
	Answered Kind = "is answered"
	// Machine is how a machine is in MAAS from now on.
	Machine Kind = "machine is"
	Settles Kind = "settles"
)

// Event is one event of one object.
type Event struct {
	Kind Kind
	// Op is the operation of a call, as it is recorded; Machine the machine that it is about.
	Op, Machine string
	// At is when it was; the zero time in the models' traces. Of Records, From is when the settle time may be over at the
	// earliest, and Until when it is too late to send the call.
	At, From, Until time.Time
	// Look is the machine's state; of Does, before the call.
	Look Look
	// On is whether a release has begun; of Machine, whether a call for the object made it so.
	On bool
	// Begin is the state at Begins.
	Begin *State
	// Restored means that an earlier call of the same operation, whose time is over, is recorded again.
	Restored bool
	// People means that people have changed the object so, and not the manager: that is no transition of a model.
	People bool
}

func (e Event) String() string {
	text := string(e.Kind)
	for _, more := range []string{e.Op, e.Machine} {
		if more != "" {
			text += " " + more
		}
	}
	switch e.Kind {
	case Machine:
		text += " " + e.Look.String()
	case Releasing:
		text += fmt.Sprintf(": %v", e.On)
	}
	return text
}

// Status is a machine's status, as far as the models tell them apart.
type Status string

// The states of a machine. Other is one that the models leave out, Gone one that MAAS does not have any more.
const (
	Ready     Status = "Ready"
	Allocated Status = "Allocated"
	Deploying Status = "Deploying"
	Deployed  Status = "Deployed"
	InRelease Status = "Releasing"
	Other     Status = "other"
	Gone      Status = "gone"
)

// Look is what MAAS shows of a machine at one moment: whether the object is who acquired it, and whether it has the
// object's mark still.
type Look struct {
	Status        Status
	Owned, Marked bool
}

func (l Look) String() string {
	switch {
	case l.Owned && l.Marked:
		return string(l.Status) + ", ours"
	case l.Owned:
		return string(l.Status) + ", ours without our mark"
	}
	return string(l.Status) + ", not ours"
}

func (l Look) ours() bool { return l.Owned && l.Marked }

// Entry is a call that is recorded.
type Entry struct {
	Settled bool
	// From is when its settle time may be over at the earliest.
	From time.Time
	// Until is until when it may be sent; Unsent that it was not yet, Flying how many were and had no effect yet.
	Until  time.Time
	Unsent bool
	Flying int
	// Answered means that the last one was answered.
	Answered bool
}

// State is what is known of one object. Kubernetes and MAAS have it; only Saw is about what a manager can have read.
type State struct {
	There, Deleted bool
	SystemID       string
	Unused         map[string]bool
	Releasing      bool
	Pending        map[string]Entry
	Machines       map[string]Look
	// Saw is how a manager can have seen each machine since the last call that acquires or releases was recorded;
	// SawSettled the same since a settle time was over, too. SawNone means that it can have found no machine with the
	// object's mark since then.
	Saw, SawSettled map[string]map[Look]bool `json:"-"`
	SawNone         bool                     `json:"-"`
}

func (s *State) clone() *State {
	c := *s
	c.Unused, c.Pending, c.Machines = maps.Clone(s.Unused), maps.Clone(s.Pending), maps.Clone(s.Machines)
	c.Saw, c.SawSettled = cloneSaw(s.Saw), cloneSaw(s.SawSettled)
	return &c
}

func cloneSaw(saw map[string]map[Look]bool) map[string]map[Look]bool {
	c := make(map[string]map[Look]bool, len(saw))
	for id, looks := range saw {
		c[id] = maps.Clone(looks)
	}
	return c
}

// key is the same for states that are the same.
func (s *State) key() string { return fmt.Sprintf("%+v", *s) }

func (s *State) String() string {
	var text []string
	for _, op := range slices.Sorted(maps.Keys(s.Pending)) {
		how := "may come"
		if s.Pending[op].Settled {
			how = "settled"
		}
		text = append(text, op+" "+how)
	}
	for _, id := range slices.Sorted(maps.Keys(s.Machines)) {
		text = append(text, id+" "+s.Machines[id].String())
	}
	return fmt.Sprintf("deleted %v, systemID %q, unused %v, releasing %v; %s", s.Deleted, s.SystemID,
		slices.Sorted(maps.Keys(s.Unused)), s.Releasing, strings.Join(text, "; "))
}

// unsettled reports whether a recorded call, but one of these, may still take effect.
func (s *State) unsettled(but ...string) bool {
	for op, entry := range s.Pending {
		if !entry.Settled && !slices.Contains(but, op) {
			return true
		}
	}
	return false
}

func (s *State) mayCome(op string) bool {
	entry, is := s.Pending[op]
	return is && !entry.Settled
}

// saw reports whether a machine can have been seen so.
func saw(window map[string]map[Look]bool, id string, so func(Look) bool) bool {
	for look := range window[id] {
		if so(look) {
			return true
		}
	}
	return false
}

func (s *State) sawOurs(id string) bool { return saw(s.Saw, id, Look.ours) }

// sawMine is the proof before a release: once that has begun, MAAS has removed the mark.
func (s *State) sawMine(id string) bool {
	return saw(s.Saw, id, func(l Look) bool { return l.Owned && (l.Marked || s.Releasing) })
}

func (s *State) sawSettled(id string, so func(Look) bool) bool { return saw(s.SawSettled, id, so) }

// anyOurs reports whether any machine can have been seen with the object's mark.
func (s *State) anyOurs() bool {
	for id := range s.Saw {
		if s.sawMine(id) {
			return true
		}
	}
	return false
}

// lookAgain begins the time in which a manager can have looked, or that after a settle time.
func (s *State) lookAgain(settledOnly bool) {
	s.SawSettled, s.SawNone = map[string]map[Look]bool{}, true
	if !settledOnly {
		s.Saw = map[string]map[Look]bool{}
	}
	for id, look := range s.Machines {
		s.SawNone = s.SawNone && !look.ours()
		s.see(id, look)
	}
}

func (s *State) see(id string, look Look) {
	for _, window := range []map[string]map[Look]bool{s.Saw, s.SawSettled} {
		if window[id] == nil {
			window[id] = map[Look]bool{}
		}
		window[id][look] = true
	}
}

// Row is a transition. An event happens by the first row of its kind, and operation, whose guard holds.
type Row struct {
	// Name is the row's in reports; it begins with the kind and the operation.
	Name string
	Kind Kind
	// Ops are the operations; nil: any.
	Ops []string
	// When is the guard.
	When func(*State, Event) bool
	// Beyond is why the model does not have it; "" if it has.
	Beyond string
	// Promise means that it is a sentence of promises.pml, and no decision of the manager.
	Promise bool
}

// Table has the transitions of a model.
type Table struct {
	// Model is the name of its file in model/, without .pml. Walks are the models whose traces it allows.
	Model string
	Walks []string
	// Refuses are the guards without which it refuses a trace; nil: all.
	Refuses []string
	// Acquires are the operations that acquire something or let it go: what was seen before says nothing after them.
	Acquires []string
	// Several are those of which one record is about several calls.
	Several []string
	Rows    []Row
}

// Tables returns all tables.
func Tables() []*Table { return []*Table{Metal, Protocol} }

// Of returns the table of a file in model/, nil if there is none.
func Of(model string) *Table {
	for _, t := range Tables() {
		if t.Model == model {
			return t
		}
	}
	return nil
}

// For returns the table that allows the traces of a model, nil if there is none.
func For(model string) *Table {
	for _, t := range Tables() {
		if slices.Contains(t.Walks, model) {
			return t
		}
	}
	return nil
}

func (t *Table) row(s *State, e Event) *Row {
	for i := range t.Rows {
		row := &t.Rows[i]
		if row.Kind == e.Kind && (row.Ops == nil || slices.Contains(row.Ops, e.Op)) && row.When(s, e) {
			return row
		}
	}
	return nil
}

// step changes a state as an event does.
func (t *Table) step(s *State, e Event) *State {
	if e.Kind == Begins {
		next := e.Begin.clone()
		next.There = true
		next.lookAgain(false)
		return next
	}
	next := s.clone()
	entry := next.Pending[e.Op]
	switch e.Kind {
	case Deletes:
		next.Deleted = true
	case Records:
		next.Pending[e.Op] = Entry{Unsent: true, From: e.From, Until: e.Until, Flying: flying(entry, e)}
		if slices.Contains(t.Acquires, e.Op) {
			next.lookAgain(false)
		}
	case Forgets:
		delete(next.Pending, e.Op)
		if e.Restored {
			next.Pending[e.Op] = Entry{Settled: true}
		}
	case Stores:
		next.SystemID = e.Machine
	case SetsAside:
		next.Unused[e.Machine] = true
	case IsRid:
		delete(next.Unused, e.Machine)
	case Releasing:
		next.Releasing = e.On
	case Finishes:
		next.There = false
	case Sends:
		entry.Unsent, entry.Answered = slices.Contains(t.Several, e.Op), false
		entry.Flying++
		next.Pending[e.Op] = entry
	case Does:
		if entry.Flying > 0 {
			entry.Flying--
			next.Pending[e.Op] = entry
		}
	case Answered:
		if _, is := next.Pending[e.Op]; is {
			entry.Answered = true
			next.Pending[e.Op] = entry
		}
	case Machine:
		next.Machines[e.Machine] = e.Look
		next.see(e.Machine, e.Look)
		none := true
		for _, look := range next.Machines {
			none = none && !look.ours()
		}
		next.SawNone = next.SawNone || none
	case Settles:
		next.Pending[e.Op] = Entry{Settled: true, Answered: entry.Answered, Flying: flying(entry, e)}
		next.lookAgain(true)
	}
	return next
}

// flying is how many calls may have an effect after their settle time: in a model none. In a run, whose settle times are
// short, the computer may have been too busy to do one in time.
func flying(entry Entry, e Event) int {
	if e.At.IsZero() {
		return 0
	}
	return entry.Flying
}
