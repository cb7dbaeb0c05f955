// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"bytes"
	"encoding/json"
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

// references are the values whose renderings others are compared with: an object with the first that has it.
var references = []string{"defaults", "LXD initializer", "network policy", "monitoring"}

// A change of a template shows in each of the ways in which the chart is used: what the defaults render, and what
// other values render otherwise. `go test ./e2e/packaging -run Golden -update` writes the present renderings.
func TestGoldenRenderings(t *testing.T) {
	var before []rendering
	for _, name := range references {
		before = append(before, renderingOf(t, matrix[name]))
	}
	for name, v := range matrix {
		t.Run(name, func(t *testing.T) {
			got := before[0].whole()
			if at := slices.Index(references, name); at != 0 {
				others := before
				if at > 0 {
					others = before[:at]
				}
				got = renderingOf(t, v).differenceFrom(t, others)
			}
			golden.Compare(t, filepath.Join(goldenDir, goldenFile(name)), got)
		})
	}
}

func goldenFile(name string) string {
	if name == references[0] {
		return name + ".yaml"
	}
	return strings.ReplaceAll(name, " ", "-") + ".diff"
}

// rendering is the objects by their kinds and names, in a fixed form, so that only their content counts.
type rendering map[string]string

// renderingOf renders the chart. What is as in a file stands for itself: TestCRDs and
// TestDashboardAndAlertsUseMetricsThatExist check the rest. Objects have the names that they have by default.
func renderingOf(t *testing.T, v values) rendering {
	t.Helper()
	objects := rendering{}
	for _, o := range withHooks(t, v) {
		if o.GetKind() == "CustomResourceDefinition" {
			o.Object["spec"] = "as generated"
		}
		if o.GetKind() == "PrometheusRule" && isFile(t, o.Object["spec"], "monitoring", "alerts.yaml") {
			o.Object["spec"] = "as in files/monitoring"
		}
		if data, ok := o.Object["data"].(map[string]any); ok && data["capmaas.json"] != nil {
			data["capmaas.json"] = "as in files/monitoring"
		}
		content, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		name := o.GetName()
		override, _ := v["fullnameOverride"].(string)
		if rest, is := strings.CutPrefix(name, override+"-"); is {
			name = "capmaas-" + rest
		}
		name = o.GetKind() + " " + o.GetNamespace() + "/" + name
		if _, twice := objects[name]; twice {
			t.Errorf("the chart renders %s twice", name)
		}
		objects[name] = string(content)
	}
	return objects
}

// isFile reports whether a part of an object is what a YAML file of the chart has.
func isFile(t *testing.T, part any, path ...string) bool {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(chartDir, "files", filepath.Join(path...)))
	if err != nil {
		t.Fatal(err)
	}
	want, err := yaml.YAMLToJSON(content)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(part)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(got, want)
}

func (r rendering) whole() string {
	var documents []string
	for _, name := range slices.Sorted(maps.Keys(r)) {
		documents = append(documents, "# "+name+"\n"+r[name])
	}
	return strings.Join(documents, "---\n")
}

// differenceFrom returns the objects that are there besides the first of the others, are missing, or differ from the
// first that has them, with a line before and after each difference. It has no line numbers: what changes in all
// renderings shows once.
func (r rendering) differenceFrom(t *testing.T, others []rendering) string {
	t.Helper()
	names := maps.Clone(r)
	maps.Copy(names, others[0])
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if r[name] == others[0][name] {
			continue
		}
		at := max(0, slices.IndexFunc(others, func(o rendering) bool { return o[name] != "" }))
		out.WriteString("# " + name + "\n")
		switch r[name] {
		case "":
			out.WriteString("is missing\n")
			continue
		case others[at][name]:
			out.WriteString("as with the values of " + references[at] + "\n")
			continue
		}
		diff, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
			A: linesOf(others[at][name]), B: linesOf(r[name]), Context: 1,
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
