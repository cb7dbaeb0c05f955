// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestTheTemplateOfAControlPlaneIsFound(t *testing.T) {
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
		"another kind's":       {in(map[string]any{"infrastructureRef": ref("OtherMachineTemplate")}), ""},
		"none":                 {map[string]any{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{Object: map[string]any{"spec": tc.spec}}
			if got := InfrastructureTemplate(object); got != tc.want {
				t.Errorf("the template is %q, want %q", got, tc.want)
			}
		})
	}
}
