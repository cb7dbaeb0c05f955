// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// The lines before and after the table of results.
const (
	resultsBegin = "<!-- written by make conformance-capi -->"
	resultsEnd   = "<!-- end of what is written -->"
	resultsHead  = "| Spec | Flavor |"
	notRun       = "-"
)

// maasVersions are the columns of the table.
var maasVersions = seriesOf(simulator.Versions)

func seriesOf(versions []maas.Version) []string {
	var series []string
	for _, version := range versions {
		series = append(series, version.Series())
	}
	return series
}

var errNoResults = errors.New("the document has no place for results")

// result is a row of the table: what became of a spec, by the versions of MAAS.
type result struct {
	spec, flavor string
	outcomes     map[string]string
}

// updateResults writes the results of a run with a version of MAAS into a document. Those of specs that did not run now,
// and of other versions, stay.
func updateResults(file, version string, report ginkgo.Report) error {
	if !slices.Contains(maasVersions, version) {
		return fmt.Errorf("writing the results: %w: MAAS %q is none of %v", errNoResults, version, maasVersions)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	head, rest, begins := strings.Cut(string(text), resultsBegin+"\n")
	table, tail, ends := strings.Cut(rest, resultsEnd)
	if !begins || !ends {
		return fmt.Errorf("writing the results: %w: %s", errNoResults, file)
	}
	updated := head + resultsBegin + "\n" + render(merge(parseResults(table), resultsOf(version, report))) + resultsEnd + tail
	if err := os.WriteFile(file, []byte(updated), 0o644); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	return nil
}

// resultsOf returns a row for each spec, in their order in the sources. Those that did not run have no outcome.
func resultsOf(version string, report ginkgo.Report) []result {
	specs := slices.DeleteFunc(slices.Clone(report.SpecReports), func(spec types.SpecReport) bool { return len(spec.ContainerHierarchyTexts) < 2 })
	slices.SortStableFunc(specs, func(a, b types.SpecReport) int {
		return a.ContainerHierarchyLocations[0].LineNumber - b.ContainerHierarchyLocations[0].LineNumber
	})
	var rows []result
	for _, spec := range specs {
		row := result{spec: spec.ContainerHierarchyTexts[0], flavor: spec.ContainerHierarchyTexts[1], outcomes: map[string]string{}}
		switch {
		case spec.State.Is(types.SpecStatePassed):
			row.outcomes[version] = fmt.Sprintf("%.0f s", spec.RunTime.Seconds())
		case spec.State.Is(types.SpecStateFailureStates):
			row.outcomes[version] = "failed"
		}
		rows = append(rows, row)
	}
	return rows
}

// merge gives each spec the outcomes that it had before, where there is none now.
func merge(before, now []result) []result {
	for _, row := range now {
		for _, old := range before {
			if old.spec != row.spec || old.flavor != row.flavor {
				continue
			}
			for version, outcome := range old.outcomes {
				if row.outcomes[version] == "" {
					row.outcomes[version] = outcome
				}
			}
		}
	}
	return now
}

var resultRow = regexp.MustCompile(`(?m)^\| (\w+Spec) \| (.+) \|$`)

func parseResults(table string) []result {
	var rows []result
	for _, found := range resultRow.FindAllStringSubmatch(table, -1) {
		cells := strings.Split(found[2], " | ")
		row := result{spec: found[1], flavor: cells[0], outcomes: map[string]string{}}
		for i, outcome := range cells[1:] {
			if i < len(maasVersions) && outcome != notRun {
				row.outcomes[maasVersions[i]] = outcome
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func render(rows []result) string {
	table := resultsHead + " MAAS " + strings.Join(maasVersions, " | MAAS ") + " |\n" + strings.Repeat("|---", 2+len(maasVersions)) + "|\n"
	for _, row := range rows {
		table += "| " + row.spec + " | " + row.flavor
		for _, version := range maasVersions {
			table += " | " + cmp.Or(row.outcomes[version], notRun)
		}
		table += " |\n"
	}
	return table
}
