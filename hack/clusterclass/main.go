// SPDX-License-Identifier: Apache-2.0

// Command clusterclass writes those fields of variables into the ClusterClass capmaas that an object has, too, and what
// is made from it: the classes of other distributions, which have their own templates in place of kubeadm's, and the
// reference of the variables, as Markdown, with purpose, allowed values, and which machines a change replaces.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"
)

func main() {
	crds := flag.String("crds", "charts/capmaas/files/crds", "directory of the CRDs")
	dir := flag.String("dir", "clusterclass", "directory of the ClusterClasses")
	out := flag.String("out", "docs/variables.md", "file for the reference of the variables")
	flag.Parse()
	if err := run(*crds, *dir, *out); err != nil {
		fmt.Fprintln(os.Stderr, "clusterclass:", err)
		os.Exit(1)
	}
}

func run(crds, dir, out string) error {
	path := filepath.Join(dir, "clusterclass-capmaas.yaml")
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if content, err = fill(content, crds); err != nil {
		return fmt.Errorf("filling in %s: %w", path, err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return err
	}
	class, err := readClass(content)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	distributions, err := writeDistributions(dir, content)
	if err != nil {
		return err
	}
	reference, err := write(class, distributions)
	if err != nil {
		return err
	}
	return os.WriteFile(out, reference, 0o644)
}

const generated = `# SPDX-License-Identifier: Apache-2.0

# Generated from clusterclass-capmaas.yaml and distributions/%s by hack/clusterclass; do not edit.
`

// writeDistributions writes a file with the class of each distribution, and returns them.
func writeDistributions(dir string, base []byte) ([]*Distribution, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "distributions", "*.yaml"))
	if err != nil {
		return nil, err
	}
	var all []*Distribution
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		d, err := readDistribution(content)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		file, err := d.file(base, filepath.Base(path))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "clusterclass-"+d.Name+".yaml"), file, 0o644); err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// file is the class with its templates, as YAML.
func (d *Distribution) file(base []byte, from string) ([]byte, error) {
	documents, err := split(base)
	if err != nil {
		return nil, err
	}
	read, err := objects(documents)
	if err != nil {
		return nil, err
	}
	derived, err := d.derive(read)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, generated, from)
	for _, o := range derived {
		text, err := yaml.Marshal(o)
		if err != nil {
			return nil, err
		}
		b.WriteString("---\n")
		b.Write(text)
	}
	return b.Bytes(), nil
}

// split returns the documents of a YAML stream.
func split(content []byte) ([][]byte, error) {
	var documents [][]byte
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, err
		}
		documents = append(documents, document)
	}
}

func objects(documents [][]byte) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, document := range documents {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &o.Object); err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

// readClass finds the ClusterClass among the objects of a YAML stream.
func readClass(content []byte) (*clusterv1.ClusterClass, error) {
	documents, err := split(content)
	if err != nil {
		return nil, err
	}
	read, err := objects(documents)
	if err != nil {
		return nil, err
	}
	return classOf(read)
}

// classOf finds the ClusterClass among objects.
func classOf(all []*unstructured.Unstructured) (*clusterv1.ClusterClass, error) {
	for _, o := range all {
		if o.GetKind() != "ClusterClass" {
			continue
		}
		text, err := o.MarshalJSON()
		if err != nil {
			return nil, err
		}
		class := &clusterv1.ClusterClass{}
		return class, yaml.UnmarshalStrict(text, class)
	}
	return nil, errors.New("there is no ClusterClass")
}
