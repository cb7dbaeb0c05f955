// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"
)

// Distribution is what a ClusterClass has in place of kubeadm's.
type Distribution struct {
	// Name of the class.
	Name string `json:"name"`
	// Title is the distribution's name.
	Title string `json:"title"`
	// Lacks are the variables that the class does not have. The patches that use them are left out with them.
	Lacks []string `json:"lacks"`
	// Variables are those that the class has in addition, and what differs in one that both have.
	Variables []map[string]any `json:"variables"`
	// Patches are those that the class has in addition. One of a name that both have takes the place of what that one
	// changes in kubeadm's templates.
	Patches []clusterv1.ClusterClassPatch `json:"patches"`

	templates []*unstructured.Unstructured
}

func readDistribution(content []byte) (*Distribution, error) {
	documents, err := split(content)
	if err != nil {
		return nil, err
	}
	d := &Distribution{}
	if err := yaml.UnmarshalStrict(documents[0], d); err != nil {
		return nil, err
	}
	d.templates, err = objects(documents[1:])
	return d, err
}

var errDistribution = errors.New("the distribution does not fit the ClusterClass")

// derive returns the objects of the distribution's class, made from those of a class for kubeadm.
func (d *Distribution) derive(base []*unstructured.Unstructured) ([]any, error) {
	class, err := classOf(base)
	if err != nil {
		return nil, err
	}
	prefix := class.Name
	rename := func(name string) string { return d.Name + strings.TrimPrefix(name, prefix) }
	class.Name = d.Name
	kubeadm := []string{class.Spec.ControlPlane.TemplateRef.Kind, class.Spec.Workers.MachineDeployments[0].Bootstrap.TemplateRef.Kind}
	if err := errors.Join(d.setVariables(class), d.setPatches(class, kubeadm), d.setTemplates(class, rename)); err != nil {
		return nil, err
	}
	derived := []any{class}
	for _, o := range base {
		if o.GetKind() != class.Kind && !slices.Contains(kubeadm, o.GetKind()) {
			o.SetName(rename(o.GetName()))
			derived = append(derived, o)
		}
	}
	for _, o := range d.templates {
		derived = append(derived, o)
	}
	return derived, nil
}

func (d *Distribution) setVariables(class *clusterv1.ClusterClass) error {
	for _, name := range d.Lacks {
		if !slices.ContainsFunc(class.Spec.Variables, named(name)) {
			return fmt.Errorf("%w: lacks: there is no variable %s", errDistribution, name)
		}
	}
	class.Spec.Variables = slices.DeleteFunc(class.Spec.Variables, func(v clusterv1.ClusterClassVariable) bool { return slices.Contains(d.Lacks, v.Name) })
	for _, given := range d.Variables {
		name, _ := given["name"].(string)
		at := slices.IndexFunc(class.Spec.Variables, named(name))
		if at < 0 {
			at = len(class.Spec.Variables)
			class.Spec.Variables = append(class.Spec.Variables, clusterv1.ClusterClassVariable{})
		}
		text, err := yaml.Marshal(given)
		if err == nil {
			// What it does not have stays.
			err = yaml.UnmarshalStrict(text, &class.Spec.Variables[at])
		}
		if err != nil {
			return fmt.Errorf("variable %s: %w", name, err)
		}
	}
	return nil
}

func named(name string) func(clusterv1.ClusterClassVariable) bool {
	return func(v clusterv1.ClusterClassVariable) bool { return v.Name == name }
}

func (d *Distribution) setPatches(class *clusterv1.ClusterClass, kubeadm []string) error {
	given, kept := slices.Clone(d.Patches), []clusterv1.ClusterClassPatch{}
	for _, patch := range class.Spec.Patches {
		if slices.ContainsFunc(d.Lacks, func(name string) bool { return mentions(patch, name) }) {
			continue
		}
		before := len(patch.Definitions)
		patch.Definitions = slices.DeleteFunc(patch.Definitions, func(def clusterv1.PatchDefinition) bool { return slices.Contains(kubeadm, def.Selector.Kind) })
		at := slices.IndexFunc(given, func(g clusterv1.ClusterClassPatch) bool { return g.Name == patch.Name })
		switch {
		case at >= 0:
			patch.Definitions = append(patch.Definitions, given[at].Definitions...)
			given = slices.Delete(given, at, at+1)
		case len(patch.Definitions) < before:
			return fmt.Errorf("%w: the patch %s changes %v: give one of this name, or lack its variables", errDistribution, patch.Name, kubeadm)
		}
		kept = append(kept, patch)
	}
	class.Spec.Patches = slices.Concat(kept, given)
	for _, v := range class.Spec.Variables {
		if !slices.ContainsFunc(class.Spec.Patches, func(p clusterv1.ClusterClassPatch) bool { return mentions(p, v.Name) }) {
			return fmt.Errorf("%w: no patch uses the variable %s", errDistribution, v.Name)
		}
	}
	return nil
}

// mentions reports whether a patch uses a variable in any way.
func mentions(patch clusterv1.ClusterClassPatch, variable string) bool {
	return inTemplate(patch.EnabledIf, variable) || slices.ContainsFunc(patch.Definitions, func(definition clusterv1.PatchDefinition) bool {
		return slices.ContainsFunc(definition.JSONPatches, func(p clusterv1.JSONPatch) bool { return usesValue(p, variable) })
	})
}

// setTemplates has the class name the distribution's templates.
func (d *Distribution) setTemplates(class *clusterv1.ClusterClass, rename func(string) string) error {
	if len(d.templates) != 2 {
		return fmt.Errorf("%w: it has %d templates: one for the control plane is needed, and one for the workers", errDistribution, len(d.templates))
	}
	controlPlane, worker := templateRef(d.templates[0]), templateRef(d.templates[1])
	class.Spec.ControlPlane.TemplateRef = controlPlane
	machines := &class.Spec.ControlPlane.MachineInfrastructure.TemplateRef
	machines.Name = rename(machines.Name)
	class.Spec.Infrastructure.TemplateRef.Name = rename(class.Spec.Infrastructure.TemplateRef.Name)
	for i := range class.Spec.Workers.MachineDeployments {
		workers := &class.Spec.Workers.MachineDeployments[i]
		workers.Bootstrap.TemplateRef = worker
		workers.Infrastructure.TemplateRef.Name = rename(workers.Infrastructure.TemplateRef.Name)
	}
	return nil
}

func templateRef(o *unstructured.Unstructured) clusterv1.ClusterClassTemplateReference {
	return clusterv1.ClusterClassTemplateReference{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName()}
}
