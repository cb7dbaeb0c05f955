// SPDX-License-Identifier: Apache-2.0

// Command crds completes the CRDs that controller-gen wrote.
//
// Each date-time and each quantity gets a pattern that Go's types can read. What they can't read, the API server would
// store all the same, and one such object makes each list of its kind fail.
//
// Each CRD gets the number of the schema as an annotation. It rises with each change by which an earlier schema would
// erase, or refuse, what a later one has stored. A policy of the chart lets no CRD go back to a lower number.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"sigs.k8s.io/yaml"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

func main() {
	dir := flag.String("dir", "", "directory of the CRDs")
	number := flag.String("schema", "hack/crds/schema.yaml", "file with the number of the schema")
	flag.Parse()
	if err := run(*dir, *number); err != nil {
		fmt.Fprintln(os.Stderr, "crds:", err)
		os.Exit(1)
	}
}

func run(dir, numberFile string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(paths) == 0 {
		return fmt.Errorf("no CRDs in %q (%w)", dir, err)
	}
	headers, crds := make([][]byte, len(paths)), make([]object, len(paths))
	for i, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		header, body, _ := bytes.Cut(content, []byte(separator))
		if err := yaml.Unmarshal(body, &crds[i]); err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		headers[i] = header
	}
	number, err := numberOf(crds, numberFile)
	if err != nil {
		return err
	}
	for i, path := range paths {
		for _, version := range versionsOf(crds[i]) {
			addPatterns(schemaOf(version))
		}
		crds[i].object("metadata").object("annotations")[infrav1.SchemaAnnotation] = strconv.Itoa(number)
		body, err := yaml.Marshal(crds[i])
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, slices.Concat(headers[i], []byte(separator), body), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// separator is between the license and the CRD.
const separator = "---\n"

// schemaNumber is the number of the schema, and what it was given for.
type schemaNumber struct {
	Schema int    `json:"schema"`
	Fields string `json:"fields"`
}

const numberHeader = `# SPDX-License-Identifier: Apache-2.0
#
# Written by make generate. The number rises with each change of the fields of a spec and of the versions, whose hash is
# below.
`

// numberOf returns the number in the file, or the next one, which it writes there, if the CRDs differ in what counts.
func numberOf(crds []object, file string) (int, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	number := schemaNumber{}
	if err := yaml.UnmarshalStrict(content, &number); err != nil {
		return 0, fmt.Errorf("reading %s: %w", file, err)
	}
	hash := sha256.New()
	for _, crd := range crds {
		for _, line := range counted(crd) {
			_, _ = fmt.Fprintln(hash, line) // A hash returns no error.
		}
	}
	fields := hex.EncodeToString(hash.Sum(nil))
	if fields == number.Fields {
		return number.Schema, nil
	}
	number = schemaNumber{Schema: number.Schema + 1, Fields: fields}
	written, err := yaml.Marshal(number)
	if err != nil {
		return 0, err
	}
	return number.Schema, os.WriteFile(file, append([]byte(numberHeader), written...), 0o644)
}
