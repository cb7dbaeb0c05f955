// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
)

// The lines before and after the table of results.
const (
	resultsBegin = "<!-- written by make conformance-capi -->"
	resultsEnd   = "<!-- end of what is written -->"
	resultsHead  = "| Spec | Flavor | Result | Seconds |\n|---|---|---|---|\n"
)

var errNoResults = errors.New("the document has no place for results")

// result is a row of the table.
type result struct{ spec, flavor, outcome, seconds string }

// updateResults writes the results of a run into a document. Those of specs that did not run now stay.
func updateResults(file string, report ginkgo.Report) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	head, rest, begins := strings.Cut(string(text), resultsBegin+"\n")
	table, tail, ends := strings.Cut(rest, resultsEnd)
	if !begins || !ends {
		return fmt.Errorf("writing the results: %w: %s", errNoResults, file)
	}
	updated := head + resultsBegin + "\n" + render(merge(parseResults(table), resultsOf(report))) + resultsEnd + tail
	if err := os.WriteFile(file, []byte(updated), 0o644); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	return nil
}

// resultsOf returns a row for each spec, in their order in the sources. Those that did not run have no outcome.
func resultsOf(report ginkgo.Report) []result {
	specs := slices.DeleteFunc(slices.Clone(report.SpecReports), func(spec types.SpecReport) bool { return len(spec.ContainerHierarchyTexts) < 2 })
	slices.SortStableFunc(specs, func(a, b types.SpecReport) int {
		return a.ContainerHierarchyLocations[0].LineNumber - b.ContainerHierarchyLocations[0].LineNumber
	})
	var rows []result
	for _, spec := range specs {
		row := result{spec: spec.ContainerHierarchyTexts[0], flavor: spec.ContainerHierarchyTexts[1]}
		switch {
		case spec.State.Is(types.SpecStatePassed):
			row.outcome = "passed"
		case spec.State.Is(types.SpecStateFailureStates):
			row.outcome = "failed"
		}
		if row.outcome != "" {
			row.seconds = fmt.Sprintf("%.0f", spec.RunTime.Seconds())
		}
		rows = append(rows, row)
	}
	return rows
}

// merge gives those that did not run now the results that they had.
func merge(before, now []result) []result {
	for i, row := range now {
		if row.outcome != "" {
			continue
		}
		now[i].outcome = "not run"
		for _, old := range before {
			if old.spec == row.spec && old.flavor == row.flavor {
				now[i] = old
			}
		}
	}
	return now
}

var resultRow = regexp.MustCompile(`(?m)^\| (\w+Spec) \| ([^|]+) \| ([^|]+) \| ([^|]*) \|$`)

func parseResults(table string) []result {
	var rows []result
	for _, found := range resultRow.FindAllStringSubmatch(table, -1) {
		rows = append(rows, result{spec: found[1], flavor: found[2], outcome: found[3], seconds: found[4]})
	}
	return rows
}

func render(rows []result) string {
	table := resultsHead
	for _, row := range rows {
		table += fmt.Sprintf("| %s | %s | %s | %s |\n", row.spec, row.flavor, row.outcome, row.seconds)
	}
	return table
}
