// SPDX-License-Identifier: Apache-2.0

// Package convert turns manifests for Spectro Cloud's provider (spectrocloud/cluster-api-provider-maas) into manifests for this one.
//
// Both have the same API group, kinds and version, but not the same fields. What a field there becomes here is in ClusterFields and
// MachineFields, and in docs/migrating.md. Nothing is guessed: a field or value whose meaning is not certain is a Problem.
package convert

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// Severity says what a Finding means for the result.
type Severity string

const (
	// Note is of what is converted, and works in another way than before, or should be known.
	Note Severity = "note"
	// Loss is of what has no equivalent and is left out, or stays and has to be changed by hand.
	Loss Severity = "loss"
	// Problem is of what can't be converted; there is no result.
	Problem Severity = "error"
)

// Finding is what there is to say about one field of one object.
type Finding struct {
	Severity Severity
	// Line is where it is in the input, counted from 1.
	Line int
	// Object is kind, namespace and name, as far as they are known.
	Object string
	// Path is the field, for example spec.template.spec.lxd; it is empty where the whole object is meant.
	Path string
	// Text says what was done, and what to do instead.
	Text string
}

// String is the finding without its line.
func (f Finding) String() string {
	parts := []string{string(f.Severity), f.Object, f.Path, f.Text}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ": ")
}

// Result is what became of a stream of documents.
type Result struct {
	// Output has the same documents in the same order; what need not change is there byte for byte. It is nil where there is a Problem.
	Output []byte
	// Findings are in the order of their lines.
	Findings []Finding
}

// Has reports whether there is a finding of this severity.
func (r Result) Has(severity Severity) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == severity })
}

// Convert converts a stream of YAML documents.
func Convert(input []byte) Result {
	var r Result
	var output bytes.Buffer
	for _, document := range split(input) {
		converted, findings := document.convert()
		output.Write(converted)
		r.Findings = append(r.Findings, findings...)
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(a.Line, b.Line) })
	if !r.Has(Problem) {
		r.Output = output.Bytes()
	}
	return r
}
