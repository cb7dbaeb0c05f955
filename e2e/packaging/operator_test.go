// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What the documents have for the Cluster API Operator is accepted by its own CRD, and it finds our releases. Rancher
// Turtles contains the operator.
func TestOperatorsObjects(t *testing.T) {
	t.Parallel()
	operator := downloaded(t, filepath.Join(sources, "hack", "tools", "operator"), "sigs.k8s.io/cluster-api-operator")
	installCRDs(t, operator, "config/crd/bases/operator.cluster.x-k8s.io_infrastructureproviders.yaml")
	seen := 0
	for _, o := range objectsIn(t, "clusterctl.md") {
		switch o.GetKind() {
		case "InfrastructureProvider":
			seen++
			o.SetNamespace("default")
			if err := management.strict.Create(t.Context(), o, client.DryRunAll); err != nil {
				t.Error(err)
			}
			checkFetched(t, o)
		case "CAPIProvider":
			seen++
			checkFetched(t, o)
		}
	}
	if seen != 2 {
		t.Errorf("%d objects are documented, want one for the operator and one for Turtles", seen)
	}
}

// checkFetched wants the form of URL that clusterctl understands: of a release of a GitHub repository, with the file.
func checkFetched(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	from, _, _ := unstructured.NestedString(o.Object, "spec", "fetchConfig", "url")
	wanted, _, _ := unstructured.NestedString(o.Object, "spec", "version")
	release := regexp.MustCompile(`^https://github\.com/[^/]+/[^/]+/releases/([^/]+)/infrastructure-components\.yaml$`).FindStringSubmatch(from)
	if release == nil || release[1] != wanted {
		t.Errorf("%s: %q is no URL of the components of %s", o.GetKind(), from, wanted)
	}
}

// downloaded is the directory of a module that is not in go.mod: of the version that the module in pinned has, or, where
// there is none, of its own version.
func downloaded(t *testing.T, pinned, module string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	command.Dir = pinned
	out, err := command.Output()
	if err != nil {
		t.Fatalf("downloading %s: %v: %s", module, err, out)
	}
	var found struct{ Dir string }
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatal(err)
	}
	return found.Dir
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// objectsIn are the objects in a document.
func objectsIn(t *testing.T, name string) (all []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(sources, "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range yamlBlock.FindAllSubmatch(text, -1) {
		if regexp.MustCompile(`(?m)^kind: `).Match(block[1]) {
			all = append(all, mustParse(t, block[1])...)
		}
	}
	return all
}
