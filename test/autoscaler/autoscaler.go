// SPDX-License-Identifier: Apache-2.0

// Package autoscaler plays how the cluster autoscaler reads node groups, and what it expects of a node that is not there
// yet, from Cluster API's objects.
package autoscaler

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Version is the autoscaler that this was compared with.
const Version = "1.36.1"

// The annotations of a MachineDeployment that the autoscaler reads.
const (
	MinSize = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"
	MaxSize = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"

	capacity = "capacity.cluster-autoscaler.kubernetes.io/"
)

// Group is a node group, and the node that it would get first.
type Group struct {
	Min, Max int
	Labels   map[string]string
	Taints   []corev1.Taint
	Capacity corev1.ResourceList
}

// Groups returns the groups of MachineDeployments, by name. Those without bounds are none, nor those without machines
// whose size is not known. One with wrong bounds leaves no group at all. template returns the template that a
// MachineDeployment names, nil if it can't be read.
func Groups(
	deployments []*unstructured.Unstructured, template func(name string) *unstructured.Unstructured,
) (map[string]Group, error) {
	groups := map[string]Group{}
	for _, md := range deployments {
		given := md.GetAnnotations()
		least, err := bound(given, MinSize)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", md.GetName(), err)
		}
		most, err := bound(given, MaxSize)
		if err == nil && most < least {
			err = errors.New("invalid max annotation")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", md.GetName(), err)
		}
		name, _, _ := unstructured.NestedString(md.Object, "spec", "template", "spec", "infrastructureRef", "name")
		from := template(name)
		g := Group{Min: least, Max: most, Capacity: sizes(given, from), Labels: labels(given, from), Taints: taints(given)}
		_, knowsCPU := g.Capacity[corev1.ResourceCPU]
		_, knowsMemory := g.Capacity[corev1.ResourceMemory]
		replicas, said, _ := unstructured.NestedInt64(md.Object, "spec", "replicas")
		if isEmpty := said && replicas == 0; most > 0 && (!isEmpty || knowsCPU && knowsMemory) {
			groups[md.GetName()] = g
		}
	}
	return groups, nil
}

// bound returns a bound, 0 if there is none.
func bound(given map[string]string, key string) (int, error) {
	text, found := given[key]
	if !found {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err == nil && n < 0 {
		err = strconv.ErrRange
	}
	return n, err
}

// sizes returns what a node would have. A status with a size that is no text counts for nothing.
func sizes(given map[string]string, template *unstructured.Unstructured) corev1.ResourceList {
	list := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}
	set := func(name, text string) {
		if quantity, err := resource.ParseQuantity(text); err == nil && !quantity.IsZero() {
			list[corev1.ResourceName(name)] = quantity
		}
	}
	if template != nil {
		said, _, _ := unstructured.NestedStringMap(template.Object, "status", "capacity")
		for name, text := range said {
			set(name, text)
		}
	}
	for key, name := range map[string]string{"cpu": "cpu", "memory": "memory", "ephemeral-disk": "ephemeral-storage",
		"maxPods": "pods", "gpu-count": given[capacity+"gpu-type"]} {
		if name != "" {
			set(name, given[capacity+key])
		}
	}
	return list
}

// labels returns the labels that a node would have: a template that can be read replaces the autoscaler's defaults, also
// by nothing. The labels in the template of Machines are not read, nor is the zone.
func labels(given map[string]string, template *unstructured.Unstructured) map[string]string {
	all := map[string]string{corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux"}
	if template != nil {
		info, _, _ := unstructured.NestedStringMap(template.Object, "status", "nodeInfo")
		all[corev1.LabelArchStable], all[corev1.LabelOSStable] = info["architecture"], info["operatingSystem"]
	}
	for label := range strings.SplitSeq(given[capacity+"labels"], ",") {
		if key, value, found := strings.Cut(label, "="); found {
			all[key] = value
		}
	}
	return all
}

// taints returns the taints that a node would have. One that can't be read, such as one that begins with a blank, is
// left out without a word.
func taints(given map[string]string) (all []corev1.Taint) {
	for text := range strings.SplitSeq(given[capacity+"taints"], ",") {
		what, effect, _ := strings.Cut(text, ":")
		key, value, _ := strings.Cut(what, "=")
		if len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0 {
			all = append(all, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
		}
	}
	return all
}
