// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
)

func specReport(line int, flavor string, state types.SpecState) types.SpecReport {
	return types.SpecReport{
		ContainerHierarchyTexts:     []string{"OneSpec", flavor},
		ContainerHierarchyLocations: []types.CodeLocation{{LineNumber: line}, {LineNumber: line}},
		State:                       state, RunTime: 12e9,
	}
}

// A run of some specs leaves the results of the others, and drops those of specs that are no more.
func TestResultsAreBroughtUpToDate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	page := func(rows string) string {
		return "# Head\n\n" + resultsBegin + "\n" + render(nil) + rows + resultsEnd + "\n\nTail | OneSpec |\n"
	}
	const none = "- | "
	before := page("| OneSpec | a, b | 1 s | " + none + none + none + "failed | " + none + "- |\n" +
		"| OneSpec | kept | " + none + none + none + none + "2 s | " + none + "4 s |\n| OneSpec | gone | " + none + none + none + none + none + none + "3 s |\n")
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	report := ginkgo.Report{SpecReports: types.SpecReports{
		{State: types.SpecStatePassed}, // of the suite
		specReport(4, "new", types.SpecStateSkipped), specReport(3, "broken", types.SpecStateTimedout),
		specReport(2, "kept", types.SpecStateSkipped), specReport(1, "a, b", types.SpecStatePassed),
	}}
	if err := updateResults(file, "3.7", report); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := page("| OneSpec | a, b | 1 s | " + none + none + none + "12 s | " + none + "- |\n" +
		"| OneSpec | kept | " + none + none + none + none + "2 s | " + none + "4 s |\n" +
		"| OneSpec | broken | " + none + none + none + none + "failed | " + none + "- |\n| OneSpec | new | " + none + none + none + none + none + none + "- |\n")
	if diff := cmp.Diff(want, string(after)); diff != "" {
		t.Errorf("the document (-want +got):\n%s", diff)
	}
}

func TestResultsNeedAPlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte("# No table\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := updateResults(file, "3.7", ginkgo.Report{}); !errors.Is(err, errNoResults) {
		t.Errorf("the error is %v, want %v", err, errNoResults)
	}
}
