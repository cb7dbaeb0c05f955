// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pmezard/go-difflib/difflib"
	"sigs.k8s.io/yaml"

	"github.com/capmaas/cluster-api-provider-maas/test/golden"
)

const goldenDir = "testdata/golden"

// defaultsOf is the name of the values from which the others differ.
const defaultsOf = "defaults"

// A change of a template shows in each of the ways in which the chart is used: what the defaults render, and what
// other values render otherwise. `go test ./e2e/packaging -run Golden -update` writes the present renderings.
func TestGoldenRenderings(t *testing.T) {
	defaults := renderingOf(t, matrix[defaultsOf])
	for name, v := range matrix {
		t.Run(name, func(t *testing.T) {
			got := defaults.whole()
			if name != defaultsOf {
				got = renderingOf(t, v).differenceFrom(t, defaults)
			}
			golden.Compare(t, filepath.Join(goldenDir, goldenFile(name)), got)
		})
	}
}

func goldenFile(name string) string {
	if name == defaultsOf {
		return name + ".yaml"
	}
	return strings.ReplaceAll(name, " ", "-") + ".diff"
}

// rendering is the objects by their kinds and names, in a fixed form, so that only their content counts.
type rendering map[string]string

// renderingOf renders the chart. Of long texts only the first lines are kept: TestCRDs and
// TestDashboardAndAlertsUseMetricsThatExist check the rest.
func renderingOf(t *testing.T, v values) rendering {
	t.Helper()
	objects := rendering{}
	for _, o := range withHooks(t, v) {
		if o.GetKind() == "CustomResourceDefinition" {
			o.Object["spec"] = "as generated"
		}
		if data, ok := o.Object["data"].(map[string]any); ok && data["capmaas.json"] != nil {
			data["capmaas.json"] = "as in files/monitoring"
		}
		content, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		name := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		if _, twice := objects[name]; twice {
			t.Errorf("the chart renders %s twice", name)
		}
		objects[name] = string(content)
	}
	return objects
}

func (r rendering) whole() string {
	var documents []string
	for _, name := range slices.Sorted(maps.Keys(r)) {
		documents = append(documents, "# "+name+"\n"+r[name])
	}
	return strings.Join(documents, "---\n")
}

// differenceFrom returns the objects that are there besides, are missing, or differ, with a line before and after each
// difference. It has no line numbers: what changes in all renderings shows once.
func (r rendering) differenceFrom(t *testing.T, other rendering) string {
	t.Helper()
	names := maps.Clone(r)
	maps.Copy(names, other)
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if r[name] == other[name] {
			continue
		}
		out.WriteString("# " + name + "\n")
		if r[name] == "" {
			out.WriteString("is missing\n")
			continue
		}
		diff, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
			A: linesOf(other[name]), B: linesOf(r[name]), Context: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString(lineNumbers.ReplaceAllString(diff, "@@"))
	}
	return out.String()
}

func linesOf(text string) []string { return slices.Collect(strings.Lines(text)) }

var lineNumbers = regexp.MustCompile(`(?m)^@@ .* @@$`)

func TestNoGoldenRenderingIsLeftOver(t *testing.T) {
	files, err := os.ReadDir(goldenDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		known := false
		for name := range matrix {
			known = known || goldenFile(name) == file.Name()
		}
		if !known {
			t.Errorf("%s belongs to no values of the matrix", file.Name())
		}
	}
}

// impure are functions and objects of Helm's templates by which two renderings may differ: Argo CD and others render
// again and again, without a cluster, and would never see the same twice.
var impure = regexp.MustCompile(`\b(lookup|rand\w+|uuidv4|now|ago|htmlDate|date\w*|getHostByName|gen(CA|PrivateKey|SelfSignedCert|SignedCert)\w*|derivePassword|bcrypt|htpasswd|encryptAES|env|expandenv)\b|\.Capabilities\b|\.Release\.(IsInstall|IsUpgrade|Revision)\b`)

var (
	templateAction  = regexp.MustCompile(`(?s)\{\{.*?\}\}`)
	templateComment = regexp.MustCompile(`(?s)^\{\{-?\s*/\*.*\*/`)
	quoted          = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`")
	field           = regexp.MustCompile(`[.$]\w[\w.]*`)
)

// impureIn are the impure functions and objects in a template.
func impureIn(template string) []string {
	var found []string
	for _, action := range templateAction.FindAllString(template, -1) {
		if templateComment.MatchString(action) {
			continue
		}
		action = quoted.ReplaceAllString(action, `""`)
		// What is called like a function may be a value, as manager.env is.
		action = field.ReplaceAllStringFunc(action, func(name string) string {
			if strings.HasPrefix(name, ".Values") || !strings.HasPrefix(name, ".Release") && !strings.HasPrefix(name, ".Capabilities") {
				return "."
			}
			return name
		})
		found = append(found, impure.FindAllString(action, -1)...)
	}
	return found
}

func TestTemplatesArePure(t *testing.T) {
	capmaas, err := loadChart()
	if err != nil {
		t.Fatal(err)
	}
	for _, template := range capmaas.Templates {
		if found := impureIn(string(template.Data)); len(found) > 0 {
			t.Errorf("%s uses %v", template.Name, found)
		}
	}
	for template, want := range map[string]bool{
		`{{ lookup "v1" "Secret" "a" "b" }}`:                    true,
		`{{- $key := randAlphaNum 16 | b64enc }}`:               true,
		`{{ if .Release.IsInstall }}`:                           true,
		`{{ .Capabilities.APIVersions.Has "x" }}`:               true,
		`{{/* no lookup */}} now {{ .Values.manager.env }}`:     false,
		`{{ include "lookup" . }}{{ .Release.Namespace }}`:      false,
		`{{- with $values.env }}{{ toYaml . }}{{ end }} now }}`: false,
	} {
		if got := len(impureIn(template)) > 0; got != want {
			t.Errorf("%s is found impure: %t", template, got)
		}
	}
}
