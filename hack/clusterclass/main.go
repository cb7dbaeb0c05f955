// SPDX-License-Identifier: Apache-2.0

// Command variables writes the reference of a ClusterClass's variables, as Markdown, from their schemas: purpose,
// allowed values, and which machines a change replaces.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"
)

func main() {
	class := flag.String("class", "clusterclass/clusterclass-capmaas.yaml", "file with the ClusterClass")
	out := flag.String("out", "docs/variables.md", "file to write")
	flag.Parse()
	if err := run(*class, *out); err != nil {
		fmt.Fprintln(os.Stderr, "variables:", err)
		os.Exit(1)
	}
}

func run(path, out string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	class, err := readClass(content)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	reference, err := write(class)
	if err != nil {
		return err
	}
	return os.WriteFile(out, reference, 0o644)
}

// readClass finds the ClusterClass among the objects of a YAML stream.
func readClass(content []byte) (*clusterv1.ClusterClass, error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("there is no ClusterClass")
		}
		if err != nil {
			return nil, err
		}
		class := &clusterv1.ClusterClass{}
		if err := yaml.Unmarshal(document, class); err != nil {
			return nil, err
		}
		if class.Kind == "ClusterClass" {
			return class, nil
		}
	}
}
