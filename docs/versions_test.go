// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// The README's table says what the tests really run with.
func TestTestedVersionsInTheReadmeAreThoseOfTheTests(t *testing.T) {
	readme := read(t, filepath.Join("..", "README.md"))
	tools := read(t, filepath.Join("..", "hack", "tools", "go.mod"))
	for row, module := range map[string]string{
		"Kubernetes, management": "k8s.io/kubernetes", "Cluster API": "sigs.k8s.io/cluster-api", "Helm": "helm.sh/helm/v3",
	} {
		pinned := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(module) + ` v(\S+)`).FindStringSubmatch(tools)
		if pinned == nil {
			t.Fatalf("hack/tools does not pin %s", module)
		}
		checkTested(t, readme, row, pinned[1])
	}
	for _, version := range simulator.Versions {
		checkTested(t, readme, "MAAS", version.String())
	}
	if supported := "| MAAS | " + maas.Oldest.Series() + " to " + maas.Newest.Series(); !strings.Contains(readme, supported) {
		t.Errorf("README.md does not say %q", supported)
	}
	chart := read(t, filepath.Join("..", "charts", "capmaas", "Chart.yaml"))
	oldest := regexp.MustCompile(`kubeVersion: ">= (\d+\.\d+)`).FindStringSubmatch(chart)
	if oldest == nil || !strings.Contains(readme, "| Kubernetes, management | "+oldest[1]+" and newer |") {
		t.Errorf("README.md does not say that Kubernetes %v is needed", oldest)
	}
}

// checkTested wants a version in the third column of a row.
func checkTested(t *testing.T, readme, row, version string) {
	t.Helper()
	for line := range strings.Lines(readme) {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| "+row+" |") && len(cells) > 2 {
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(version) + `\b`).MatchString(cells[2]) {
				t.Errorf("README.md: %s was tested with %q, and the tests run with %s", row, cells[2], version)
			}
			return
		}
	}
	t.Errorf("README.md has no row %s", row)
}
