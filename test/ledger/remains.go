// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
)

// maxShown bounds what is shown of one object.
const maxShown = 1000

// Remains returns the differences in MAAS between two of its States: a line for each object that was added, removed or
// changed, with the changed fields. Nothing means that what lasts in both is equal byte for byte, except for the subnets
// that MAAS makes for the pods of VM hosts, and keeps.
func Remains(before, after []byte) ([]string, error) {
	for _, state := range []*[]byte{&before, &after} {
		lasting, err := Lasting(*state)
		if err != nil {
			return nil, err
		}
		*state = lasting
	}
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
	same := true
	for _, section := range sections(then, now) {
		gone, come := without(then[section], now[section]), without(now[section], then[section])
		same = same && len(gone)+len(come) == 0
		if section == "subnets" {
			come = slices.DeleteFunc(come, podSubnet.MatchString)
		}
		for _, thing := range gone {
			was, is := thing, ""
			if i := slices.IndexFunc(come, func(other string) bool { return identity(other) == identity(thing) }); i >= 0 {
				was, is = differing(thing, come[i])
				come = slices.Delete(come, i, i+1)
			}
			lines = append(lines, line("- ", section, was))
			if is != "" {
				lines = append(lines, line("+ ", section, is))
			}
		}
		for _, thing := range come {
			lines = append(lines, line("+ ", section, thing))
		}
	}
	if same {
		lines = []string{"the order or the form of what MAAS keeps"}
	}
	return lines, nil
}

// podSubnet matches a subnet of the pods that the sandbox's nodes have.
var podSubnet = regexp.MustCompile(`"cidr":"(10\.244|10\.0|192\.168)\.`)

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

// without are the things that are in one list and not in the other.
func without(these, others []string) []string {
	return slices.DeleteFunc(slices.Clone(these), func(thing string) bool { return slices.Contains(others, thing) })
}

func line(sign, section, thing string) string {
	return sign + section + ": " + thing[:min(len(thing), maxShown)]
}

// identity returns what identifies an object, whatever else changes: its URL, or the object itself if it has none.
func identity(thing string) string {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(thing), &fields); err != nil || fields["resource_uri"] == nil {
		return thing
	}
	return string(fields["resource_uri"])
}

// differing returns the fields of two objects that differ, and those that identify them.
func differing(a, b string) (ofA, ofB string) {
	var then, now any
	if json.Unmarshal([]byte(a), &then) != nil || json.Unmarshal([]byte(b), &now) != nil {
		return a, b
	}
	then, now = distinct(then, now)
	one, err1 := json.Marshal(then)
	other, err2 := json.Marshal(now)
	if err1 != nil || err2 != nil {
		return a, b
	}
	return string(one), string(other)
}

// distinct removes from two values what is equal in both, as deep as they have the same form.
func distinct(a, b any) (ofA, ofB any) {
	then, isObject := a.(map[string]any)
	now, both := b.(map[string]any)
	if isObject && both {
		for name, value := range then {
			other, there := now[name]
			switch {
			case !there || name == "resource_uri":
			case reflect.DeepEqual(value, other):
				delete(then, name)
				delete(now, name)
			default:
				then[name], now[name] = distinct(value, other)
			}
		}
		return then, now
	}
	list, isList := a.([]any)
	others, both := b.([]any)
	switch {
	case !isList || !both:
		return a, b
	case len(list) != len(others):
		return notIn(list, others), notIn(others, list)
	}
	for i := range list {
		list[i], others[i] = distinct(list[i], others[i])
	}
	return a, b
}

// notIn are the values of one list that are not in the other.
func notIn(list, others []any) any {
	return slices.DeleteFunc(slices.Clone(list), func(value any) bool {
		return slices.ContainsFunc(others, func(other any) bool { return reflect.DeepEqual(value, other) })
	})
}
