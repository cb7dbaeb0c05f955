// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// maxShown bounds what is shown of one thing.
const maxShown = 400

// Remains says what is different in MAAS, given its State before and after: a line for each thing that came, went or
// changed. Nothing means that both are equal byte for byte.
func Remains(before, after []byte) ([]string, error) {
	if bytes.Equal(before, after) {
		return nil, nil
	}
	then, err := things(before)
	if err != nil {
		return nil, err
	}
	now, err := things(after)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, section := range sections(then, now) {
		lines = append(lines, lacking("- ", section, then[section], now[section])...)
		lines = append(lines, lacking("+ ", section, now[section], then[section])...)
	}
	if len(lines) == 0 {
		lines = []string{"the order or the form of what MAAS keeps"}
	}
	return lines, nil
}

// things are the elements of each section of a state, as text.
func things(state []byte) (map[string][]string, error) {
	sections := map[string]json.RawMessage{}
	if err := json.Unmarshal(state, &sections); err != nil {
		return nil, fmt.Errorf("reading the state of MAAS: %w", err)
	}
	out := map[string][]string{}
	for section, raw := range sections {
		list := []json.RawMessage{}
		if err := json.Unmarshal(raw, &list); err != nil {
			list = []json.RawMessage{raw} // no list: one thing
		}
		for _, element := range list {
			compact := &bytes.Buffer{}
			if err := json.Compact(compact, element); err != nil {
				return nil, fmt.Errorf("reading the state of MAAS: %w", err)
			}
			out[section] = append(out[section], compact.String())
		}
	}
	return out, nil
}

func sections(a, b map[string][]string) []string {
	return slices.Compact(slices.Sorted(func(yield func(string) bool) {
		for _, names := range []map[string][]string{a, b} {
			for name := range maps.Keys(names) {
				if !yield(name) {
					return
				}
			}
		}
	}))
}

// lacking are the things that are in one list and not in the other.
func lacking(sign, section string, these, others []string) []string {
	var lines []string
	for _, thing := range these {
		if !slices.Contains(others, thing) {
			lines = append(lines, sign+section+": "+thing[:min(len(thing), maxShown)])
		}
	}
	return lines
}
