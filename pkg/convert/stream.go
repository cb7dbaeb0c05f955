// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// document is one document of a stream: from its line --- to the next one.
type document struct {
	text []byte
	line int // of its first line, counted from 1
}

// split splits at each line that begins with ---: YAML ends even a text block there. Joined, the documents are the
// input.
func split(input []byte) []document {
	var documents []document
	start, startLine := 0, 1
	for at, line := 0, 1; at < len(input); line++ {
		if at > start && startsDocument(input[at:]) {
			documents = append(documents, document{input[start:at], startLine})
			start, startLine = at, line
		}
		next := bytes.IndexByte(input[at:], '\n')
		if next < 0 {
			break
		}
		at += next + 1
	}
	if start < len(input) {
		documents = append(documents, document{input[start:], startLine})
	}
	return documents
}

func startsDocument(rest []byte) bool {
	after, ok := bytes.CutPrefix(rest, []byte("---"))
	return ok && (len(after) == 0 || bytes.IndexByte([]byte(" \t\r\n"), after[0]) >= 0)
}

// convert returns the converted document: its own bytes if nothing changes.
func (d document) convert() ([]byte, []Finding) {
	var findings []Finding
	fail := func(line int, format string, args ...any) ([]byte, []Finding) {
		return d.text, append(findings, Finding{Severity: Problem, Line: line, Text: fmt.Sprintf(format, args...)})
	}
	decoder := yaml.NewDecoder(bytes.NewReader(d.text))
	var root, more yaml.Node
	switch err := decoder.Decode(&root); {
	case errors.Is(err, io.EOF):
		return d.text, nil // Only comments.
	case err != nil:
		return fail(d.line, "the document that begins here is not YAML (near this line of the input: %v). A template has to "+
			"be filled in first, for example with clusterctl generate yaml", d.mistake())
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return fail(d.line, "there are several documents without a line --- between them")
	}
	if len(root.Content) != 1 || isNull(root.Content[0]) {
		return d.text, nil
	}
	top := root.Content[0]
	if top.Kind != yaml.MappingNode {
		return fail(d.line+top.Line-1, "this document is not a Kubernetes object")
	}
	changed := convertObject(top, d.line-1, &findings)
	if !changed {
		return d.text, findings
	}
	text, err := encode(d.text, &root)
	if err != nil {
		return fail(d.line, "writing it: %v", err)
	}
	return text, findings
}

// mistake returns why a document is no YAML, with the line counted in the whole stream. For some errors the library
// reports the line before.
func (d document) mistake() error {
	padded := append(bytes.Repeat([]byte("\n"), d.line-1), d.text...)
	return yaml.Unmarshal(padded, &yaml.Node{})
}

// encode writes a changed document. Comments stay where they are, empty lines don't.
func encode(original []byte, root *yaml.Node) ([]byte, error) {
	var text bytes.Buffer
	if startsDocument(original) {
		text.WriteString("---\n")
	}
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if !indentsLists(root) {
		encoder.CompactSeqIndent()
	}
	err := errors.Join(encoder.Encode(root), encoder.Close())
	return text.Bytes(), err
}

// indentsLists reports whether the first list with a line for each item is further right than its key.
func indentsLists(n *yaml.Node) bool {
	var first *bool
	var visit func(*yaml.Node)
	visit = func(n *yaml.Node) {
		for i, child := range n.Content {
			isItems := n.Kind == yaml.MappingNode && i%2 == 1 && child.Kind == yaml.SequenceNode &&
				child.Style&yaml.FlowStyle == 0
			if isItems && first == nil && child.Line > 0 {
				further := child.Column > n.Content[i-1].Column
				first = &further
			}
			visit(child)
		}
	}
	visit(n)
	return first != nil && *first
}
