// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/capmaas/cluster-api-provider-maas/test/golden"
)

// inputs are those in testdata, and whether something in them has no equivalent.
var inputs = map[string]bool{"bare-metal": false, "virtual-machines": false, "host-cluster": false, "alpha": false, "exported": true}

func TestGoldenFiles(t *testing.T) {
	for name, loses := range inputs {
		t.Run(name, func(t *testing.T) {
			result := Convert(read(t, name+".yaml"))
			if result.Has(Loss) != loses {
				t.Errorf("something has no equivalent: %v, want %v", !loses, loses)
			}
			findings := ""
			for _, f := range result.Findings {
				findings += fmt.Sprintf("%d: %s\n", f.Line, f)
			}
			golden.Compare(t, filepath.Join("testdata", name+".findings"), findings)
			golden.Compare(t, filepath.Join("testdata", "converted", name+".yaml"), string(result.Output))
		})
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	return readFile(t, filepath.Join("testdata", name))
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestWhatIsConvertedIsNotConvertedTwice(t *testing.T) {
	for _, name := range []string{"bare-metal", "exported"} {
		input := read(t, filepath.Join("converted", name+".yaml"))
		if name == "bare-metal" {
			if again := Convert(input); !bytes.Equal(again.Output, input) {
				t.Errorf("%s changes again: %v", name, again.Findings)
			}
			continue
		}
		if again := Convert(input); !again.Has(Problem) {
			t.Errorf("%s has fields that are not Spectro Cloud's, and is converted", name)
		}
	}
}

// outcome is what becomes of the spec of one object: the findings as severity and path, and the new spec.
func outcome(t *testing.T, input string) (findings []string, spec map[string]any) {
	t.Helper()
	result := Convert([]byte(input))
	for _, f := range result.Findings {
		findings = append(findings, strings.TrimSpace(string(f.Severity)+" "+f.Path))
	}
	if result.Output == nil {
		return findings, nil
	}
	var object struct {
		Spec map[string]any `json:"spec"`
	}
	if err := yaml.Unmarshal(result.Output, &object); err != nil {
		t.Fatalf("the result is no YAML: %v\n%s", err, result.Output)
	}
	return findings, object.Spec
}

func checkOutcome(t *testing.T, findings []string, spec map[string]any, wantFindings []string, wantSpec string) {
	t.Helper()
	slices.Sort(findings)
	slices.Sort(wantFindings)
	if diff := cmp.Diff(wantFindings, findings); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	var want map[string]any
	if err := yaml.Unmarshal([]byte(wantSpec), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}
