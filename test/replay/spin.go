// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// unseen are the events of the models that say nothing of the objects and machines: what a manager reads, and what it
// gives up.
var unseen = regexp.MustCompile(`^EV (a manager searches: .*|manager \d+: (conflict|too late to send)|` +
	`manager \d+ gets no answer, or dies|a machine is Ready|another user takes a machine|the other user releases it|` +
	`manager \d+ stores .*|manager \d+ sends \d+|manager \d+ claims the VM|manager \d+ finds .*|manager \d+ leaves .*|` +
	`a server does .*|MAAS does \w+|a host .*|somebody has the host refreshed|the host keeps the VM|` +
	`another user takes the VM|the other user lets it go|what was left on a host is deleted|` +
	`another object of the name is made)$`)

// spinLine is how a line that Spin prints becomes events.
type spinLine struct {
	pattern *regexp.Regexp
	read    func(*spinReader, []string)
}

var spinLines = []spinLine{
	{regexp.MustCompile(`^ST object (\d+): (\w+) is (\d)$`), (*spinReader).pending},
	{regexp.MustCompile(`^ST object (\d+): systemID (\d+), unused (\d+), releasing (\d+)$`), (*spinReader).fields},
	{regexp.MustCompile(`^ST machine (\d+): status (\d+), owner (\d+), marked (\d+)$`), (*spinReader).machine},
	{regexp.MustCompile(`^EV manager \d+ records (\w+) of object (\d+)$`),
		func(r *spinReader, f []string) { r.add(f[2], Event{Kind: Records, Op: f[1]}) }},
	{regexp.MustCompile(`^EV manager \d+ sends (\w+) \(\d+\) for object (\d+)$`),
		func(r *spinReader, f []string) { r.add(f[2], Event{Kind: Sends, Op: f[1]}) }},
	{regexp.MustCompile(`^EV MAAS does (\w+) for object (\d+) \(machine (\d+)\)$`), func(r *spinReader, f []string) {
		r.add(f[2], Event{Kind: Does, Op: f[1], Machine: f[3], Look: r.machines[f[3]].as(f[2])})
		r.by = f[2]
	}},
	{regexp.MustCompile(`^EV manager \d+ gets the answer \d+ to (\w+) of object (\d+)$`),
		func(r *spinReader, f []string) { r.add(f[2], Event{Kind: Answered, Op: f[1]}) }},
	{regexp.MustCompile(`^EV the settle time of (\w+) of object (\d+) is over$`), func(r *spinReader, f []string) {
		r.add(f[2], Event{Kind: Settles, Op: f[1]})
		if o := r.objects[f[2]]; o != nil {
			o.pending[f[1]] = 2
		}
	}},
	{regexp.MustCompile(`^EV object (\d+) is deleted$`),
		func(r *spinReader, f []string) { r.add(f[1], Event{Kind: Deletes}) }},
	{regexp.MustCompile(`^EV manager \d+ removes the finalizer of object (\d+)$`), func(r *spinReader, f []string) {
		r.add(f[1], Event{Kind: Finishes})
		r.gone[f[1]] = true
	}},
	{unseen, func(*spinReader, []string) {}},
}

// spinMachine and spinObject are what a model has, as it prints them.
type spinMachine struct{ status, owner, marked int }

type spinObject struct {
	systemID, unused, releasing int
	pending                     map[string]int // 1: may come, 2: settled
}

var spinStatus = []Status{Ready, Allocated, Deploying, Deployed, InRelease}

// as returns what the machine is to an object.
func (m spinMachine) as(object string) Look {
	owned := strconv.Itoa(m.owner-1) == object
	return Look{Status: spinStatus[m.status], Owned: owned, Marked: owned && m.marked == 1}
}

type spinReader struct {
	machines map[string]spinMachine
	objects  map[string]*spinObject
	gone     map[string]bool
	events   map[string][]Event
	by       string // the object whose call changes the next machine
	// later are events of the line before: what is recorded with a call holds after it.
	later map[string]Event
}

func (r *spinReader) add(object string, e Event) { r.events[object] = append(r.events[object], e) }

// ReadSpin reads what Spin prints of a model: for each object its events.
func ReadSpin(lines []string, objects int) (map[string][]Event, error) {
	r := &spinReader{machines: map[string]spinMachine{"0": {}, "1": {}}, objects: map[string]*spinObject{},
		gone: map[string]bool{}, events: map[string][]Event{}}
	for i := range objects {
		name := strconv.Itoa(i)
		r.objects[name] = &spinObject{pending: map[string]int{}}
		r.add(name, Event{Kind: Begins, Begin: &State{Unused: map[string]bool{}, Pending: map[string]Entry{},
			Machines: map[string]Look{"0": {Status: Ready}, "1": {Status: Ready}}}})
	}
	for _, line := range lines {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "EV ") && !strings.HasPrefix(line, "ST ") {
			continue
		}
		at := slices.IndexFunc(spinLines, func(l spinLine) bool { return l.pattern.MatchString(line) })
		if at < 0 {
			return nil, fmt.Errorf("a line of the model that the replay does not know: %q", line)
		}
		by, later := r.by, r.later
		r.later = nil
		spinLines[at].read(r, spinLines[at].pattern.FindStringSubmatch(line))
		if r.by == by {
			r.by = ""
		}
		for object, e := range later {
			r.add(object, e)
		}
	}
	for object, e := range r.later {
		r.add(object, e)
	}
	return r.events, nil
}

func (r *spinReader) machine(f []string) {
	m := spinMachine{number(f[2]), number(f[3]), number(f[4])}
	r.machines[f[1]] = m
	for _, object := range slices.Sorted(maps.Keys(r.objects)) {
		r.add(object, Event{Kind: Machine, Machine: f[1], Look: m.as(object), On: r.by == object})
	}
}

// pending reads whether a call is recorded of an object. That it is now, the event says that follows.
func (r *spinReader) pending(f []string) {
	object, op, now := f[1], f[2], number(f[3])
	if r.gone[object] {
		return
	}
	before := r.objects[object].pending[op]
	switch {
	case before != 0 && now == 0:
		r.add(object, Event{Kind: Forgets, Op: op})
	case before == 1 && now == 2:
		r.add(object, Event{Kind: Forgets, Op: op, Restored: true})
	}
	r.objects[object].pending[op] = now
}

// fields reads the other fields of an object, and says what has changed.
func (r *spinReader) fields(f []string) {
	object := f[1]
	if r.gone[object] {
		return
	}
	before := r.objects[object]
	now := &spinObject{systemID: number(f[2]), unused: number(f[3]), releasing: number(f[4]), pending: before.pending}
	id := func(n int) string { return strconv.Itoa(n - 1) }
	if now.systemID != before.systemID {
		r.named(object, id(now.systemID))
	}
	if before.unused != 0 && now.unused != before.unused {
		r.add(object, Event{Kind: IsRid, Machine: id(before.unused)})
	}
	if now.unused != 0 && now.unused != before.unused {
		r.add(object, Event{Kind: SetsAside, Machine: id(now.unused)})
	}
	if now.releasing != before.releasing {
		r.later = map[string]Event{object: {Kind: Releasing, On: now.releasing == 1}}
	}
	r.objects[object] = now
}

// named is spec.systemID: that from the beginning is no decision.
func (r *spinReader) named(object, id string) {
	if first := r.events[object]; len(first) == 1 {
		first[0].Begin.SystemID = id
		return
	}
	r.add(object, Event{Kind: Stores, Machine: id})
}

func number(text string) int {
	n, _ := strconv.Atoi(text) // The patterns take digits alone.
	return n
}
