// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Unknown are the fields of a part of the record that this version does not know, as a JSON object, or "": a later
// manager has recorded them. They are written back with the part, and go with it. It is a text so that the parts can be
// compared.
type Unknown string

type fields = map[string]json.RawMessage

// read reads a part of the record into known, a pointer to a struct without methods of its own, and keeps the rest.
func (u *Unknown) read(text []byte, known any) error {
	if err := json.Unmarshal(text, known); err != nil {
		return err //nolint:wrapcheck // encoding/json adds where it is; Of says what was read.
	}
	*u = ""
	if rest := unknownIn(text, reflect.TypeOf(known)); len(rest) > 0 {
		kept, _ := json.Marshal(rest) // It was JSON before.
		*u = Unknown(kept)
	}
	return nil
}

// write returns a part of the record with the fields that are not known.
func (u Unknown) write(known any) ([]byte, error) {
	text, err := json.Marshal(known)
	if err != nil || u == "" {
		return text, err //nolint:wrapcheck // as for read
	}
	return merge(text, []byte(u))
}

// merge adds to a JSON object the fields of another one that it lacks, also in the objects in it.
func merge(text, more []byte) ([]byte, error) {
	all, rest := fields{}, fields{}
	if err := errors.Join(json.Unmarshal(text, &all), json.Unmarshal(more, &rest)); err != nil {
		return nil, fmt.Errorf("adding the fields of a later version: %w", err)
	}
	for name, value := range rest {
		here, known := all[name]
		switch {
		case !known:
			all[name] = value
		case isObject(here) && isObject(value):
			merged, err := merge(here, value)
			if err != nil {
				return nil, err
			}
			all[name] = merged
		}
	}
	return json.Marshal(all) //nolint:wrapcheck // All of it was JSON before.
}

// unknownIn returns the fields of a JSON object that a struct lacks. Of a struct of the API, which has no place for
// them, it returns those that the object in it has more.
func unknownIn(text []byte, of reflect.Type) fields {
	all, found := fields{}, fields{}
	if !isObject(text) || json.Unmarshal(text, &all) != nil {
		return nil
	}
	known := fieldsOf(of)
	for name, value := range all {
		field, is := known[strings.ToLower(name)]
		if !is {
			found[name] = value
			continue
		}
		if inner := inside(field); inner != nil {
			if more := unknownIn(value, inner); len(more) > 0 {
				found[name], _ = json.Marshal(more) // It was JSON before.
			}
		}
	}
	return found
}

var ownReader = reflect.TypeFor[json.Unmarshaler]()

// inside returns the struct that a field holds, if that does not read itself; otherwise nil.
func inside(field reflect.Type) reflect.Type {
	for field.Kind() == reflect.Pointer {
		field = field.Elem()
	}
	if field.Kind() != reflect.Struct || reflect.PointerTo(field).Implements(ownReader) {
		return nil
	}
	return field
}

// fieldsOf returns the types of a struct's fields by their names in JSON, which are read in upper and lower case.
func fieldsOf(of reflect.Type) map[string]reflect.Type {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	known := map[string]reflect.Type{}
	for _, field := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			known[strings.ToLower(name)] = field.Type
		}
	}
	return known
}

func isObject(text []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) }

// MarshalJSON writes what is known and what is not.
func (d Data) MarshalJSON() ([]byte, error) {
	type known Data
	return d.write(known(d))
}

// UnmarshalJSON reads what is known and what is not.
func (d *Data) UnmarshalJSON(text []byte) error {
	type known Data
	return d.read(text, (*known)(d))
}

// MarshalJSON writes what is known and what is not.
func (p Pending) MarshalJSON() ([]byte, error) {
	type known Pending
	return p.write(known(p))
}

// UnmarshalJSON reads what is known and what is not.
func (p *Pending) UnmarshalJSON(text []byte) error {
	type known Pending
	return p.read(text, (*known)(p))
}

// MarshalJSON writes what is known and what is not.
func (p Phase) MarshalJSON() ([]byte, error) {
	type known Phase
	return p.write(known(p))
}

// UnmarshalJSON reads what is known and what is not.
func (p *Phase) UnmarshalJSON(text []byte) error {
	type known Phase
	return p.read(text, (*known)(p))
}

// MarshalJSON writes what is known and what is not.
func (c Cleanup) MarshalJSON() ([]byte, error) {
	type known Cleanup
	return c.write(known(c))
}

// UnmarshalJSON reads what is known and what is not.
func (c *Cleanup) UnmarshalJSON(text []byte) error {
	type known Cleanup
	return c.read(text, (*known)(c))
}

// MarshalJSON writes what is known and what is not.
func (s StorageLayout) MarshalJSON() ([]byte, error) {
	type known StorageLayout
	return s.write(known(s))
}

// UnmarshalJSON reads what is known and what is not.
func (s *StorageLayout) UnmarshalJSON(text []byte) error {
	type known StorageLayout
	return s.read(text, (*known)(s))
}

// MarshalJSON writes what is known and what is not.
func (m KeptMachine) MarshalJSON() ([]byte, error) {
	type known KeptMachine
	return m.write(known(m))
}

// UnmarshalJSON reads what is known and what is not.
func (m *KeptMachine) UnmarshalJSON(text []byte) error {
	type known KeptMachine
	return m.read(text, (*known)(m))
}

// MarshalJSON writes what is known and what is not.
func (v LeftVM) MarshalJSON() ([]byte, error) {
	type known LeftVM
	return v.write(known(v))
}

// UnmarshalJSON reads what is known and what is not.
func (v *LeftVM) UnmarshalJSON(text []byte) error {
	type known LeftVM
	return v.read(text, (*known)(v))
}
