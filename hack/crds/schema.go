// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
)

// object is a part of a CRD.
type object map[string]any

// object returns the object at a key; nil if there is none.
func (o object) object(key string) object {
	switch value := o[key].(type) {
	case object:
		return value
	case map[string]any:
		return value
	}
	return nil
}

func versionsOf(crd object) []object {
	list, _ := crd.object("spec")["versions"].([]any)
	versions := make([]object, 0, len(list))
	for _, version := range list {
		if version, ok := version.(map[string]any); ok {
			versions = append(versions, version)
		}
	}
	return versions
}

func schemaOf(version object) object { return version.object("schema").object("openAPIV3Schema") }

// The dates that there are, by the last days of months.
const (
	to28     = `(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])`
	to30     = `(0[13-9]|1[0-2])-(29|30)`
	to31     = `(0[13578]|1[02])-31`
	leapYear = `([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)`
	date     = `([0-9]{4}-(` + to28 + `|` + to30 + `|` + to31 + `)|` + leapYear + `-02-29)`
	clock    = `([01][0-9]|2[0-3]):[0-5][0-9]`
)

const (
	// dateTime is a date-time of RFC 3339. The format date-time of the API server also takes small letters, any character
	// before the fraction, and any offset.
	dateTime = `^` + date + `T` + clock + `:[0-5][0-9]([.][0-9]{1,9})?(Z|[+-]` + clock + `)$`

	// quantity differs from the pattern of controller-gen in the exponent: Go takes no fractions there, and overflows.
	quantity = `^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?$`

	// quantityLength bounds what the digits of a quantity cost whoever reads it.
	quantityLength = 64
)

// addPatterns limits the date-times and quantities in a schema to what Go reads.
func addPatterns(schema object) {
	if schema["format"] == "date-time" {
		schema["pattern"] = dateTime
	}
	if schema["x-kubernetes-int-or-string"] == true && schema["pattern"] != nil {
		schema["pattern"], schema["maxLength"] = quantity, quantityLength
	}
	for _, below := range parts(schema) {
		addPatterns(below)
	}
}

// parts returns the schemas in a schema: of its fields, by their names, of its items and of its other values.
func parts(schema object) map[string]object {
	all := map[string]object{}
	for name := range schema.object("properties") {
		all["."+name] = schema.object("properties").object(name)
	}
	for key, name := range map[string]string{"items": "[]", "additionalProperties": "{}"} {
		if part := schema.object(key); part != nil {
			all[name] = part
		}
	}
	return all
}

// counted returns, line by line, what an earlier schema could erase or refuse: versions, and the fields of the spec.
// A status does not count, because the manager writes it again.
func counted(crd object) []string {
	lines := []string{fmt.Sprint(crd.object("metadata")["name"])}
	for _, version := range versionsOf(crd) {
		lines = append(lines, fmt.Sprint(version["name"], " served ", version["served"], " stored ", version["storage"]))
		lines = append(lines, fieldsOf("spec", schemaOf(version).object("properties").object("spec"))...)
	}
	return lines
}

// fieldsOf returns the paths of all fields in a schema, in the order of their names.
func fieldsOf(path string, schema object) []string {
	fields, below := []string{path}, parts(schema)
	for _, name := range slices.Sorted(maps.Keys(below)) {
		fields = append(fields, fieldsOf(path+name, below[name])...)
	}
	return fields
}
