// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// need is what a case needs of a region's MAAS. A skip for it is explained by the facts.
type need struct {
	what string
	met  func(facts) bool
}

var (
	vmHosts         = need{"VM hosts", func(f facts) bool { return f.vmHosts }}
	noVMHosts       = need{"a MAAS without VM hosts", func(f facts) bool { return !f.vmHosts }}
	entitlements    = need{"MAAS 3.8", func(f facts) bool { return f.entitlements }}
	noEntitlements  = need{"a MAAS before 3.8", func(f facts) bool { return !f.entitlements }}
	reservedIPs     = need{"MAAS 3.6", func(f facts) bool { return f.reservedIPs }}
	imagesNamedAnew = need{"a MAAS before 3.8, which takes custom/ off the names of images", func(f facts) bool { return !f.imageNamesAsSent }}
)

// acceptedVariable names how many cases may lack something.
const acceptedVariable = "MAAS_CONFORMANCE_LACKING"

// tally is what became of the cases, each of which runs once against each region.
type tally struct {
	mu             sync.Mutex
	passed, failed int
	// explained and lacking are how many were skipped for each reason: because of the facts, or the variables; and
	// because the region lacks something that a region can have.
	explained, lacking map[string]int
	// skips are the reasons of cases that are about to be skipped, by the test's name.
	skips map[string]skip
}

type skip struct {
	reason    string
	explained bool
}

var cases = tally{explained: map[string]int{}, lacking: map[string]int{}, skips: map[string]skip{}}

// needs skips a case that the region's MAAS can't run.
func (m *maas) needs(t *testing.T, wanted ...need) {
	t.Helper()
	for _, n := range wanted {
		if !n.met(m.facts) {
			cases.skip(t, skip{"needs " + n.what, true})
		}
	}
}

// needsVariable skips a case for which an optional variable is not set.
func needsVariable(t *testing.T, name string) {
	t.Helper()
	cases.skip(t, skip{"needs the variable " + name, true})
}

// lacks skips a case, because the region lacks something that it could have.
func lacks(t *testing.T, format string, args ...any) {
	t.Helper()
	cases.skip(t, skip{fmt.Sprintf(format, args...), false})
}

func (c *tally) skip(t *testing.T, why skip) {
	t.Helper()
	c.mu.Lock()
	c.skips[t.Name()] = why
	c.mu.Unlock()
	t.Skip(why.reason)
}

// count counts a case when it ends.
func (c *tally) count(t *testing.T) {
	t.Cleanup(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		why := c.skips[t.Name()]
		switch {
		case t.Failed():
			c.failed++
		case !t.Skipped():
			c.passed++
		case why.explained:
			c.explained[why.reason]++
		default:
			c.lacking[why.reason]++
		}
	})
}

// report prints what became of the cases, and reports whether too many were skipped: those that lack something, unless
// a variable says how many may.
func (c *tally) report(out io.Writer) (tooMany bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	explained, lacking := sum(c.explained), sum(c.lacking)
	fmt.Fprintf(out, "cases: %d ran, %d passed, %d failed; %d skipped because of the facts, %d because the region lacks something\n",
		c.passed+c.failed, c.passed, c.failed, explained, lacking)
	for _, reasons := range []map[string]int{c.explained, c.lacking} {
		for _, reason := range slices.Sorted(maps.Keys(reasons)) {
			fmt.Fprintf(out, "  %4d skipped: %s\n", reasons[reason], reason)
		}
	}
	accepted, _ := strconv.Atoi(os.Getenv(acceptedVariable))
	if lacking > accepted {
		fmt.Fprintf(out, "%d cases did not run because the region lacks something: add it, or accept that with %s=%d\n",
			lacking, acceptedVariable, lacking)
	}
	return lacking > accepted
}

func sum(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}

// A run is no good if cases did not run for a reason that neither facts nor variables explain.
func TestTooManySkipsFailTheRun(t *testing.T) {
	for name, test := range map[string]struct {
		tally    *tally
		accepted string
		tooMany  bool
	}{
		"none":               {tally: &tally{passed: 2}},
		"because of facts":   {tally: &tally{passed: 1, explained: map[string]int{"needs VM hosts": 300}}},
		"the region lacks":   {tally: &tally{passed: 300, lacking: map[string]int{"no subnets": 1}}, tooMany: true},
		"as many as may":     {tally: &tally{lacking: map[string]int{"no subnets": 1, "no images": 2}}, accepted: "3"},
		"more than accepted": {tally: &tally{lacking: map[string]int{"no subnets": 1, "no images": 3}}, accepted: "3", tooMany: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(acceptedVariable, test.accepted)
			if got := test.tally.report(io.Discard); got != test.tooMany {
				t.Errorf("too many were skipped: %t, want %t", got, test.tooMany)
			}
		})
	}
}
