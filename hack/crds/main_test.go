// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

const sample = `# License
---
kind: CustomResourceDefinition
metadata:
  annotations: {}
  name: things.example.com
spec:
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        properties:
          spec:
            properties:
              sizes: {items: {properties: {size: {type: string}}, type: object}, type: array}
              labels: {additionalProperties: {type: string}, type: object}
            type: object
          status:
            properties:
              since: {format: date-time, type: string}
            type: object
        type: object
    served: true
    storage: true
`

// The number rises with what an earlier schema would erase or refuse, and with nothing else.
func TestTheNumberRisesWithWhatCouldBeLost(t *testing.T) {
	dir, number := t.TempDir(), filepath.Join(t.TempDir(), "schema.yaml")
	if err := os.WriteFile(number, []byte("schema: 6\nfields: none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "things.yaml")
	for _, step := range []struct {
		name, old, with string
		want            int
	}{
		{"the first time", "", "", 7},
		{"nothing changed", "", "", 7},
		{"a description", "since: {", "since: {description: when, ", 7},
		{"a field of the status", "since: {", "until: {type: string}\n              since: {", 7},
		{"a pattern", "size: {", "size: {pattern: x, ", 7},
		{"a field of the spec", "sizes: {", "tags: {type: string}\n              sizes: {", 8},
		{"gone again", "", "", 9},
		{"a field of items", "size: {", "pool: {type: string}, size: {", 10},
		{"a version is not served", "served: true", "served: false", 11},
	} {
		crd := sample
		if step.old != "" {
			crd = strings.Replace(sample, step.old, step.with, 1)
		}
		if err := os.WriteFile(path, []byte(crd), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := run(dir, number); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		written := apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(content, &written); err != nil {
			t.Fatalf("%s: %v\n%s", step.name, err, content)
		}
		if got := written.Annotations[infrav1.SchemaAnnotation]; got != fmt.Sprint(step.want) {
			t.Errorf("%s: the number is %q, want %d", step.name, got, step.want)
		}
		status := written.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
		if since := status.Properties["since"]; since.Pattern != dateTime {
			t.Errorf("%s: the pattern of a date-time is %q", step.name, since.Pattern)
		}
	}
}
