// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"
)

const head = `<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Generated from %s by hack/clusterclass; do not edit. -->

# Variables of the ClusterClass %[2]s

A Cluster of the class can set these variables in ` + "`spec.topology.variables`" + `, and override them for the control plane and for single machineDeployments.
[The ClusterClass](clusterclass.md) describes how, and what happens to running machines.
%[3]s
| variable | type | default | a change replaces |
|---|---|---|---|
`

// write makes the reference.
func write(class *clusterv1.ClusterClass, distributions []*Distribution) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, head, "clusterclass/clusterclass-"+class.Name+".yaml", class.Name, differences(class, distributions))
	variables := slices.Clone(class.Spec.Variables)
	slices.SortFunc(variables, func(a, b clusterv1.ClusterClassVariable) int { return strings.Compare(a.Name, b.Name) })
	for _, v := range variables {
		if err := checkDescribed(v.Name, v.Schema.OpenAPIV3Schema, parse(v.Schema.OpenAPIV3Schema.Example)); err != nil {
			return nil, err
		}
		schema := v.Schema.OpenAPIV3Schema
		effect := replaces(class, v.Name)
		if isFixed(schema) {
			effect = "refused"
		}
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s | %s | %s |\n", v.Name, strings.ToLower(v.Name), typeOf(schema), defaultOf(v), effect)
	}
	for _, v := range variables {
		writeVariable(&b, class, v)
	}
	return b.Bytes(), nil
}

// differences returns which variables the classes of other distributions lack, and which they have in addition, in words.
func differences(class *clusterv1.ClusterClass, distributions []*Distribution) string {
	var b strings.Builder
	for _, d := range distributions {
		fmt.Fprintf(&b, "\nThe class `%s`, for [%s](bootstrap-providers.md#clusterclasses), lacks `%s`.", d.Name, d.Title, strings.Join(d.Lacks, "`, `"))
		for _, given := range d.Variables {
			if name, _ := given["name"].(string); !slices.ContainsFunc(class.Spec.Variables, named(name)) {
				fmt.Fprintf(&b, " It has `%s` in addition.", name)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func writeVariable(b *bytes.Buffer, class *clusterv1.ClusterClass, v clusterv1.ClusterClassVariable) {
	schema := v.Schema.OpenAPIV3Schema
	fmt.Fprintf(b, "\n## %s\n\n%s\n", v.Name, schema.Description)
	for _, rule := range rules(schema) {
		fmt.Fprintf(b, "\n- %s", rule)
	}
	if len(rules(schema)) > 0 {
		b.WriteByte('\n')
	}
	effect := "Changing it replaces " + replaces(class, v.Name)
	if isFixed(schema) {
		effect = "It can't be changed once it is set"
	}
	fmt.Fprintf(b, "\n%s. For example:\n\n```yaml\n- name: %s\n  value: %s\n```\n", effect, v.Name, value(schema.Example))
	rows := fieldsOf("", schema, parse(schema.Example))
	if len(rows) == 0 {
		return
	}
	b.WriteString("\n| field | type | default | meaning | example |\n|---|---|---|---|---|\n")
	for _, row := range rows {
		b.WriteString(row)
	}
}

// fieldsOf returns the rows of a table of the fields below a schema, depth first. What has no example of its own has
// that in the example of the whole.
func fieldsOf(path string, schema clusterv1.JSONSchemaProps, whole any) []string {
	var rows []string
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		field := schema.Properties[name]
		fieldPath := path + name
		what := strings.TrimSuffix(field.Description, ".") + "."
		if slices.Contains(schema.Required, name) {
			what = "Required. " + what
		}
		for _, rule := range rules(field) {
			what += "<br>*" + rule + "*"
		}
		example, inWhole := "", in(whole, name)
		switch {
		case field.Example != nil:
			example = code(value(field.Example))
		case isLeaf(field) && inWhole != nil:
			example = code(flow(inWhole))
		}
		given := ""
		if field.Default != nil {
			given = code(value(field.Default))
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", fieldPath, typeOf(field), given, cell(what), cell(example)))
		rows = append(rows, fieldsOf(fieldPath+".", field, inWhole)...)
		if field.Items != nil {
			rows = append(rows, fieldsOf(fieldPath+"[].", *field.Items, inWhole)...)
		}
	}
	return rows
}

// in returns the field of an object, or that of the first in a list that has it; nil if none has it.
func in(example any, name string) any {
	switch example := example.(type) {
	case map[string]any:
		return example[name]
	case []any:
		for _, item := range example {
			if found := in(item, name); found != nil {
				return found
			}
		}
	}
	return nil
}

func isLeaf(schema clusterv1.JSONSchemaProps) bool {
	return len(schema.Properties) == 0 && schema.Items == nil
}

// rules returns the constraints on a value, in words. Those on the items of a list are among them, those on the fields
// of an object are not.
func rules(schema clusterv1.JSONSchemaProps) []string {
	var list []string
	if schema.Enum != nil {
		var values []string
		for _, v := range schema.Enum {
			values = append(values, code(value(&v)))
		}
		list = append(list, "One of "+strings.Join(values, ", "))
	}
	switch least, most := schema.Minimum, schema.Maximum; {
	case least != nil && most != nil && *most < largest:
		list = append(list, fmt.Sprintf("%d to %d", *least, *most))
	case least != nil:
		list = append(list, fmt.Sprintf("At least %d", *least))
	}
	if n := schema.MaxItems; n != nil {
		list = append(list, fmt.Sprintf("%d to %d items", ptr.Deref(schema.MinItems, 0), *n))
	}
	for _, rule := range schema.XValidations {
		list = append(list, rule.Message)
	}
	if schema.Items != nil {
		list = append(list, rules(*schema.Items)...)
	}
	return list
}

// isFixed reports whether a value can't be changed.
func isFixed(schema clusterv1.JSONSchemaProps) bool {
	return slices.ContainsFunc(schema.XValidations, func(rule clusterv1.ValidationRule) bool { return strings.Contains(rule.Rule, "== oldSelf") })
}

// largest is the bound of an int32, which means nothing to readers.
const largest = 1<<31 - 1

// typeOf returns a type's name in a table.
func typeOf(schema clusterv1.JSONSchemaProps) string {
	if schema.Type == "array" && schema.Items != nil {
		return "list of " + schema.Items.Type + "s"
	}
	return schema.Type
}

func defaultOf(v clusterv1.ClusterClassVariable) string {
	switch {
	case ptr.Deref(v.Required, false):
		return "required"
	case v.Schema.OpenAPIV3Schema.Default != nil:
		return code(value(v.Schema.OpenAPIV3Schema.Default))
	}
	return ""
}

// value returns a value as YAML, on one line.
func value(v *apiextensionsv1.JSON) string {
	if v == nil {
		return ""
	}
	return flow(parse(v))
}

// parse returns a value that was read as a part of a schema, and so is JSON; nil if there is none.
func parse(v *apiextensionsv1.JSON) (value any) {
	if v != nil {
		_ = json.Unmarshal(v.Raw, &value)
	}
	return value
}

// flow returns a value in YAML's flow style.
func flow(v any) string {
	var parts []string
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, name+": "+flow(v[name]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		for _, item := range v {
			parts = append(parts, flow(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	scalar, err := yaml.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(string(scalar))
}

func code(s string) string { return "`" + s + "`" }

// cell is text in a table.
func cell(s string) string { return strings.NewReplacer("|", `\|`, "\n", " ").Replace(s) }

// checkDescribed refuses a schema without a description of a value, or of which neither an example nor a rule shows one.
func checkDescribed(path string, schema clusterv1.JSONSchemaProps, example any) error {
	if schema.Description == "" {
		return fmt.Errorf("%s has no description", path)
	}
	isVariable := !strings.ContainsAny(path, ".[")
	isShown := len(rules(schema)) > 0 || schema.Type == "boolean" || strings.HasSuffix(path, "[]")
	if schema.Example == nil && (isVariable || isLeaf(schema) && example == nil && !isShown) {
		return fmt.Errorf("%s has no example", path)
	}
	for name, field := range schema.Properties {
		if err := checkDescribed(path+"."+name, field, in(example, name)); err != nil {
			return err
		}
	}
	if schema.Items != nil {
		return checkDescribed(path+"[]", *schema.Items, example)
	}
	return nil
}
