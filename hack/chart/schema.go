// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"
)

//go:embed types.yaml
var typesFile []byte

// object is a JSON Schema, or a part of one.
type object = map[string]any

func readTypes() (object, error) {
	types := object{}
	return types, yaml.UnmarshalStrict(typesFile, &types)
}

// schemaOf makes the schema of the values: no other keys, and each value of its type. It contains the types that are in
// use; an unused type is an error.
func schemaOf(chart string, values []value, types object) ([]byte, error) {
	used := object{}
	schema, err := schemaOfTable(values, types, used)
	if err != nil {
		return nil, err
	}
	for name := range types {
		if used[name] == nil {
			err = errors.Join(err, fmt.Errorf("no value is of type %s", name))
		}
	}
	if err != nil {
		return nil, err
	}
	schema["$schema"] = "http://json-schema.org/draft-07/schema#"
	schema["title"] = "Values of the chart " + chart
	schema["definitions"] = used
	schema["properties"].(object)["global"] = object{
		"description": "Helm puts it here when the chart is a part of another one. Not used.", "type": "object",
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(schema); err != nil {
		return nil, fmt.Errorf("writing the schema: %w", err)
	}
	return out.Bytes(), nil
}

func schemaOfTable(values []value, types, used object) (object, error) {
	properties := object{}
	var problems []error
	for _, v := range values {
		schema, err := schemaOfValue(v, types, used)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		properties[v.name] = schema
	}
	return object{"type": "object", "additionalProperties": false, "properties": properties}, errors.Join(problems...)
}

func schemaOfValue(v value, types, used object) (object, error) {
	if v.typeName != "" {
		if types[v.typeName] == nil {
			return nil, fmt.Errorf("%s: types.yaml has no type %s", v.path, v.typeName)
		}
		used[v.typeName] = types[v.typeName]
		// Keys beside a reference are for people and editors; validation uses the reference alone.
		return object{"description": v.about, "$ref": "#/definitions/" + v.typeName}, nil
	}
	if v.children != nil {
		schema, err := schemaOfTable(v.children, types, used)
		if err != nil {
			return nil, err
		}
		schema["description"] = v.about
		return schema, nil
	}
	schema := object{"description": v.about}
	switch v.standard.(type) {
	case string:
		schema["type"] = "string"
	case bool:
		schema["type"] = "boolean"
	case int:
		schema["type"] = "integer"
	default:
		return nil, fmt.Errorf("%s: its default, %v, has no type: name one with %s", v.path, v.standard, typeMark)
	}
	return schema, nil
}
