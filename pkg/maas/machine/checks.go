// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Check is a testing script that a machine must have passed.
type Check struct {
	Script string
	// MayLack: MAAS runs it only on machines with certain hardware.
	MayLack bool
}

// scriptsMaxAge is how old the list of scripts may be: people upload few.
const scriptsMaxAge = 5 * time.Minute

// Checks returns the scripts that the names and tags of a spec stand for. *MissingError: MAAS has none of a name.
func (s *Service) Checks(ctx context.Context, named []string) ([]Check, error) {
	scripts, err := s.inventory.TestScripts(ctx, scriptsMaxAge)
	if err != nil {
		return nil, fmt.Errorf("reading MAAS's testing scripts: %w", err)
	}
	checks := map[string]Check{}
	for _, name := range named {
		called := list.Where(scripts, func(script maas.Script) bool { return script.Answers(name) })
		if len(called) == 0 {
			return nil, &MissingError{Kind: MissingScript, Field: "spec.checks.scripts", Name: name,
				Others: list.Each(scripts, func(script maas.Script) string { return script.Name })}
		}
		for _, script := range called {
			checks[script.Name] = Check{script.Name, len(script.ForHardware) > 0}
		}
	}
	all := make([]Check, 0, len(checks))
	for _, check := range checks {
		all = append(all, check)
	}
	slices.SortFunc(all, func(a, b Check) int { return strings.Compare(a.Script, b.Script) })
	return all, nil
}

// Verdict is what MAAS's results say of checks.
type Verdict struct {
	// Bad is a check that the machine did not pass when it was last tested; nil if there is none that counts.
	Bad *maas.TestResult
	// UnderWay: a check has not ended.
	UnderWay bool
	// NotBegun: MAAS gave up each test that is later than after, and none of them was started: it did not switch the
	// machine on, or somebody aborted them before. On a machine that is StatusAllocated they say nothing of the hardware.
	// Bad is nil then. (MAAS leaves one that it switched on, and that did not boot, StatusFailedTesting.)
	NotBegun bool
	// Lacking are checks without a result that counts.
	Lacking []string
	// Tested: there are tests that are later than after, and all have ended. What is Lacking then was not run although it
	// was asked for, or it is wanted only since: the same is tested at most once more.
	Tested bool
	// Since is when the first of the results ended that count, and Until when the last did; zero if MAAS does not say.
	Since, Until time.Time
	found        bool
}

// Passed reports whether the machine has passed all checks.
func (v Verdict) Passed() bool { return v.found && v.Bad == nil && !v.UnderWay && len(v.Lacking) == 0 }

// Judge returns what results of a machine, the newest first, say of checks. A script's results of sets that are
// later than a set (after) count; if there are none, its earlier ones do as long as all are good and ended within a
// time before now. Of each disk or interface the last one counts. What there was nothing to test for is as good as
// passed, and so is what a person has suppressed in MAAS; what is degraded is not. A set that was not begun is none.
func Judge(results []maas.TestResult, checks []Check, after int, validFor time.Duration, now time.Time) Verdict {
	isNew := func(r maas.TestResult) bool { return r.Set > after }
	asked := slices.ContainsFunc(results, isNew)
	results = begun(results)
	fresh := list.Where(results, isNew)
	isBegun := len(fresh) > 0
	v := Verdict{NotBegun: asked && !isBegun, Tested: isBegun && !slices.ContainsFunc(fresh, isUnderWay)}
	for _, check := range checks {
		last, areNew := lastOf(results, check.Script, isNew)
		counts := len(last) > 0
		for i, r := range last {
			switch {
			case r.Status.UnderWay():
				v.UnderWay, counts = v.UnderWay || areNew, counts && areNew
			case !r.IsGood():
				if counts = counts && areNew; areNew && v.Bad == nil {
					v.Bad = &last[i]
				}
			case !areNew && (r.Ended == nil || now.Sub(*r.Ended) >= validFor):
				counts = false
			}
		}
		// What MAAS has left out of a later set has no hardware any more, whatever it was before.
		isMissing := check.MayLack && (len(last) == 0 || isBegun)
		switch {
		case counts:
			v.count(last)
		case !isMissing:
			v.Lacking = append(v.Lacking, check.Script)
		}
	}
	return v
}

func (v *Verdict) count(results []maas.TestResult) {
	v.found = true
	for _, r := range results {
		if r.Ended == nil {
			continue
		}
		if v.Since.IsZero() || r.Ended.Before(v.Since) {
			v.Since = *r.Ended
		}
		if r.Ended.After(v.Until) {
			v.Until = *r.Ended
		}
	}
}

// begun returns the results of sets of which a test was started, or still may be.
func begun(results []maas.TestResult) []maas.TestResult {
	sets := map[int]bool{}
	for _, r := range results {
		sets[r.Set] = sets[r.Set] || r.Started != nil || r.Status != maas.TestsAborted
	}
	return list.Where(results, func(r maas.TestResult) bool { return sets[r.Set] })
}

// lastOf returns the last results of a script, one for each of its devices: of new sets, if there are any.
func lastOf(
	results []maas.TestResult, script string, isNew func(maas.TestResult) bool,
) (last []maas.TestResult, areNew bool) {
	of := list.Where(results, func(r maas.TestResult) bool { return r.Name == script })
	fresh := list.Where(of, isNew)
	if len(fresh) > 0 {
		return maas.LastResults(fresh), true
	}
	return maas.LastResults(of), false
}

func isUnderWay(r maas.TestResult) bool { return r.Status.UnderWay() }

// TestsPage is where MAAS shows the tests of a machine to people.
func (s *Service) TestsPage(systemID string) string {
	root := strings.TrimSuffix(s.inventory.Client().Server().Address(), "/api/2.0")
	return root + "/r/machine/" + systemID + "/testing"
}

const (
	// maxShownLines and maxShown bound what a condition shows of a script's output, in lines and in bytes.
	maxShownLines = 3
	maxShown      = 300
)

// secrets are words after which a script may show one.
var secrets = regexp.MustCompile(`(?i)((?:pass(?:word|wd|phrase)?|secret|token|credentials?|authorization|` +
	`api[-_ ]?key)\w*["']?\s*(?:[:=]|\s)\s*)(?:(?:bearer|basic)\s+)?\S+`)

// LastLines returns the last lines of a result's output on one line, without what looks like a secret; "" if MAAS does
// not return it.
func (s *Service) LastLines(ctx context.Context, systemID string, of maas.TestResult) string {
	lines, err := s.inventory.Client().TestOutput(ctx, systemID, of)
	if err != nil {
		return ""
	}
	lines = lines[max(0, len(lines)-maxShownLines):]
	for i, line := range lines {
		lines[i] = withoutSecrets(line)
	}
	return text.OneLine(strings.Join(lines, " | "), maxShown)
}

func withoutSecrets(line string) string { return secrets.ReplaceAllString(line, "$1...") }
