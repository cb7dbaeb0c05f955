// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"path/filepath"
	"strings"
	"testing"
)

const realNodes = "../e2e/real"

// The row of each flavor ends with the test that runs it on real nodes, or none; as e2e/real has it.
func TestEveryFlavorNamesItsRunOnRealNodes(t *testing.T) {
	source := read(t, filepath.Join(realNodes, "flavors_test.go"))
	_, run, _ := strings.Cut(source, "var flavors = ")
	run, notRun, _ := strings.Cut(run, "var notYet = ")
	notRun, _, _ = strings.Cut(notRun, "\n}\n")
	_, hosts, _ := strings.Cut(run, "var hostFlavors = ")
	page := read(t, flavorsPage)
	for flavor := range flavors(t) {
		title, test := flavor, "`TestFlavors/flavor-"+flavor+"`"
		if flavor == "" {
			title, test = "default", "`TestFlavors/flavor`"
		}
		entry := "\n\t\"" + flavor + "\":"
		if strings.Contains(hosts, entry) {
			test = "`TestHostCluster/flavor-" + flavor + "`"
		}
		_, row, found := strings.Cut(page, "](#"+title+") |")
		row, _, _ = strings.Cut(row, "\n")
		if !found || strings.Contains(run, entry) != strings.Contains(row, test) {
			t.Errorf("%s: is it true that real nodes run the flavor %q, and does it name %s?", flavorsPage, title, test)
		}
		if strings.Contains(notRun, entry) != strings.HasSuffix(row, "| - |") {
			t.Errorf("%s: is it true that real nodes do not run the flavor %q, and does its row end so?", flavorsPage, title)
		}
	}
}
