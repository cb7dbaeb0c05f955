// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
)

// The table names each guard of the models, and nothing that they do not have.
func TestTheTableIsOfTheModels(t *testing.T) {
	all, err := load("../../model")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Errorf("there are only %d searches", len(all))
	}
}

func TestATableThatIsNotOfTheModelsIsRefused(t *testing.T) {
	sources := map[string]string{
		"promises": "mtype = {\n    NeverTwo,    // never two\n    NothingLeft\n}", "protocol": "#ifdef NO_RECORD",
		"metal": "#ifndef NO_FIND\n#if defined(LAG) && !defined(NO_AS_OF)",
	}
	guard := func(name string) search {
		return search{Model: "metal", Guard: name, Breaks: "NothingLeft", part: partGuards}
	}
	good := []search{guard("NO_RECORD"), guard("NO_FIND"), guard("NO_AS_OF"), {Model: "metal", With: "LAG", part: partSearches}}
	if wrong := check(good, sources); len(wrong) > 0 {
		t.Errorf("a good table is refused: %v", wrong)
	}
	for name, bad := range map[string][]search{
		"a guard that is not taken away":     good[1:],
		"a switch that the model has not":    append([]search{guard("NO_SUCH")}, good...),
		"a model that is not there":          append([]search{{Model: "tin", part: partSearches}}, good...),
		"a sentence that is not there":       append([]search{{Model: "metal", With: "LAG", Breaks: "Peace", Why: "so", part: partLimits}}, good...),
		"a guard without what breaks":        append([]search{{Model: "metal", Guard: "NO_FIND", part: partGuards}}, good...),
		"a limit without why it is accepted": append([]search{{Model: "metal", With: "LAG", Breaks: "NeverTwo", part: partLimits}}, good...),
	} {
		if len(check(bad, sources)) == 0 {
			t.Errorf("%s is accepted", name)
		}
	}
}

// What Spin prints is read as it is: what was not complete, did not break, or breaks something else is a surprise.
func TestWhatIsNotAsExpectedIsASurprise(t *testing.T) {
	const (
		complete = "State-vector 100 byte, depth reached 919, errors: 0\n    31956 states, stored\n  183.945\ttotal actual memory usage\n"
		broken   = "pan:1: assertion violated 0 (at depth 50)\nWarning: Search not completed\n depth reached 50, errors: 1\n 2868 states, stored\n"
		full     = "pan: reached -DMEMLIM bound\nWarning: Search not completed\n depth reached 919, errors: 0\n 9 states, stored\n"
		trail    = "          EV manager 0 records allocate\n    EV MAAS does allocate\n   BROKEN NothingLeft\n"
	)
	for name, tc := range map[string]struct {
		breaks, out, trail string
		surprise           bool
	}{
		"nothing is found":                 {"", complete, "", false},
		"something is found":               {"", broken, trail, true},
		"it needs more memory":             {"", full, "", true},
		"a guard is needed":                {"NothingLeft", broken, trail, false},
		"a guard is not needed":            {"NothingLeft", complete, "", true},
		"a guard is needed for more":       {"NeverTwo", broken, trail, true},
		"a process waits for ever":         {"", "pan:1: invalid end state (at depth 5)\nWarning: Search not completed\n 9 states, stored\n", "", true},
		"it waits instead of what breaks":  {"NeverTwo", "pan:1: invalid end state (at depth 5)\n 9 states, stored\n", "", true},
		"a guard's search has not the end": {"NothingLeft", full, "", true},
	} {
		r := result{search: search{Breaks: tc.breaks}}
		r.read(tc.out)
		r.replay(tc.trail)
		r.judge()
		if (r.surprise != "") != tc.surprise {
			t.Errorf("%s: the surprise is %q", name, r.surprise)
		}
		if r.states == 0 {
			t.Errorf("%s: no states were read", name)
		}
		if tc.trail != "" && (r.events != 2 || r.broken != "NothingLeft") {
			t.Errorf("%s: %d events, and %s", name, r.events, r.broken)
		}
	}
}
