// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"strings"
	"testing"
	"time"
)

// life is that of a machine that is allocated, deployed and given back.
func life(change func([]Event) []Event) []Event {
	start := time.Unix(1_000_000, 0)
	events := []Event{
		{Kind: Begins, Begin: &State{Unused: map[string]bool{}, Pending: map[string]Entry{},
			Machines: map[string]Look{"m": {Status: Ready}}}},
		{Kind: Records, Op: allocate},
		{Kind: Sends, Op: allocate},
		{Kind: Does, Op: allocate, Machine: "m"},
		{Kind: Machine, Machine: "m", Look: Look{Allocated, true, true}, On: true},
		{Kind: Answered, Op: allocate},
		{Kind: Stores, Machine: "m"},
		{Kind: Forgets, Op: allocate},
		{Kind: Records, Op: deploy},
		{Kind: Sends, Op: deploy, Machine: "m"},
		{Kind: Does, Op: deploy, Machine: "m", Look: Look{Allocated, true, true}},
		{Kind: Machine, Machine: "m", Look: Look{Deploying, true, true}, On: true},
		{Kind: Answered, Op: deploy},
		{Kind: Forgets, Op: deploy},
		{Kind: Deletes},
		{Kind: Records, Op: release},
		{Kind: Releasing, On: true},
		{Kind: Sends, Op: release, Machine: "m"},
		{Kind: Does, Op: release, Machine: "m", Look: Look{Deploying, true, true}},
		{Kind: Machine, Machine: "m", Look: Look{InRelease, true, false}, On: true},
		{Kind: Answered, Op: release},
		{Kind: Forgets, Op: release},
		{Kind: Machine, Machine: "m", Look: Look{Status: Ready}},
		{Kind: Finishes},
	}
	for i := range events {
		events[i].At = start.Add(time.Duration(i) * time.Second)
		if events[i].Kind == Records {
			events[i].From, events[i].Until = events[i].At.Add(time.Minute), events[i].At.Add(permitLasts)
		}
	}
	return change(events)
}

func without(kind Kind, op string) func([]Event) []Event {
	return func(events []Event) (rest []Event) {
		for _, e := range events {
			if e.Kind != kind || e.Op != op {
				rest = append(rest, e)
			}
		}
		return rest
	}
}

// later has everything from one event on happen later.
func later(kind Kind, op string, by time.Duration) func([]Event) []Event {
	return func(events []Event) []Event {
		late := false
		for i, e := range events {
			late = late || (e.Kind == kind && e.Op == op)
			if late {
				events[i].At = e.At.Add(by)
			}
		}
		return events
	}
}

func TestWhatTheModelAllows(t *testing.T) {
	for name, tc := range map[string]struct {
		change func([]Event) []Event
		refuse Kind // the kind of the event that is refused; "": none is
	}{
		"a life":                          {func(e []Event) []Event { return e }, ""},
		"nothing is recorded":             {without(Records, deploy), Sends},
		"it is sent too late":             {later(Sends, deploy, 20*time.Second), Sends},
		"an answer that was lost":         {without(Answered, release), Forgets},
		"it goes while it is released":    {without(Machine, ""), Stores},
		"a call whose outcome is unknown": {without(Forgets, release), Finishes},
		"it is waited for":                {func(e []Event) []Event { return later(Finishes, "", time.Hour)(without(Forgets, release)(e)) }, ""},
		"the release is not waited for": {func(e []Event) []Event {
			return append(e[:len(e)-2], e[len(e)-1])
		}, Finishes},
		"a second machine": {func(e []Event) []Event {
			return append(e[:8:8], Event{Kind: Records, Op: allocate, At: e[8].At, From: e[8].At, Until: e[8].At})
		}, Records},
	} {
		t.Run(name, func(t *testing.T) {
			difference, taken := Metal.Replay("ns/m", life(tc.change))
			switch {
			case tc.refuse == "" && difference != nil:
				t.Error(difference)
			case tc.refuse != "" && (difference == nil || difference.Event.Kind != tc.refuse):
				t.Errorf("%q is to be refused, and %v is", tc.refuse, difference)
			case tc.refuse != "" && !strings.Contains(difference.Error(), "the model does not allow"):
				t.Error(difference)
			case len(taken) < 5:
				t.Errorf("few transitions were taken: %v", taken)
			}
		})
	}
}

// A line of a model that nobody reads would be an event that nothing is held against.
func TestEveryLineOfTheModelIsRead(t *testing.T) {
	if _, err := ReadSpin([]string{"EV manager 0 records allocate of object 0", "spin: text failed"}, 1); err != nil {
		t.Error(err)
	}
	if _, err := ReadSpin([]string{"EV manager 0 does as it likes"}, 1); err == nil {
		t.Error("a line that nobody knows is passed over")
	}
}

// Each transition that no run takes is one that a table has, and has a reason.
func TestWhatIsNeverTakenIsInATable(t *testing.T) {
	never, err := NeverTaken()
	if err != nil {
		t.Fatal(err)
	}
	for model, rows := range never {
		table := Of(model)
		if table == nil {
			t.Errorf("never.yaml: there is no table %q", model)
			continue
		}
		known := map[string]bool{}
		for _, row := range table.Rows {
			if known[row.Name] {
				t.Errorf("two transitions of %s are called %q", model, row.Name)
			}
			known[row.Name] = true
		}
		for row, why := range rows {
			if !known[row] || why == "" {
				t.Errorf("never.yaml: %s has no transition %q, or it lacks a reason", model, row)
			}
		}
	}
}
