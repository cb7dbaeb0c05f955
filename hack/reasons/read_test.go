// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parse reads the constants of a package.
func parse(t *testing.T, constants string) ([]block, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "reasons.go"), []byte("package v1beta1\n\n"+constants), 0o600); err != nil {
		t.Fatal(err)
	}
	return read(dir)
}

func TestReasonsAreReadFromTheirComments(t *testing.T) {
	got, err := parse(t, `// # Hosts
//
// These are of LXDHosts.
const (
	// LXDFailedReason: LXD responds with an error; the
	// message has its words.
	//   - Provider: waits.
	//   - You: look into [its log](page.md#log).
	LXDFailedReason = "LXDFailed"
)

// Other constants are none.
const (
	other         = 1
	ReadyCondition = "Ready"
)

// # LXDHost
const (
	// ReachableCondition is true while LXD responds. It may be
	// asked again.
	ReachableCondition = "Reachable"
)

// # Reasons of progress
const (
	// ReadyReason: it is ready.
	ReadyReason = "Ready"
	// DeployingReason: it is being deployed.
	//   - If it stays: [wait](page.md#wait), or see [Ready](#ready)
	DeployingReason = "Deploying"
)
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []block{
		{title: "Hosts", intro: "These are of LXDHosts.", reasons: []reason{{
			name: "LXDFailed", means: "LXD responds with an error; the message has its words.", provider: "waits.",
			you: "look into [its log](page.md#log).",
		}}},
		{title: "LXDHost", conditions: []condition{{"Reachable", "LXD responds", "It may be asked again."}}},
		{title: progress, reasons: []reason{
			{name: "Ready", means: "it is ready."}, {name: "Deploying", means: "it is being deployed.", stays: "[wait](page.md#wait), or see [Ready](#ready)"},
		}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(block{}, reason{}, condition{})); diff != "" {
		t.Error(diff)
	}
	for _, text := range []string{
		"### LXDFailed\n\nLXD responds with", "- **You**: look into [its log](page.md#log).\n", "| `Deploying` | it is being deployed. | [wait](page.md#wait), or see [Ready](#ready) |\n", "| `Reachable` | LXDHost | LXD responds | It may be asked again. |\n",
	} {
		if page := string(page(got, nil)); !strings.Contains(page, text) {
			t.Errorf("the page lacks %q:\n%s", text, page)
		}
	}
	for _, text := range []string{
		`"look into its log."`, `"Reachable": "LXD responds",`, `"wait (docs/page.md#wait), or see Ready (docs/reasons.md#ready)"`,
	} {
		if source := string(table(got)); !strings.Contains(source, text) {
			t.Errorf("the table lacks %s:\n%s", text, source)
		}
	}
}

// A reason that nobody explains does not pass.
func TestReasonsThatAreNotExplainedAreRefused(t *testing.T) {
	for name, constants := range map[string]string{
		"no reasons":          "const A = 1",
		"no comment":          "// # Hosts\nconst (\n\tAReason = \"A\"\n)",
		"another's comment":   "// # Hosts\nconst (\n\t// BReason: it.\n\t//   - You: wait.\n\tAReason = \"A\"\n)",
		"no title":            "const (\n\t// AReason: it.\n\t//   - You: wait.\n\tAReason = \"A\"\n)",
		"no remedy":           "// # Hosts\nconst (\n\t// AReason: it.\n\t//   - Provider: waits.\n\tAReason = \"A\"\n)",
		"a remedy of nothing": "// # Reasons of progress\nconst (\n\t// AReason: it.\n\t//   - You: wait.\n\tAReason = \"A\"\n)",
		"no truth":            "// # LXDHost\nconst (\n\t// ACondition reports it.\n\tACondition = \"A\"\n)",
		"made of another":     "// # Hosts\nconst (\n\t// AReason: it.\n\t//   - You: wait.\n\tAReason = BReason\n)",
	} {
		if blocks, err := parse(t, constants); err == nil {
			t.Errorf("%s: it is accepted: %+v", name, blocks)
		}
	}
}
