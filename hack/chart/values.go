// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// value is one entry of values.yaml.
type value struct {
	name, path string
	// about is the comment above it, in one line.
	about string
	// typeName is the name after @type, if any.
	typeName string
	// standard is the default; a table of values has children instead.
	standard any
	children []value
}

const typeMark = "@type "

// readValues reads the values in the order of the file.
func readValues(content []byte) ([]value, error) {
	document, err := yaml.Parse(string(content))
	if err != nil {
		return nil, err
	}
	var problems []error
	values := valuesIn(document.YNode(), "", &problems)
	return values, errors.Join(problems...)
}

func valuesIn(table *yaml.Node, prefix string, problems *[]error) []value {
	var values []value
	for i := 0; i+1 < len(table.Content); i += 2 {
		key, node := table.Content[i], table.Content[i+1]
		v := value{name: key.Value, path: prefix + key.Value}
		v.about, v.typeName = comment(key.HeadComment)
		if v.about == "" {
			*problems = append(*problems, fmt.Errorf("%s: no comment describes it", v.path))
		}
		switch {
		case v.typeName == "" && node.Kind == yaml.MappingNode && len(node.Content) > 0:
			v.children = valuesIn(node, v.path+".", problems)
		case v.typeName == "" && node.Kind != yaml.ScalarNode:
			*problems = append(*problems, fmt.Errorf("%s: %s has to name its type", v.path, typeMark))
		}
		if err := node.Decode(&v.standard); err != nil {
			*problems = append(*problems, fmt.Errorf("%s: %w", v.path, err))
		}
		values = append(values, v)
	}
	return values
}

// comment returns the text and the type in a comment.
func comment(head string) (about, typeName string) {
	var lines []string
	for _, line := range strings.Split(head, "\n") {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#"))
		switch name, isType := strings.CutPrefix(line, typeMark); {
		case isType:
			typeName = strings.TrimSpace(name)
		case line != "" && !strings.HasPrefix(line, "SPDX-"):
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " "), typeName
}
