// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	textTag   = "!!str"
	numberTag = "!!int"
	boolTag   = "!!bool"
	nullTag   = "!!null"
)

// decimal is an unambiguous number: 010 is 8 for some parsers, and 10 for others.
var decimal = regexp.MustCompile(`^(0|[1-9][0-9]{0,9})$`)

// object is an object that is being converted.
type object struct {
	name     string
	line     int // of the line before its document
	changed  bool
	findings *[]Finding
}

// mapping is a part of an object: values by key; the zero value has none.
type mapping struct {
	*object
	node *yaml.Node
	path string
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == nullTag }

// index returns the position of a key's value among the node's contents, or -1.
func (m mapping) index(key string) int {
	for i := 0; m.node != nil && i+1 < len(m.node.Content); i += 2 {
		if m.node.Content[i].Value == key {
			return i + 1
		}
	}
	return -1
}

// get returns the value of a key, or nil.
func (m mapping) get(key string) *yaml.Node {
	if i := m.index(key); i > 0 {
		return m.node.Content[i]
	}
	return nil
}

func (m mapping) has(key string) bool { return m.index(key) > 0 }

// remove removes a key, if it exists.
func (m mapping) remove(key string) {
	if i := m.index(key); i > 0 {
		m.node.Content = slices.Delete(m.node.Content, i-1, i+1)
		m.changed = true
	}
}

// set sets the value of a key; a new key is the last one.
func (m mapping) set(key string, value *yaml.Node) {
	m.changed = true
	if i := m.index(key); i > 0 {
		value.LineComment, value.Line = m.node.Content[i].LineComment, m.node.Content[i].Line
		m.node.Content[i] = value
		return
	}
	m.node.Content = append(m.node.Content, scalar(textTag, key), value)
}

// rename gives a key another name and value, in the same place.
func (m mapping) rename(key, to string, value *yaml.Node) {
	m.set(key, value)
	i := m.index(key)
	m.node.Content[i-1].Value = to
}

func scalar(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

// pairs makes a mapping of strings.
func pairs(keysAndValues ...string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i, text := range keysAndValues {
		if i%2 == 1 && text == "" { // A key without a value is left out.
			n.Content = n.Content[:len(n.Content)-1]
			continue
		}
		n.Content = append(n.Content, scalar(textTag, text))
	}
	return n
}

func (m mapping) report(severity Severity, key, format string, args ...any) {
	line, path := m.node.Line, m.path
	if i := m.index(key); i > 0 && m.node.Content[i-1].Line > 0 { // A new one has no line.
		line = m.node.Content[i-1].Line
	}
	if key != "" {
		path = strings.TrimPrefix(path+"."+key, ".")
	}
	*m.findings = append(*m.findings, Finding{severity, m.line + line, m.name, path, fmt.Sprintf(format, args...)})
}

func (m mapping) note(key, format string, args ...any)    { m.report(Note, key, format, args...) }
func (m mapping) problem(key, format string, args ...any) { m.report(Problem, key, format, args...) }

// lose leaves a field out, and reports that.
func (m mapping) lose(key, format string, args ...any) {
	if m.has(key) {
		m.report(Loss, key, "left out: "+format, args...)
		m.remove(key)
	}
}

// check refuses unknown and repeated keys. Keys without a value are removed: they mean nothing.
func (m mapping) check(known []string) {
	var seen, empty []string
	for i := 0; i+1 < len(m.node.Content); i += 2 {
		key, value := m.node.Content[i], m.node.Content[i+1]
		switch {
		case slices.Contains(seen, key.Value):
			m.problem(key.Value, "it is there twice")
		case !slices.Contains(known, key.Value):
			m.problem(key.Value, "Spectro Cloud's provider has no such field here%s", hint(key.Value))
		case isNull(value):
			empty = append(empty, key.Value)
		}
		seen = append(seen, key.Value)
	}
	for _, key := range empty {
		m.remove(key)
	}
}

// hint returns what to do about an unknown field: it may be one of this provider's.
func hint(key string) string {
	if slices.Contains([]string{"provisioningMode", "dynamicLXD", "lxdControlPlaneCluster", "virtualIP", "credentialsRef",
		"staticIPPoolRef", "release"}, key) {
		return "; this one has: was the object converted before?"
	}
	return "; remove it, or correct it"
}

// child returns the mapping that is the value of a key.
func (m mapping) child(key string) (mapping, bool) {
	n := m.get(key)
	switch {
	case n == nil:
		return mapping{}, false
	case n.Kind != yaml.MappingNode:
		m.problem(key, "it has to be a mapping")
		return mapping{}, false
	}
	return mapping{m.object, n, strings.TrimPrefix(m.path+"."+key, ".")}, true
}

// fillIn says what is to be done first about a value with variables.
func fillIn(value string) string {
	if strings.Contains(value, "${") {
		return "; fill in the variables first, for example with clusterctl generate yaml"
	}
	return ""
}

// choice lists what a value may be.
func choice(of []string) string {
	return strings.Join(of[:len(of)-1], ", ") + " or " + of[len(of)-1]
}

// plain returns a value with the tag.
func (m mapping) plain(key, tag, wanted string) (string, bool) {
	n := m.get(key)
	switch {
	case n == nil:
		return "", false
	case n.Kind != yaml.ScalarNode || n.ShortTag() != tag:
		m.problem(key, "it has to be %s%s", wanted, fillIn(n.Value))
		return "", false
	}
	return n.Value, true
}

// text returns a string that is not empty: an empty one means the same as none, and is removed.
func (m mapping) text(key string) (string, bool) {
	value, ok := m.plain(key, textTag, "a text, with quotes where YAML sees something else")
	if ok && value == "" {
		m.remove(key)
		return "", false
	}
	return value, ok
}

// number returns a number of 1 or more: 0 means the same as none, and is removed.
func (m mapping) number(key string) (int, bool) {
	value, ok := m.plain(key, numberTag, "a whole number without quotes")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil || !decimal.MatchString(value) {
		m.problem(key, "it has to be a whole number from 0 to %d in digits only", int32(1<<31-1))
		return 0, false
	}
	if n == 0 {
		m.remove(key)
	}
	return int(n), n > 0
}

// flag returns true or false; it is absent if it is neither.
func (m mapping) flag(key string) (value, ok bool) {
	text, ok := m.plain(key, boolTag, "true or false")
	return strings.EqualFold(text, "true"), ok
}

// names returns a list of strings. Empty and repeated ones mean nothing, and are removed; so is an empty list.
func (m mapping) names(key string) []string {
	n := m.get(key)
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		m.problem(key, "it has to be a list")
		return nil
	}
	var names []string
	var kept []*yaml.Node
	for _, item := range n.Content {
		if item.Kind != yaml.ScalarNode || item.ShortTag() != textTag {
			m.problem(key, "each item has to be a text, with quotes where YAML sees something else")
			return nil
		}
		if item.Value != "" && !slices.Contains(names, item.Value) {
			names, kept = append(names, item.Value), append(kept, item)
		}
	}
	if len(kept) == 0 {
		m.remove(key)
		return nil
	}
	if len(kept) < len(n.Content) {
		n.Content, m.changed = kept, true
	}
	return names
}
