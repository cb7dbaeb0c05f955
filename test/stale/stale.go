// SPDX-License-Identifier: Apache-2.0

// Package stale puts a view that lies between managers and their API server. Of one kind of object they see what
// was true before: late, with gaps, or from before a restart. API servers do the same, whose caches lag, that end a
// watch as too old, or that answer a list from a cache which is behind. What is written is written at once.
package stale

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Class is a way in which a view lies.
type Class string

const (
	// Late holds what watches show, and shows all of it in the end.
	Late Class = "late"
	// Merged holds it, and shows the last state of each object alone.
	Merged Class = "merged"
	// Dropped drops it, and ends the watches as too old, so that managers list.
	Dropped Class = "dropped"
	// Before is for a new manager: it sees what was true just before the event.
	Before Class = "as before"
	// First is for a new manager: it sees what was true after the first event.
	First Class = "as first"
	// Both is for a hand-over: a new manager sees what was true just before the event, and the last one, which goes on
	// beside it until the lie is over, sees no more.
	Both Class = "both"
	// Unanswered does what a request asks for, and breaks the connection in place of the answer.
	Unanswered Class = "unanswered"
)

// Classes are all of them.
var Classes = []Class{Late, Merged, Dropped, Before, First, Both, Unanswered}

// renews reports whether the lie is for a new manager.
func (c Class) renews() bool { return c == Before || c == First || c == Both }

// Lie is what is wrong with a view, once.
type Lie struct {
	Class Class
	// Kind is the kind of object, in the plural, as in URLs.
	Kind string
	// N is the event of the kind with which it begins, from 1; for Unanswered, the write.
	N int
}

func (l Lie) String() string { return fmt.Sprintf("%s %s #%d", l.Class, l.Kind, l.N) }

// Count is how much there was of a kind.
type Count struct {
	// Events are those that watches showed, each once. What begins a watch is none.
	Events int
	// Writes are requests that may change an object.
	Writes int
}

// Points are the lies of a class about a kind for which there is an event, or a write.
func (c Count) Points(class Class, kind string) (points []Lie) {
	first, last := 1, c.Events
	switch class {
	case Unanswered:
		last = c.Writes
	case First: // Of the second event, that is Before.
		first = 3
	}
	for n := first; n <= last; n++ {
		points = append(points, Lie{class, kind, n})
	}
	return points
}

type phase int

const (
	waiting phase = iota
	lying
	ended
)

// View is what the managers of one life see.
type View struct {
	lie   Lie
	lasts time.Duration
	due   chan struct{}
	over  chan struct{}

	mutex    sync.Mutex
	phase    phase
	told     bool // somebody has been told the lie
	latest   *Connection
	former   *Connection // the last one before the one that a lie for new managers is for
	versions map[string][]string
	numbers  map[string]int // of events, by kind and version
	writes   map[string]int
}

// New returns a view that lies once, for a time. The zero Lie: it never does, and counts.
func New(lie Lie, lasts time.Duration) *View {
	return &View{
		lie: lie, lasts: lasts, due: make(chan struct{}), over: make(chan struct{}),
		versions: map[string][]string{}, numbers: map[string]int{}, writes: map[string]int{},
	}
}

// Lie returns the lie.
func (v *View) Lie() Lie { return v.lie }

// Due is closed when it is time for a new manager, which a lie for new managers needs. The last one is cut off.
func (v *View) Due() <-chan struct{} { return v.due }

// Over is closed when the lie is over.
func (v *View) Over() <-chan struct{} { return v.over }

// Told reports whether the lie was told.
func (v *View) Told() bool {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	return v.told
}

// Begun reports whether the lie has begun.
func (v *View) Begun() bool {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	return v.phase != waiting
}

// Counts returns how much there was of each kind that is watched.
func (v *View) Counts() map[string]Count {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	counts := map[string]Count{}
	for kind, versions := range v.versions {
		counts[kind] = Count{Events: len(versions), Writes: v.writes[kind]}
	}
	return counts
}

// Connect returns the connection of one more manager.
func (v *View) Connect() *Connection {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	number := 1
	if v.latest != nil {
		number += v.latest.number
	}
	v.latest = &Connection{view: v, number: number}
	return v.latest
}

// shows counts an event, and reports whether a watch shows it now.
func (v *View) shows(by *Connection, kind, version string) bool {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	number := v.number(kind, version)
	if kind != v.lie.Kind || v.lie.Class == Unanswered {
		return true
	}
	if v.phase == waiting && number >= v.lie.N {
		v.phase = lying
		if v.lie.Class.renews() {
			v.former = v.latest
			v.former.cut.Store(v.lie.Class != Both) // It dies now.
			close(v.due)
		} else {
			v.begin()
		}
	}
	switch {
	case v.phase != lying:
		return true
	case v.lie.Class == Before, v.lie.Class == First:
		return by.number <= v.former.number
	}
	return number < v.lie.N
}

// number returns the number of an event of its kind, from 1.
func (v *View) number(kind, version string) int {
	key := kind + " " + version
	if v.numbers[key] == 0 {
		v.versions[kind] = append(v.versions[kind], version)
		v.numbers[key] = len(v.versions[kind])
	}
	return v.numbers[key]
}

// watched notes that a kind is watched.
func (v *View) watched(kind string) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	v.versions[kind] = append([]string{}, v.versions[kind]...)
}

// begin is called when the first one is told the lie.
func (v *View) begin() {
	if v.told {
		return
	}
	v.told = true
	time.AfterFunc(v.lasts, func() {
		v.mutex.Lock()
		defer v.mutex.Unlock()
		v.phase = ended
		if v.former != nil {
			v.former.cut.Store(true)
		}
		close(v.over)
	})
}

// old returns the version of the state that a new manager sees of a kind; "": it sees how it is.
func (v *View) old(by *Connection, kind string) string {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	if kind != v.lie.Kind || !v.lie.Class.renews() || v.phase != lying || by.number <= v.former.number {
		return ""
	}
	if v.lie.Class == First {
		return v.versions[kind][0]
	}
	// Versions are the numbers of all changes, one after the other.
	version, err := strconv.Atoi(v.versions[kind][v.lie.N-1])
	if err != nil {
		return ""
	}
	return strconv.Itoa(version - 1)
}

// tell begins a lie for new managers, which one was told.
func (v *View) tell() {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	v.begin()
}

// answers counts a write, and reports whether it gets an answer.
func (v *View) answers(kind string) bool {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	v.writes[kind]++
	if v.lie.Class != Unanswered || kind != v.lie.Kind || v.writes[kind] != v.lie.N {
		return true
	}
	v.phase, v.told = ended, true
	close(v.over)
	return false
}

// kindOf returns the kind that a request is about, in the plural, and whether it names an object; "": none.
func kindOf(request *http.Request) (kind string, named bool) {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return "", false
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	return parts[0], len(parts) > 1
}
