// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// table is searches.yaml.
type table struct {
	// Searches find nothing.
	Searches []search `json:"searches"`
	// Guards each give a counterexample when they are taken away.
	Guards []search `json:"guards"`
	// Limits give one, and that is accepted.
	Limits []search `json:"limits"`
}

// search is one row.
type search struct {
	Name  string `json:"name,omitempty"`
	Model string `json:"model"`
	// With are the switches, without -D.
	With string `json:"with,omitempty"`
	// Guard is the switch that takes a guard away.
	Guard string `json:"guard,omitempty"`
	// Breaks is the sentence that does not hold then. Without one, Unneeded says why nothing breaks.
	Breaks   string `json:"breaks,omitempty"`
	Unneeded string `json:"unneeded,omitempty"`
	// Why is, of a guard, what goes wrong without it; of a limit, why it is accepted.
	Why string `json:"why,omitempty"`
	// Ends is an LTL formula that holds with weak fairness, instead of the sentences.
	Ends string `json:"ends,omitempty"`
	// Deep searches for any counterexample, not for a shortest one, which would take longer.
	Deep bool `json:"deep,omitempty"`
	// AnyEnd accepts that all processes wait for ever.
	AnyEnd bool `json:"anyEnd,omitempty"`
	// Full is for `make model FULL=1` alone.
	Full bool `json:"full,omitempty"`

	part string
}

func (s *search) switches() string { return strings.TrimSpace(s.Guard + " " + s.With) }

// flags are the switches, as Spin takes them.
func (s *search) flags() (flags []string) {
	for _, name := range strings.Fields(s.switches()) {
		flags = append(flags, "-D"+name)
	}
	return flags
}

// expects reports whether a counterexample is expected.
func (s *search) expects() bool { return s.Breaks != "" }

var (
	guardSwitch = regexp.MustCompile(`\b(?:ifdef|ifndef|defined)\b\s*\(?\s*(NO_\w+)`)
	sentences   = regexp.MustCompile(`(?s)mtype = \{[^}]*NeverTwo[^}]*\}`)
	sentence    = regexp.MustCompile(`(?m)^\s+([A-Z]\w+)\b`)
)

// load reads the table. It must name each guard of the models, and nothing that they do not have.
func load(dir string) ([]search, error) {
	text, err := os.ReadFile(filepath.Join(dir, "searches.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading the searches: %w", err)
	}
	t := &table{}
	if err := yaml.UnmarshalStrict(text, t); err != nil {
		return nil, fmt.Errorf("reading searches.yaml: %w", err)
	}
	sources := map[string]string{}
	files, _ := filepath.Glob(filepath.Join(dir, "*.pml"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading a model: %w", err)
		}
		sources[strings.TrimSuffix(filepath.Base(file), ".pml")] = string(text)
	}
	var all []search
	for _, part := range parts {
		for _, s := range part.of(t) {
			s.part = part.name
			all = append(all, s)
		}
	}
	return all, errors.Join(check(all, sources)...)
}

// check returns what is wrong with the table.
func check(all []search, sources map[string]string) (wrong []error) {
	names := map[string]bool{}
	for _, found := range sentence.FindAllStringSubmatch(sentences.FindString(sources["promises"]), -1) {
		names[found[1]] = true
	}
	for _, s := range all {
		if sources[s.Model] == "" {
			wrong = append(wrong, fmt.Errorf("searches.yaml: there is no model %q", s.Model))
		}
		if s.Breaks != "" && !names[s.Breaks] {
			wrong = append(wrong, fmt.Errorf("searches.yaml: promises.pml has no sentence %q", s.Breaks))
		}
		if (s.part == partGuards && (s.Breaks == "") == (s.Unneeded == "")) || (s.part == partLimits && s.Why == "") {
			wrong = append(wrong, fmt.Errorf("searches.yaml: %s %s needs the sentence that breaks, or why none does",
				s.Model, cmp.Or(s.Guard, s.With)))
		}
		for _, name := range strings.Fields(s.switches()) {
			name, _, _ = strings.Cut(name, "=")
			known := regexp.MustCompile(`\b` + name + `\b`)
			if !known.MatchString(sources[s.Model]) && !known.MatchString(sources["protocol"]) {
				wrong = append(wrong, fmt.Errorf("searches.yaml: the model %s has no switch %s", s.Model, name))
			}
		}
	}
	for model, source := range sources {
		for _, found := range guardSwitch.FindAllStringSubmatch(source, -1) {
			guard := found[1]
			if !slices.ContainsFunc(all, func(s search) bool {
				return s.Guard == guard && (s.Model == model || model == "protocol")
			}) {
				wrong = append(wrong, fmt.Errorf("searches.yaml: no search takes away the guard %s of %s.pml", guard, model))
			}
		}
	}
	return wrong
}

const (
	partSearches = "searches"
	partGuards   = "guards"
	partLimits   = "limits"
)

// parts are the parts of the table, in the order in which they are printed.
var parts = []struct {
	name, title, columns string
	of                   func(*table) []search
}{
	{partSearches, "What holds", "MODEL\tSEARCH\tFOUND\tSTATES\tDEPTH\tMB\tTIME",
		func(t *table) []search { return t.Searches }},
	{partGuards, "Each guard, taken away", "MODEL\tSWITCHES\tBREAKS\tEVENTS\tSTATES\tTIME\tWHAT GOES WRONG",
		func(t *table) []search { return t.Guards }},
	{partLimits, "What is not promised", "MODEL\tSWITCHES\tBREAKS\tEVENTS\tSTATES\tTIME\tWHY",
		func(t *table) []search { return t.Limits }},
}
