// SPDX-License-Identifier: Apache-2.0

package v1beta1_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func readCRDs(t *testing.T) []apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(crds, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) != 7 {
		t.Fatalf("got %d CRDs in %s, want 7", len(paths), crds)
	}
	var read []apiextensionsv1.CustomResourceDefinition
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		crd := apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(content, &crd); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		read = append(read, crd)
	}
	return read
}

// `kubectl explain` has something to say about each field, and each rule says what is wrong when it is broken.
func TestEverythingIsDescribed(t *testing.T) {
	for _, crd := range readCRDs(t) {
		for _, version := range crd.Spec.Versions {
			checkDescribed(t, crd.Spec.Names.Kind, *version.Schema.OpenAPIV3Schema)
			for _, column := range version.AdditionalPrinterColumns {
				if column.Description == "" {
					t.Errorf("%s: column %s has no description", crd.Spec.Names.Kind, column.Name)
				}
			}
		}
	}
}

func checkDescribed(t *testing.T, path string, schema apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	for _, rule := range schema.XValidations {
		if rule.Message == "" {
			t.Errorf("%s: the rule %q has no message", path, rule.Rule)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property, below := schema.Properties[name], path+"."+name
		if property.Description == "" && below != path+".metadata" {
			t.Errorf("%s has no description", below)
		}
		checkDescribed(t, below, property)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		checkDescribed(t, path+"[]", *schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		checkDescribed(t, path+"{}", *schema.AdditionalProperties.Schema)
	}
}
