// SPDX-License-Identifier: Apache-2.0

// Command chart generates from values.yaml: values.schema.json, with which Helm refuses unknown values.
//
// Each value has a comment above it that describes it. Its type is that of its default, or the one in types.yaml that
// the last line of the comment names: `# @type NAME`.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	dir := flag.String("chart", "charts/capmaas", "directory of the chart")
	flag.Parse()
	if err := run(*dir); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	content, err := os.ReadFile(filepath.Join(dir, "values.yaml"))
	if err != nil {
		return err
	}
	values, err := readValues(content)
	if err != nil {
		return fmt.Errorf("reading values.yaml: %w", err)
	}
	types, err := readTypes()
	if err != nil {
		return fmt.Errorf("reading types.yaml: %w", err)
	}
	schema, err := schemaOf(filepath.Base(dir), values, types)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "values.schema.json"), schema, 0o644)
}
