// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"
)

// FuzzConvert reads any stream: all of it is in the output, and the API server can read what was converted as our
// types.
func FuzzConvert(f *testing.F) {
	for name := range inputs {
		content, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
		for _, d := range split(content) {
			f.Add(d.text)
		}
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		var joined []byte
		for _, d := range split(input) {
			joined = append(joined, d.text...)
		}
		if !bytes.Equal(joined, input) {
			t.Fatal("the documents are not the input")
		}
		result := Convert(input)
		if again := Convert(input); !bytes.Equal(again.Output, result.Output) || !slices.Equal(again.Findings, result.Findings) {
			t.Error("it is converted in two ways")
		}
		lines := 1
		for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} { // YAML knows them all.
			lines += bytes.Count(input, []byte(end))
		}
		for _, finding := range result.Findings {
			if finding.Line < 1 || finding.Line > lines {
				t.Errorf("line %d of %d: %s", finding.Line, lines, finding)
			}
		}
		if result.Has(Problem) {
			if result.Output != nil {
				t.Error("there is an error and a result")
			}
			return
		}
		if before, after := len(split(input)), len(split(result.Output)); before != after {
			t.Errorf("%d documents become %d", before, after)
		}
		for _, d := range split(result.Output) {
			var node yaml.Node
			if err := yaml.Unmarshal(d.text, &node); err != nil {
				t.Errorf("the result is no YAML: %v", err)
			}
		}
	})
}
