// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestTheTemplateIsFound(t *testing.T) {
	ref := func(kind string) map[string]any { return map[string]any{"kind": kind, "name": "t"} }
	in := func(machineTemplate map[string]any) map[string]any {
		return map[string]any{"machineTemplate": machineTemplate}
	}
	for name, tc := range map[string]struct {
		spec map[string]any
		want string
	}{
		"v1beta2":              {in(map[string]any{"spec": map[string]any{"infrastructureRef": ref("MaasMachineTemplate")}}), "t"},
		"v1beta1":              {in(map[string]any{"infrastructureRef": ref("MaasMachineTemplate")}), "t"},
		"Canonical Kubernetes": {in(map[string]any{"infrastructureTemplate": ref("MaasMachineTemplate")}), "t"},
		"older RKE2":           {map[string]any{"infrastructureRef": ref("MaasMachineTemplate")}, "t"},
		"Talos, and older k3s": {map[string]any{"infrastructureTemplate": ref("MaasMachineTemplate")}, "t"},
		"MachineDeployment":    {map[string]any{"template": map[string]any{"spec": map[string]any{"infrastructureRef": ref("MaasMachineTemplate")}}}, "t"},
		"another kind's":       {in(map[string]any{"infrastructureRef": ref("OtherMachineTemplate")}), ""},
		"none":                 {map[string]any{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := Owner{&unstructured.Unstructured{Object: map[string]any{"spec": tc.spec}}}
			if got := o.Template(); got != tc.want {
				t.Errorf("the template is %q, want %q", got, tc.want)
			}
		})
	}
}

func TestReferencesToTemplates(t *testing.T) {
	const ourGroup, otherGroup = "infrastructure.cluster.x-k8s.io", "infrastructure.example.com"
	for name, tc := range map[string]struct {
		ref  map[string]string
		want string
	}{
		"by group":         {map[string]string{"apiGroup": ourGroup, "kind": "MaasMachineTemplate", "name": "a"}, "a"},
		"by version":       {map[string]string{"apiVersion": ourGroup + "/v1beta1", "kind": "MaasMachineTemplate", "name": "a"}, "a"},
		"another group":    {map[string]string{"apiGroup": otherGroup, "kind": "MaasMachineTemplate", "name": "a"}, ""},
		"in another's":     {map[string]string{"apiVersion": otherGroup + "/v1", "kind": "MaasMachineTemplate", "name": "a"}, ""},
		"another kind":     {map[string]string{"apiGroup": ourGroup, "kind": "DockerMachineTemplate", "name": "a"}, ""},
		"a broken version": {map[string]string{"apiVersion": "a/b/c", "kind": "MaasMachineTemplate", "name": "a"}, ""},
		"no reference":     {nil, ""},
	} {
		if got := machineTemplate(tc.ref); got != tc.want {
			t.Errorf("%s: the template is %q, want %q", name, got, tc.want)
		}
	}
}

func TestDeletionOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		spec map[string]any
		want string
	}{
		"v1beta2": {map[string]any{"deletion": map[string]any{"order": "Oldest"}}, "Oldest"},
		"v1beta1": {map[string]any{"strategy": map[string]any{"rollingUpdate": map[string]any{"deletePolicy": "Newest"}}}, "Newest"},
		"none":    {map[string]any{"strategy": map[string]any{"type": "RollingUpdate"}}, ""},
	} {
		o := Owner{&unstructured.Unstructured{Object: map[string]any{"spec": tc.spec}}}
		if got := o.DeletionOrder(); got != tc.want {
			t.Errorf("%s: the order is %q, want %q", name, got, tc.want)
		}
	}
}
