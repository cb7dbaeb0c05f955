// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"reflect"
	"strings"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// Unknown are the fields of a part of the record that this version does not know, as a JSON object, or "": a later
// manager has recorded them. They are written back with the part, and go with it. It is a text so that the parts can be
// compared. A struct that has this field, named Unknown, is such a part.
type Unknown string

// read sets what is recorded, a pointer to a part, to what a text says.
func read(text string, into any) error {
	value := reflect.ValueOf(into).Elem()
	value.SetZero()
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		value.SetZero()
		return fmt.Errorf("reading the annotation %s: %w; restore it, or remove it if MAAS has nothing of this object that "+
			"is not recorded in its spec", infrav1.RecordAnnotation, err)
	}
	keepUnknown(treeOf([]byte(text)), value)
	return nil
}

// write returns the text of what is recorded, with what is not known; "" if there is nothing to record.
func write(from any) string {
	text, _ := json.Marshal(from) // All that is recorded can be marshalled.
	if tree := treeOf(text); addUnknown(tree, reflect.ValueOf(from)) {
		text, _ = json.Marshal(tree)
	}
	if string(text) == "{}" {
		return ""
	}
	return string(text)
}

// keepUnknown stores what a value lacks of its JSON in the parts of the value. It returns that for which there is no
// place, as in a struct of the API: it is stored in the part around it.
func keepUnknown(tree any, value reflect.Value) map[string]any {
	switch value.Kind() {
	case reflect.Pointer:
		return keepUnknown(tree, value.Elem())
	case reflect.Slice:
		list, _ := tree.([]any)
		for i := range min(len(list), value.Len()) {
			keepUnknown(list[i], value.Index(i))
		}
		return nil
	case reflect.Struct:
	default:
		return nil
	}
	known, rest := map[string]reflect.Value{}, map[string]any{}
	for name, field := range fieldsOf(value) {
		known[strings.ToLower(name)] = field // They are read in upper and lower case.
	}
	object, _ := tree.(map[string]any)
	for name, inner := range object {
		if field, is := known[strings.ToLower(name)]; !is {
			rest[name] = inner
		} else if more := keepUnknown(inner, field); len(more) > 0 {
			rest[name] = more
		}
	}
	place := value.FieldByName("Unknown")
	if !place.IsValid() || len(rest) == 0 {
		return rest
	}
	text, _ := json.Marshal(rest) // It was JSON before.
	place.SetString(string(text))
	return nil
}

// addUnknown adds to the JSON of a value what its parts do not know, and reports whether that is anything.
func addUnknown(tree any, value reflect.Value) (found bool) {
	switch value.Kind() {
	case reflect.Pointer:
		return addUnknown(tree, value.Elem())
	case reflect.Slice:
		list, _ := tree.([]any)
		for i := range list {
			found = addUnknown(list[i], value.Index(i)) || found
		}
	case reflect.Struct:
		object, _ := tree.(map[string]any)
		for name, field := range fieldsOf(value) {
			found = addUnknown(object[name], field) || found
		}
		if place := value.FieldByName("Unknown"); place.IsValid() && place.String() != "" {
			merge(object, treeOf([]byte(place.String())))
			return true
		}
	}
	return found
}

// merge adds to a JSON object the fields of another one that it lacks, also in the objects in it.
func merge(object map[string]any, more any) {
	rest, _ := more.(map[string]any)
	for name, value := range rest {
		inner, is := object[name].(map[string]any)
		if is {
			merge(inner, value)
		} else if _, known := object[name]; !known {
			object[name] = value
		}
	}
}

// fieldsOf yields the fields of a struct and their names in JSON.
func fieldsOf(value reflect.Value) iter.Seq2[string, reflect.Value] {
	return func(yield func(string, reflect.Value) bool) {
		for _, field := range reflect.VisibleFields(value.Type()) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "" && name != "-" && !yield(name, value.FieldByIndex(field.Index)) {
				return
			}
		}
	}
}

// treeOf returns a JSON text as maps, lists and values; nil if it is none.
func treeOf(text []byte) (tree any) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	_ = decoder.Decode(&tree)
	return tree
}
