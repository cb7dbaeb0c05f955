// SPDX-License-Identifier: Apache-2.0

// Package convert turns manifests for Spectro Cloud's provider (spectrocloud/cluster-api-provider-maas) into manifests
// for this one.
//
// Both have the same API group, kinds and version, but not the same fields. ClusterFields, MachineFields and
// docs/migrating.md list the equivalent of each field. Nothing is guessed: a field or value whose meaning is not
// certain is a Problem.
package convert

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// Severity is what a Finding means for the result.
type Severity string

const (
	// Note is for a field that is converted, but works in another way than before, or is worth knowing.
	Note Severity = "note"
	// Loss is for a field that has no equivalent and is left out, or that stays and has to be changed by hand.
	Loss Severity = "loss"
	// Problem is for a field that can't be converted; there is no result.
	Problem Severity = "error"
)

// Finding is a message about one field of one object.
type Finding struct {
	Severity Severity
	// Line is its line in the input, counted from 1.
	Line int
	// Object is kind, namespace and name, as far as they are known.
	Object string
	// Path is the field, for example spec.template.spec.lxd; empty for the whole object.
	Path string
	// Text is what was done, and what to do instead.
	Text string
}

// String returns the finding without its line.
func (f Finding) String() string {
	parts := []string{string(f.Severity), f.Object, f.Path, f.Text}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ": ")
}

// Result is the result of converting a stream of documents.
type Result struct {
	// Output has the same documents in the same order; unchanged documents are identical byte for byte. It is nil if
	// there is a Problem.
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
