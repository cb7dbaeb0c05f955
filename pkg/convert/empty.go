// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/json"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	addonsv1beta1 "sigs.k8s.io/cluster-api/api/addons/v1beta1"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	bootstrapv1beta1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1beta1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta1"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capmaas/cluster-api-provider-maas/internal/text"
)

// maxPathsNamed is how many fields a finding names.
const maxPathsNamed = 8

// coreTypes are Cluster API's own kinds, in the versions that it serves.
var coreTypes = func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	add := runtime.NewSchemeBuilder(
		clusterv1beta1.AddToScheme, clusterv1.AddToScheme, bootstrapv1beta1.AddToScheme, bootstrapv1.AddToScheme,
		controlplanev1beta1.AddToScheme, controlplanev1.AddToScheme, addonsv1beta1.AddToScheme, addonsv1.AddToScheme)
	utilruntime.Must(add.AddToScheme(scheme))
	return scheme
}()

// dropEmpty leaves out the fields without a value in the spec of one of Cluster API's own kinds. Clients with its Go
// types don't write them; manifests may have them, and Cluster API refuses many: a text has to have a character, for
// example.
func (o *object) dropEmpty(m mapping, group, version, kind string) {
	spec, ok := m.subject("spec")
	known, err := coreTypes.New(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	if !ok || err != nil {
		return
	}
	field, ok := fieldsOf(reflect.TypeOf(known).Elem())["spec"]
	if !ok {
		return
	}
	e := empties{keep: shared(m.node)}
	e.find(spec.node, field.of, spec.path)
	switch {
	case len(e.paths) == 0:
	case e.keep:
		m.report(Loss, "spec", "it stays, as there are YAML anchors or aliases; remove what has no value, "+
			"which Cluster API refuses: %s", text.List(e.paths, maxPathsNamed))
	default:
		o.changed = true
		m.note("spec", "left out, as it has no value, and Cluster API refuses some of these: %s",
			text.List(e.paths, maxPathsNamed))
	}
}

// empties are the fields without a value.
type empties struct {
	keep  bool // they are only found, and stay
	paths []string
}

// find visits the fields of a node that is of a Go type.
func (e *empties) find(n *yaml.Node, of reflect.Type, path string) {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch {
	case n.Kind == yaml.SequenceNode && of.Kind() == reflect.Slice:
		for _, item := range n.Content {
			e.find(item, of.Elem(), path)
		}
	case n.Kind == yaml.MappingNode && of.Kind() == reflect.Struct:
		e.findInStruct(n, fieldsOf(of), path)
	}
}

func (e *empties) findInStruct(n *yaml.Node, fields map[string]goField, path string) {
	var kept []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := path + "." + key.Value
		field, known := fields[key.Value]
		before := len(e.paths)
		if known {
			e.find(value, field.of, at)
		}
		if known && field.isUnset(value) {
			e.paths = append(e.paths[:before], at) // Not each of what is in it.
			continue
		}
		kept = append(kept, key, value)
	}
	if !e.keep {
		n.Content = kept
	}
}

// goField is a field of a struct, as JSON has it.
type goField struct {
	of       reflect.Type
	optional bool // the zero value is not written
	listed   bool // an empty list may mean something else than none
}

// isUnset reports whether a value of the field is the same as none. A pointer distinguishes 0 and {} from nothing.
func (f goField) isUnset(n *yaml.Node) bool {
	if isNull(n) {
		return true
	}
	if !f.optional {
		return false
	}
	switch kind := f.of.Kind(); {
	case n.Kind == yaml.ScalarNode && kind == reflect.String:
		return n.Value == ""
	case n.Kind == yaml.ScalarNode && kind >= reflect.Int && kind <= reflect.Uint64:
		return n.Value == "0"
	case n.Kind == yaml.SequenceNode && kind == reflect.Slice && !f.listed,
		n.Kind == yaml.MappingNode && kind == reflect.Struct:
		return len(n.Content) == 0
	}
	return false
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// fieldsOf returns the fields of a struct by their names in JSON; none if it may have any value. A type that
// writes itself may write empty lists, as that of a Node's registration does: no taints at all are not kubeadm's.
func fieldsOf(of reflect.Type) map[string]goField {
	fields, listed := map[string]goField{}, reflect.PointerTo(of).Implements(marshaler)
	for _, f := range reflect.VisibleFields(of) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			optional := strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
			fields[name] = goField{of: f.Type, optional: optional, listed: listed}
		}
	}
	return fields
}
