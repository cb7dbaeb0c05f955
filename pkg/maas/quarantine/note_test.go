// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

var now = time.Date(2026, 11, 23, 14, 0, 0, 0, time.UTC)

func TestNotes(t *testing.T) {
	for comment, want := range map[string]Note{
		"Quarantined since=2026-11-23T14:00:00Z until=2026-11-24T14:00:00Z pause=20m0s failures=2 by=uid why=it failed to deploy; see its events": {
			Since: now, Until: now.Add(24 * time.Hour), Pause: 20 * time.Minute, Failures: 2, By: "uid", Why: "it failed to deploy; see its events",
		},
		"Quarantined since=2026-11-23T14:00:00Z until=2026-11-23T14:10:00Z failures=1 by=uid why=it failed": {
			Since: now, Until: now.Add(10 * time.Minute), Failures: 1, By: "uid", Why: "it failed",
		},
		"Quarantined since=2026-11-23T14:00:00Z failures=1 by=uid checks=metal set=12 why=memtester failed": {
			Since: now, Failures: 1, By: "uid", Checks: "metal", Set: 12, Why: "memtester failed",
		},
		"Quarantined since=2026-11-23T14:00:00Z why=until=never, says why=Ann": {Since: now, Why: "until=never, says why=Ann"},
	} {
		if got := Parse(comment); !cmp.Equal(want, got) {
			t.Errorf("%q is read as:\n%s", comment, cmp.Diff(want, got))
		}
		if got := want.String(); got != comment {
			t.Errorf("%+v is written as %q, want %q", want, got, comment)
		}
	}
}

// What people write does not end a quarantine by mistake.
func TestNotesThatPeopleEdit(t *testing.T) {
	for comment, want := range map[string]Note{
		"":                    {},
		"leave it alone":      {},
		"until=tomorrow":      {},
		"until=2026-11-23":    {},
		"pause=-1h":           {},
		"failures=-3":         {},
		"failures=a lot":      {},
		"why=":                {},
		"why=the fan\nsmokes": {Why: "the fan smokes"},
		"until=2026-11-23T15:00:00+01:00 mine=yes by=": {Until: now},
		"until=9999-12-31T23:59:59Z":                   {},
	} {
		if got := Parse(comment); !cmp.Equal(want, got) {
			t.Errorf("%q is read as:\n%s", comment, cmp.Diff(want, got))
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("Quarantined since=2026-11-23T14:00:00Z until=2026-11-24T14:00:00Z pause=20m0s failures=2 by=uid why=it failed")
	f.Fuzz(func(t *testing.T, comment string) {
		note := Parse(comment)
		if again := Parse(note.String()); !cmp.Equal(note, again) {
			t.Errorf("%q is read as %+v, and then as %+v", comment, note, again)
		}
		if strings.ContainsAny(note.String(), "\n\r") {
			t.Errorf("%q does not fit on a line", note.String())
		}
	})
}

func TestEachFurtherFailureDoublesThePause(t *testing.T) {
	at, last := now, Note{}
	var got []time.Duration
	for _, by := range []string{"m1", "m2", "m3", "m4", "m5", "m6"} {
		last = after(last, Cause{By: by}, at)
		if again := after(last, Cause{By: by}, at.Add(time.Hour)); again != last {
			t.Errorf("a second report of %s is another failure: %+v, %+v", by, last, again)
		}
		got = append(got, last.Pause)
		at = at.Add(time.Minute)
		last = last.inPool(at)
		if last.Until.Sub(at) != got[len(got)-1] || last.Pause != 0 {
			t.Errorf("back in the pool it is %+v", last)
		}
		at = last.Until.Add(Limits.Remembered)
	}
	const minute = time.Minute
	if diff := cmp.Diff([]time.Duration{10 * minute, 20 * minute, 40 * minute, 80 * minute, 120 * minute, 120 * minute}, got); diff != "" {
		t.Errorf("the pauses differ (-want +got):\n%s", diff)
	}
	if next := after(last, Cause{By: "m7"}, at.Add(time.Second)); next.Failures != 1 {
		t.Errorf("long after, a failure is one of several: %+v", next)
	}
	if next := after(Note{Since: at, Why: "by hand"}, Cause{By: "m8"}, at); next.Failures != 1 {
		t.Errorf("what a person did is a failure: %+v", next)
	}
}

func TestEnds(t *testing.T) {
	for want, note := range map[string]Note{
		"until it is lifted":            {Since: now},
		"until 10m0s after its release": {Until: now, Pause: 10 * time.Minute},
		"until 2026-11-23T14:00:00Z":    {Until: now},
	} {
		if got := note.Ends(); got != want {
			t.Errorf("%+v lasts %q, want %q", note, got, want)
		}
	}
}

// A failed check has no end, whatever else the machine failed before or after.
func TestAFailedCheckHasNoEnd(t *testing.T) {
	timed, check := Cause{By: "m1", Why: "it failed to deploy"}, Cause{By: "m1", Checks: "metal", Set: 12, Why: "memtester failed"}
	first := after(Note{}, timed, now)
	noted := after(first, check, now.Add(time.Minute))
	if noted.Checks != "metal" || noted.Set != 12 || !noted.Until.IsZero() || noted.Failures != 2 {
		t.Errorf("after a failed deployment it is %+v", noted)
	}
	for _, later := range []Cause{check, timed, {By: "m2", Why: "it failed to deploy"}} {
		if next := after(noted, later, now.Add(time.Hour)); next != noted {
			t.Errorf("after %+v it is %+v", later, next)
		}
	}
}

func TestWhatAMachineMustPassToLeaveQuarantine(t *testing.T) {
	of := func(set int, name, device string, status maas.TestStatus) maas.TestResult {
		return maas.TestResult{Set: set, Name: name, Device: device, Status: status}
	}
	const set = 5
	failed := []maas.TestResult{
		of(4, "ntp", "", maas.TestsFailed), of(set, "memtester", "", maas.TestsAborted), of(set, "fio", "sda", maas.TestsPassed), of(set, "fio", "sdb", maas.TestsFailed),
	}
	fixed := of(6, "fio", "sdb", maas.TestsPassed)
	for name, tc := range map[string]struct {
		later []maas.TestResult
		want  bool
	}{
		"no later test":         {},
		"another script":        {[]maas.TestResult{of(6, "smartctl-validate", "", maas.TestsPassed)}, false},
		"what was aborted":      {[]maas.TestResult{of(6, "memtester", "", maas.TestsPassed)}, false},
		"what failed":           {[]maas.TestResult{fixed}, false},
		"another disk":          {[]maas.TestResult{of(6, "memtester", "", maas.TestsPassed), of(6, "fio", "sda", maas.TestsPassed)}, false},
		"both":                  {[]maas.TestResult{of(6, "memtester", "", maas.TestsSkipped), fixed}, true},
		"one after the other":   {[]maas.TestResult{of(6, "memtester", "", maas.TestsPassed), of(7, "fio", "sdb", maas.TestsPassed)}, true},
		"both, and failed anew": {[]maas.TestResult{of(6, "memtester", "", maas.TestsPassed), fixed, of(7, "memtester", "", maas.TestsDegraded)}, false},
		"both, and under way":   {[]maas.TestResult{of(6, "memtester", "", maas.TestsPassed), fixed, of(7, "memtester", "", maas.TestsRunning)}, false},
	} {
		results := slices.Concat(failed, tc.later)
		slices.Reverse(results)
		if got := (Note{Checks: "metal", Set: set}).isPassed(results); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
