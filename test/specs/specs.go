// SPDX-License-Identifier: Apache-2.0

// Package specs has how specs of our kinds change: for each field of a CRD's schema the values that it may take, and the
// specs between which a user may change an object.
package specs

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// Kind is a kind of the provider, with its description and the schema of its spec.
type Kind struct {
	Name, Description string
	Schema            apiextensionsv1.JSONSchemaProps
}

// Kinds returns the kinds whose CRDs are in a directory. Each has one version.
func Kinds(dir string) ([]Kind, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("looking for CRDs in %s: %w", dir, err)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("there are no CRDs in %s", dir)
	}
	var kinds []Kind
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		crd := apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(content, &crd); err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		kinds = append(kinds, Kind{crd.Spec.Names.Kind, root.Description, root.Properties["spec"]})
	}
	return kinds, nil
}

// Field is a field of a spec: its path below spec, for example .lxdConfig.storage.size, and its schema. [] is the first
// item of a list.
type Field struct {
	Path   string
	Schema apiextensionsv1.JSONSchemaProps
}

// Fields returns all fields of a kind, sorted by their paths. Metadata that a template gives to others is not ours.
func (k Kind) Fields() []Field {
	var fields []Field
	var each func(path string, schema apiextensionsv1.JSONSchemaProps)
	each = func(path string, schema apiextensionsv1.JSONSchemaProps) {
		for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
			if property := schema.Properties[name]; path+"."+name != ".template.metadata" {
				fields = append(fields, Field{path + "." + name, property})
				each(path+"."+name, property)
			}
		}
		if schema.Items != nil && schema.Items.Schema.Type == "object" {
			each(path+"[]", *schema.Items.Schema)
		}
	}
	each("", k.Schema)
	return fields
}

// Base is a spec from which others are made.
type Base struct {
	Name string
	Spec map[string]any
}

// Bases returns the specs of a kind from which others are made. Together they have each field.
func (k Kind) Bases() []Base {
	kind, isTemplate := strings.CutSuffix(k.Name, "Template")
	var all []Base
	for _, name := range slices.Sorted(maps.Keys(bases[kind])) {
		spec := parse(bases[kind][name])
		if isTemplate {
			spec = map[string]any{"template": map[string]any{"spec": spec}}
		}
		all = append(all, Base{name, spec})
	}
	return all
}

// parse reads a spec of this package. Numbers are as the API server has them.
func parse(text string) map[string]any {
	content, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		panic(err)
	}
	return toMap(content)
}

func toMap(content []byte) map[string]any {
	spec := map[string]any{}
	if err := json.Unmarshal(content, &spec); err != nil {
		panic(err)
	}
	return spec
}

// Text is a spec in one line. Specs with the same text are equal.
func Text(spec map[string]any) string {
	content, err := json.Marshal(spec)
	if err != nil {
		panic(err)
	}
	return string(content)
}

// Group are specs that differ in one field, or in two that a rule joins. A user may change an object from each of them
// to each other one, if both are valid.
type Group struct {
	Kind, Base string
	// Fields are the paths of what differs.
	Fields []string
	Specs  []map[string]any
}

// Groups returns the groups of a kind: for each base one for each of its fields, and one for each pair of fields that
// some rule of the schema names together.
func (k Kind) Groups() []Group {
	fields, pairs := k.Fields(), k.pairs()
	var groups []Group
	for _, base := range k.Bases() {
		for _, field := range fields {
			if specs := unique(k.vary([]map[string]any{base.Spec}, field)); len(specs) > 1 {
				groups = append(groups, Group{k.Name, base.Name, []string{field.Path}, specs})
			}
		}
		for _, pair := range pairs {
			specs := unique(k.vary(k.vary([]map[string]any{base.Spec}, pair[0]), pair[1]))
			if len(specs) > 1 {
				groups = append(groups, Group{k.Name, base.Name, []string{pair[0].Path, pair[1].Path}, specs})
			}
		}
	}
	return groups
}

func unique(specs []map[string]any) []map[string]any {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(specs), func(spec map[string]any) bool {
		text := Text(spec)
		defer func() { seen[text] = true }()
		return seen[text]
	})
}

// vary returns the specs with each value of a field, and without it. A spec that lacks what contains the field stays as
// it is.
func (k Kind) vary(specs []map[string]any, field Field) []map[string]any {
	var all []map[string]any
	for _, spec := range specs {
		all = append(all, spec)
		for _, value := range append(k.values(field), nil) {
			varied := toMap([]byte(Text(spec)))
			if set(varied, strings.Split(strings.TrimPrefix(field.Path, "."), "."), value) {
				all = append(all, toMap([]byte(Text(varied))))
			}
		}
	}
	return all
}

// set sets a value in an object, or removes it if it is nil. It reports whether what contains it is there.
func set(object map[string]any, path []string, value any) bool {
	name, isItem := strings.CutSuffix(path[0], "[]")
	if len(path) == 1 {
		object[name] = value
		if value == nil {
			delete(object, name)
		}
		return true
	}
	if isItem {
		items, _ := object[name].([]any)
		if len(items) == 0 {
			return false
		}
		return set(items[0].(map[string]any), path[1:], value)
	}
	below, is := object[name].(map[string]any)
	return is && set(below, path[1:], value)
}

// Has reports whether a spec has a field.
func Has(spec map[string]any, path string) bool {
	var value any = spec
	for _, part := range strings.Split(strings.TrimPrefix(path, "."), ".") {
		name, isItem := strings.CutSuffix(part, "[]")
		object, is := value.(map[string]any)
		if !is {
			return false
		}
		if value, is = object[name]; !is {
			return false
		}
		if items, _ := value.([]any); isItem {
			if len(items) == 0 {
				return false
			}
			value = items[0]
		}
	}
	return true
}

// values returns values of a field: those of samples, or else what its schema tells. Not all need be valid.
func (k Kind) values(field Field) []any {
	path := strings.TrimPrefix(field.Path, ".template.spec")
	for _, key := range []string{strings.TrimSuffix(k.Name, "Template") + path, path[strings.LastIndex(path, ".")+1:]} {
		if samples, has := samples[key]; has {
			return samples
		}
	}
	schema := field.Schema
	switch {
	case len(schema.Enum) > 0:
		var values []any
		for _, value := range schema.Enum[:min(len(schema.Enum), maxValues)] {
			values = append(values, toMap([]byte(`{"value":` + string(value.Raw) + `}`))["value"])
		}
		return values
	case schema.Type == "boolean":
		return []any{true, false}
	case schema.Type == "integer":
		least := 1.0
		if schema.Minimum != nil {
			least = *schema.Minimum
		}
		return []any{least, least + 1}
	case schema.Type == "string":
		return []any{"some", "other"}
	case schema.Type == "object":
		return []any{map[string]any{}}
	}
	return nil
}

// maxValues is how many values of an enumeration are tried.
const maxValues = 3

// mentioned finds the fields that a rule names.
var mentioned = regexp.MustCompile(`(?:self|oldSelf|oldSelf\.value\(\))\.\??([a-z][A-Za-z0-9]*)\b[^(A-Za-z]`)

// pairs returns the pairs of fields that a rule names together.
func (k Kind) pairs() [][2]Field {
	fields := map[string]Field{}
	for _, field := range k.Fields() {
		fields[field.Path] = field
	}
	pairs := map[string][2]Field{}
	join := func(path string, rules apiextensionsv1.ValidationRules) {
		for _, rule := range rules {
			names := map[string]bool{}
			for _, match := range mentioned.FindAllStringSubmatch(rule.Rule, -1) {
				if _, is := fields[path+"."+match[1]]; is {
					names[match[1]] = true
				}
			}
			sorted := slices.Sorted(maps.Keys(names))
			for i, a := range sorted {
				for _, b := range sorted[i+1:] {
					pairs[path+a+" "+b] = [2]Field{fields[path+"."+a], fields[path+"."+b]}
				}
			}
		}
	}
	join("", k.Schema.XValidations)
	for path, field := range fields {
		join(path, field.Schema.XValidations)
		if items := field.Schema.Items; items != nil {
			join(path+"[]", items.Schema.XValidations)
		}
	}
	var all [][2]Field
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		all = append(all, pairs[key])
	}
	return all
}
