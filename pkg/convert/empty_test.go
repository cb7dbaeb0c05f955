// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// kubeadm is the example of the provider before this one, with the empty values that it has.
const kubeadm = `apiVersion: controlplane.cluster.x-k8s.io/VERSION
kind: KubeadmControlPlane
metadata: {name: c1-control-plane}
spec:
  version: v1.31.6
  replicas: 0
  machineTemplate: {MACHINE}
  kubeadmConfigSpec:
    clusterConfiguration:
      controlPlaneEndpoint: ""
      apiServer: {}
    initConfiguration:
      localAPIEndpoint: {advertiseAddress: "", bindPort: 0}
      nodeRegistration: {name: "", ignorePreflightErrors: [], taints: []}
    joinConfiguration:
      controlPlane:
        localAPIEndpoint:
          advertiseAddress: ""
          bindPort: 0
    files:
    - {path: /a, content: "", owner: "", permissions: ""}
    preKubeadmCommands: []
    users:
`

const (
	oldMachine = `infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: MaasMachineTemplate, name: c1}, metadata: {labels: {a: ""}}`
	newMachine = `spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: MaasMachineTemplate, name: c1}}, metadata: {labels: {a: ""}}`
)

// moduleFile is the path of a file in Cluster API's module.
func moduleFile(t *testing.T, name string) string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(strings.TrimSpace(string(dir)), name)
}

// refusals are what Cluster API's CRD has against an object.
func refusals(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition, version string, document []byte) field.ErrorList {
	t.Helper()
	var object map[string]any
	if err := yaml.Unmarshal(document, &object); err != nil {
		t.Fatal(err)
	}
	for _, served := range crd.Spec.Versions {
		if served.Name != version {
			continue
		}
		internal := &apiextensions.JSONSchemaProps{}
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(served.Schema.OpenAPIV3Schema, internal, nil); err != nil {
			t.Fatal(err)
		}
		validator, _, err := validation.NewSchemaValidator(internal)
		if err != nil {
			t.Fatal(err)
		}
		return validation.ValidateCustomResource(nil, object, validator)
	}
	t.Fatalf("the CRD has no version %s", version)
	return nil
}

// What Cluster API refuses, because it has no value, is not in the result.
func TestEmptyValuesOfKubeadmAreLeftOut(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	path := moduleFile(t, "controlplane/kubeadm/config/crd/bases/controlplane.cluster.x-k8s.io_kubeadmcontrolplanes.yaml")
	if err := yaml.Unmarshal(readFile(t, path), crd); err != nil {
		t.Fatal(err)
	}
	for version, machine := range map[string]string{"v1beta1": oldMachine, "v1beta2": newMachine} {
		t.Run(version, func(t *testing.T) {
			input := []byte(strings.NewReplacer("VERSION", version, "MACHINE", machine).Replace(kubeadm))
			if len(refusals(t, crd, version, input)) == 0 {
				t.Fatal("Cluster API refuses nothing: the test shows nothing")
			}
			result := Convert(input)
			if !result.Has(Note) || result.Has(Problem) {
				t.Errorf("the findings are %v", result.Findings)
			}
			if refused := refusals(t, crd, version, result.Output); len(refused) > 0 {
				t.Errorf("Cluster API refuses the result: %v\n%s", refused.ToAggregate(), result.Output)
			}
			for _, kept := range []string{"replicas: 0", `labels: {a: ""}`, "controlPlane: {}", "taints: []"} { // What is there, and means something.
				if !strings.Contains(string(result.Output), kept) {
					t.Errorf("%s is gone:\n%s", kept, result.Output)
				}
			}
			if again := Convert(result.Output); string(again.Output) != string(result.Output) || len(again.Findings) > 0 {
				t.Errorf("it changes again: %v\n%s", again.Findings, again.Output)
			}
		})
	}
}

func TestEmptyValues(t *testing.T) {
	for name, tc := range map[string]struct {
		input, spec string
		findings    []string
	}{
		"a Cluster without an endpoint": {
			"apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nspec: {controlPlaneEndpoint: {host: '', port: 0}, clusterNetwork: {serviceDomain: ''}, paused: false}\n",
			"{paused: false}", []string{"note spec"},
		},
		"a MachineDeployment": {
			"apiVersion: cluster.x-k8s.io/v1beta2\nkind: MachineDeployment\nspec: {clusterName: c, replicas: 0, template: {spec: {clusterName: c, version: '', failureDomain: ''}}}\n",
			"{clusterName: c, replicas: 0, template: {spec: {clusterName: c}}}", []string{"note spec"},
		},
		"values of variables are anybody's": {
			"apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nspec: {topology: {classRef: {name: a}, version: v1.35.0, variables: [{name: a, value: {b: '', c: []}}]}}\n",
			"{topology: {classRef: {name: a}, version: v1.35.0, variables: [{name: a, value: {b: '', c: []}}]}}", nil,
		},
		"an item of a List": {
			"apiVersion: v1\nkind: List\nitems: [{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, spec: {version: ''}}]\n",
			"", []string{"note spec"},
		},
		"another provider's object": {
			"apiVersion: controlplane.cluster.x-k8s.io/v1beta1\nkind: RKE2ControlPlane\nspec: {version: ''}\n", "{version: ''}", nil,
		},
		"with an anchor": {
			"apiVersion: cluster.x-k8s.io/v1beta2\nkind: Machine\nspec: &a {version: ''}\n", "{version: ''}", []string{"loss spec"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			findings, spec := outcome(t, tc.input)
			if diff := cmp.Diff(tc.findings, findings); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			var want map[string]any
			if err := yaml.Unmarshal([]byte(tc.spec), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, spec); diff != "" {
				t.Errorf("the spec (-want +got):\n%s", diff)
			}
		})
	}
}
