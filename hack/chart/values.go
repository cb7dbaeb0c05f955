// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
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

const (
	tableBegin = "<!-- values: generated from values.yaml -->\n"
	tableEnd   = "<!-- end of values -->\n"
)

// withTable puts the table of values between its marks.
func withTable(readme []byte, values []value) ([]byte, error) {
	before, rest, begins := strings.Cut(string(readme), tableBegin)
	_, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		return nil, fmt.Errorf("the lines %q and %q are missing", tableBegin, tableEnd)
	}
	var table strings.Builder
	table.WriteString("\n| Value | Default | Meaning |\n|---|---|---|\n")
	if err := writeRows(&table, values); err != nil {
		return nil, err
	}
	table.WriteString("\n")
	return []byte(before + tableBegin + table.String() + tableEnd + after), nil
}

// inTable escapes what Markdown tables and HTML would interpret.
var inTable = strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;")

func writeRows(table *strings.Builder, values []value) error {
	for _, v := range values {
		standard := ""
		if v.children == nil {
			text, err := json.Marshal(v.standard)
			if err != nil {
				return fmt.Errorf("%s: %w", v.path, err)
			}
			standard = "`" + string(text) + "`"
		}
		fmt.Fprintf(table, "| `%s` | %s | %s |\n", v.path, standard, inTable.Replace(v.about))
		if err := writeRows(table, v.children); err != nil {
			return err
		}
	}
	return nil
}
