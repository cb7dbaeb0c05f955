// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sample = `# SPDX-License-Identifier: Apache-2.0

# Of the
# first table.
first:
  # How many.
  # @type positive
  count: 3
  # Whether | or not <really>.
  on: true
# What is free.
# @type stringMap
labels:
  a: b
`

var sampleTypes = object{
	"positive":  object{"type": "integer", "minimum": 1},
	"stringMap": object{"type": "object"},
}

func TestSchemaIsStrictAndNamesTypes(t *testing.T) {
	values, err := readValues([]byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	content, err := schemaOf("sample", values, sampleTypes)
	if err != nil {
		t.Fatal(err)
	}
	got := object{}
	if err := json.Unmarshal(content, &got); err != nil {
		t.Fatal(err)
	}
	want := object{
		"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart sample",
		"type": "object", "additionalProperties": false,
		"definitions": object{
			"positive":  object{"type": "integer", "minimum": 1.0},
			"stringMap": object{"type": "object"},
		},
		"properties": object{
			"first": object{
				"description": "Of the first table.", "type": "object", "additionalProperties": false,
				"properties": object{
					"count": object{"description": "How many.", "$ref": "#/definitions/positive"},
					"on":    object{"description": "Whether | or not <really>.", "type": "boolean"},
				},
			},
			"labels": object{"description": "What is free.", "$ref": "#/definitions/stringMap"},
			"global": got["properties"].(object)["global"],
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("schema (-want +got):\n%s", diff)
	}
}

func TestIncompleteValuesAreRefused(t *testing.T) {
	for name, tt := range map[string]struct{ values, path string }{
		"no comment":          {"a: 1\n", "a"},
		"no comment inside":   {"# A.\na:\n  b: 1\n", "a.b"},
		"list without a type": {"# A.\na: []\n", "a"},
		"map without a type":  {"# A.\na: {}\n", "a"},
		"null without a type": {"# A.\na:\n", "a"},
		"unknown type":        {"# A.\n# @type other\na: 1\n", "a"},
		"unused type":         {"# A.\n# @type positive\na: 1\n", "stringMap"},
	} {
		t.Run(name, func(t *testing.T) {
			values, err := readValues([]byte(tt.values))
			if err == nil {
				_, err = schemaOf("sample", values, sampleTypes)
			}
			if err == nil || !strings.Contains(err.Error(), tt.path) {
				t.Errorf("got error %v, want one that names %s", err, tt.path)
			}
		})
	}
}
