// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

func TestWhatResultsProve(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	result := func(set int, name string, status maas.TestStatus, age time.Duration) maas.TestResult {
		ended := now.Add(-age)
		r := maas.TestResult{ID: set, Set: set, Name: name, Status: status, Started: &ended, Ended: &ended}
		if status.UnderWay() || status == maas.TestsAborted {
			r.Ended = nil
		}
		return r
	}
	on := func(r maas.TestResult, device string) maas.TestResult {
		r.Device = device
		return r
	}
	unstarted := func(set int, name string) maas.TestResult {
		return maas.TestResult{ID: set, Set: set, Name: name, Status: maas.TestsAborted}
	}
	passed := func(set int, name string, age time.Duration) maas.TestResult {
		return result(set, name, maas.TestsPassed, age)
	}
	suppressed := result(5, "memtester", maas.TestsFailed, time.Hour)
	suppressed.Suppressed = true
	const noTest = 1000
	both := []Check{{Script: "memtester"}, {Script: "fio"}}
	gpu := []Check{{Script: "memtester"}, {Script: "gpu-burn", MayLack: true}}
	for name, tc := range map[string]struct {
		results  []maas.TestResult // the newest last
		checks   []Check
		after    int
		validFor time.Duration
		passed   bool
		bad      maas.TestStatus
		running  bool
		lacking  string
		notBegun bool
		tested   bool
	}{
		"nothing": {checks: both, after: noTest, validFor: time.Hour, lacking: "memtester fio"},
		"young":   {results: []maas.TestResult{passed(5, "memtester", time.Minute), passed(6, "fio", time.Minute)}, checks: both, after: noTest, validFor: time.Hour, passed: true},
		"one is old": {results: []maas.TestResult{passed(5, "memtester", time.Hour), passed(6, "fio", time.Minute)}, checks: both, after: noTest, validFor: time.Hour,
			lacking: "memtester"},
		"no age is young enough": {results: []maas.TestResult{passed(5, "memtester", 0)}, checks: both[:1], after: noTest, lacking: "memtester"},
		"old, and of our test":   {results: []maas.TestResult{passed(5, "memtester", time.Hour)}, checks: both[:1], after: 4, passed: true},
		"of another's test":      {results: []maas.TestResult{passed(5, "memtester", time.Hour)}, checks: both[:1], after: 5, lacking: "memtester"},
		"the last one counts": {results: []maas.TestResult{passed(5, "memtester", time.Hour), result(6, "memtester", maas.TestsFailed, time.Minute)}, checks: both[:1],
			after: 4, validFor: time.Hour, bad: maas.TestsFailed},
		"a failure before our test is no failure": {results: []maas.TestResult{result(4, "memtester", maas.TestsFailed, time.Minute)}, checks: both[:1], after: 4, validFor: time.Hour,
			lacking: "memtester"},
		"nor does what was before it count": {results: []maas.TestResult{passed(3, "memtester", time.Minute), result(4, "memtester", maas.TestsFailed, time.Minute)},
			checks: both[:1], after: 4, validFor: time.Hour, lacking: "memtester"},
		"degraded":                   {results: []maas.TestResult{result(5, "memtester", maas.TestsDegraded, 0)}, checks: both[:1], after: 4, bad: maas.TestsDegraded},
		"aborted":                    {results: []maas.TestResult{result(5, "memtester", maas.TestsAborted, 0)}, checks: both[:1], after: 4, bad: maas.TestsAborted},
		"one disk":                   {results: []maas.TestResult{passed(5, "fio", 0), result(5, "fio", maas.TestsTimedOut, 0)}, checks: both[1:], after: 4, bad: maas.TestsTimedOut},
		"skipped":                    {results: []maas.TestResult{result(5, "memtester", maas.TestsSkipped, 0)}, checks: both[:1], after: 4, passed: true},
		"a person has suppressed it": {results: []maas.TestResult{suppressed}, checks: both[:1], after: noTest, validFor: 2 * time.Hour, passed: true},
		"under way":                  {results: []maas.TestResult{result(5, "memtester", maas.TestsRunning, 0), passed(5, "fio", 0)}, checks: both, after: 4, running: true},
		"another's is under way":     {results: []maas.TestResult{result(5, "memtester", maas.TestsRunning, 0)}, checks: both[:1], after: noTest, lacking: "memtester"},
		"hardware that it lacks":     {results: []maas.TestResult{passed(5, "memtester", 0)}, checks: gpu, after: 4, passed: true},
		"of which it has failed":     {results: []maas.TestResult{passed(5, "memtester", 0), result(5, "gpu-burn", maas.TestsFailed, 0)}, checks: gpu, after: 4, bad: maas.TestsFailed},
		"nothing that it has":        {checks: gpu[1:], after: noTest, validFor: time.Hour},
		"hardware that it had": {results: []maas.TestResult{passed(3, "memtester", 2*time.Hour), passed(3, "gpu-burn", 2*time.Hour), passed(5, "memtester", 0)}, checks: gpu,
			after: 4, validFor: time.Hour, passed: true, tested: true},
		"a failure of hardware that it had": {results: []maas.TestResult{result(3, "gpu-burn", maas.TestsFailed, 0), passed(5, "memtester", 0)}, checks: gpu, after: 4,
			passed: true, tested: true},
		"hardware that it had, as far as is known": {results: []maas.TestResult{passed(3, "gpu-burn", 2*time.Hour), passed(3, "memtester", 0)}, checks: gpu,
			after: 4, validFor: time.Hour, lacking: "gpu-burn"},
		"a script that our test left out": {results: []maas.TestResult{passed(5, "memtester", 0)}, checks: both, after: 4, lacking: "fio", tested: true},
		"a script that it may leave out, under way": {results: []maas.TestResult{passed(3, "gpu-burn", 2*time.Hour), result(5, "memtester", maas.TestsRunning, 0)},
			checks: gpu, after: 4, running: true},
		"an earlier failure of one disk": {results: []maas.TestResult{on(passed(3, "fio", 0), "sda"), on(result(3, "fio", maas.TestsFailed, 0), "sdb"), on(passed(4, "fio", 0), "sda")},
			checks: both[1:], after: noTest, validFor: time.Hour, lacking: "fio"},
		"one disk that was tested long ago": {results: []maas.TestResult{on(passed(3, "fio", 2*time.Hour), "sdb"), on(passed(4, "fio", 0), "sda")}, checks: both[1:], after: noTest,
			validFor: time.Hour, lacking: "fio"},
		"disks in turn": {results: []maas.TestResult{on(result(2, "fio", maas.TestsFailed, 0), "sdb"), on(passed(3, "fio", 0), "sdb"), on(passed(4, "fio", 0), "sda")},
			checks: both[1:], after: noTest, validFor: time.Hour, passed: true},
		"a failure of one disk, and a later test of another": {results: []maas.TestResult{on(result(5, "fio", maas.TestsFailed, 0), "sdb"), on(passed(6, "fio", 0), "sda")},
			checks: both[1:], after: 4, bad: maas.TestsFailed, tested: true},
		"an earlier failure of a disk that our test left out": {results: []maas.TestResult{on(result(3, "fio", maas.TestsFailed, 0), "sdb"), on(passed(5, "fio", 0), "sda")},
			checks: both[1:], after: 4, passed: true, tested: true},
		"not begun": {results: []maas.TestResult{unstarted(5, "memtester"), unstarted(5, "fio")}, checks: both, after: 4, lacking: "memtester fio", notBegun: true},
		"not begun, and lacking only one": {results: []maas.TestResult{passed(4, "memtester", 0), unstarted(5, "memtester"), unstarted(5, "fio")}, checks: both, after: 4,
			validFor: time.Hour, lacking: "fio", notBegun: true},
		"begun, and given up at once": {results: []maas.TestResult{result(5, "memtester", maas.TestsAborted, 0), unstarted(5, "fio")}, checks: both, after: 4,
			bad: maas.TestsAborted, tested: true},
		"about to begin":                   {results: []maas.TestResult{result(5, "memtester", maas.TestsPending, 0)}, checks: both[:1], after: 4, running: true},
		"not begun, and passed by another": {results: []maas.TestResult{unstarted(5, "memtester"), passed(6, "memtester", 0)}, checks: both[:1], after: 4, passed: true, tested: true},
		"another's was not begun":          {results: []maas.TestResult{unstarted(5, "memtester")}, checks: both[:1], after: noTest, lacking: "memtester"},
	} {
		slices.Reverse(tc.results)
		p := Judge(tc.results, tc.checks, tc.after, tc.validFor, now)
		bad := maas.TestStatus(0)
		if p.Bad != nil {
			bad = p.Bad.Status
		}
		if p.NotBegun != tc.notBegun || (tc.tested && !p.Tested) || (p.Tested && (p.NotBegun || p.UnderWay)) {
			t.Errorf("%s: it is %+v", name, p)
		}
		if p.Passed() != tc.passed || bad != tc.bad || p.UnderWay != tc.running || strings.Join(p.Lacking, " ") != tc.lacking {
			t.Errorf("%s: it is %+v (passed: %t)", name, p, p.Passed())
		}
	}
}

func TestNoSecretIsShown(t *testing.T) {
	for _, line := range []string{
		"password=hunter2", "BMC_PASSWORD: hunter2", `{"token": "hunter2"}`, "Authorization: Bearer hunter2", "api-key hunter2", "the secret hunter2 failed",
	} {
		if shown := withoutSecrets(line); strings.Contains(shown, "hunter2") || shown == "" {
			t.Errorf("%q is shown as %q", line, shown)
		}
	}
	if line := "sda: 12 errors in 300 s"; withoutSecrets(line) != line {
		t.Errorf("%q is shown as %q", line, withoutSecrets(line))
	}
}
