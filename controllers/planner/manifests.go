// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/controlplane"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/plan"
)

// bufferSize is how much of a manifest is looked at to distinguish YAML from JSON.
const bufferSize = 4096

// Decode reads manifests. Objects without a namespace get one.
func Decode(from io.Reader, namespace string) ([]*unstructured.Unstructured, error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(from, bufferSize)
	var list []*unstructured.Unstructured
	for {
		var raw runtime.RawExtension
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, problem("the manifests are not YAML: %v", err)
		}
		if len(raw.Raw) == 0 || string(raw.Raw) == "null" {
			continue // Between two lines ---.
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(raw.Raw); err != nil {
			return nil, problem("the manifests contain an entry that is not a Kubernetes object: %v", err)
		}
		object.SetNamespace(cmp.Or(object.GetNamespace(), namespace))
		nameGroups(object)
		list = append(list, object)
	}
}

// nameGroups gives the references of a Cluster in Cluster API's v1beta1, which name a version, the group that later
// versions name, and the class of its topology the field that it has there.
func nameGroups(object *unstructured.Unstructured) {
	if object.GetKind() != "Cluster" {
		return
	}
	for _, field := range []string{"infrastructureRef", "controlPlaneRef"} {
		of, found, _ := unstructured.NestedString(object.Object, "spec", field, "apiVersion")
		if version, err := schema.ParseGroupVersion(of); found && err == nil {
			_ = unstructured.SetNestedField(object.Object, version.Group, "spec", field, "apiGroup") // It is an object.
		}
	}
	for old, field := range map[string]string{"class": "name", "classNamespace": "namespace"} {
		if name, found, _ := unstructured.NestedString(object.Object, "spec", "topology", old); found {
			_ = unstructured.SetNestedField(object.Object, name, "spec", "topology", "classRef", field)
		}
	}
}

// Apply plans what manifests would do: a cluster as clusterctl prints it, or parts of one that is there.
func (p *Planner) Apply(ctx context.Context, manifests []*unstructured.Unstructured) (*plan.Simulation, error) {
	given := &objects{list: manifests}
	if err := p.expand(ctx, given); err != nil {
		return nil, err
	}
	keys, err := clusterKeys(given)
	if err != nil {
		return nil, err
	}
	views, err := p.views(ctx, keys, given)
	if err != nil {
		return nil, err
	}
	s := begin(views...)
	for _, v := range views {
		if err := p.apply(ctx, s, v); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// clusterKeys returns the clusters that manifests are about, in their order.
func clusterKeys(given *objects) (keys []client.ObjectKey, err error) {
	add := func(namespace, name string) {
		if key := (client.ObjectKey{Namespace: namespace, Name: name}); name != "" && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	for _, u := range given.list {
		switch u.GetKind() {
		case "Cluster":
			add(u.GetNamespace(), u.GetName())
		case controlplane.MachineDeployment.Kind:
			add(u.GetNamespace(), controlplane.Owner{Unstructured: u}.Text("spec", "clusterName"))
		}
	}
	if len(keys) == 0 {
		return nil, problem("the manifests have neither a Cluster nor a MachineDeployment")
	}
	return keys, nil
}

// apply plans it for one cluster.
func (p *Planner) apply(ctx context.Context, s *plan.Simulation, v *view) error {
	owners, err := p.owners(ctx, v)
	if err != nil {
		return err
	}
	for _, o := range owners {
		if v.objects.find(o.GetKind(), client.ObjectKeyFromObject(o)) == nil {
			continue // It stays as it is.
		}
		before, err := p.before(ctx, o)
		if err != nil {
			return err
		}
		replaced := before != nil && differs(*before, o)
		if before != nil {
			o = o.WithReplicasOf(*before)
		}
		g, err := p.group(ctx, v, o)
		if err != nil {
			return err
		}
		do := s.Scale
		if replaced {
			do = s.Roll
		}
		if !do(g) && o.IsControlPlane() {
			return nil // The workers wait for the control plane.
		}
	}
	return nil
}

// before returns an owner as it is there; nil if it is not.
func (p *Planner) before(ctx context.Context, o controlplane.Owner) (*controlplane.Owner, error) {
	before := &controlplane.Owner{Unstructured: &unstructured.Unstructured{}}
	before.SetGroupVersionKind(o.GroupVersionKind())
	err := p.Client.Get(ctx, client.ObjectKeyFromObject(o), before.Unstructured)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", o.ID(), err)
	}
	return before, nil
}

// inPlace are the parts of a kubeadmConfigSpec whose change replaces nothing (PrepareKubeadmConfigsForDiff in Cluster
// API's controlplane/kubeadm/pkg/filters.go).
var inPlace = [][]string{
	{"clusterConfiguration", "dns"},
	{"clusterConfiguration", "controlPlaneEndpoint"},
	{"clusterConfiguration", "apiServer", "timeoutForControlPlane"},
	{"initConfiguration", "timeouts", "controlPlaneComponentHealthCheckSeconds"},
	{"joinConfiguration", "timeouts", "controlPlaneComponentHealthCheckSeconds"},
	{"joinConfiguration", "discovery"},
}

// differs reports whether an owner makes other machines than before: from another template, of another version, or with
// another bootstrap configuration.
func differs(before, after controlplane.Owner) bool {
	wanted, _, _ := unstructured.NestedMap(after.Object, "spec", "kubeadmConfigSpec")
	for _, path := range inPlace {
		unstructured.RemoveNestedField(wanted, path...)
	}
	has, _, _ := unstructured.NestedMap(before.Object, "spec", "kubeadmConfigSpec")
	return before.Template() != after.Template() || before.Version() != after.Version() ||
		bootstrap(before) != bootstrap(after) || !holds(has, wanted)
}

// bootstrap names the bootstrap configuration of a MachineDeployment. That of a control plane has no name.
func bootstrap(o controlplane.Owner) string {
	at := []string{"spec", "template", "spec", "bootstrap"}
	return o.Text(append(at, "configRef", "name")...) + "/" + o.Text(append(at, "dataSecretName")...)
}

// holds reports whether an object has all that is wanted of it. What is not said may have its default.
func holds(is, wanted any) bool {
	switch wanted := wanted.(type) {
	case map[string]any:
		there, _ := is.(map[string]any)
		for key, value := range wanted {
			if !holds(there[key], value) {
				return false
			}
		}
		return true
	case []any:
		there, _ := is.([]any)
		return slices.EqualFunc(there, wanted, holds)
	}
	return is == wanted || (is == nil && reflect.ValueOf(wanted).IsZero())
}
