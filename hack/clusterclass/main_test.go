// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const class = `
apiVersion: v1
kind: ConfigMap
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: ClusterClass
metadata: {name: c}
spec:
  variables:
    - name: size
      required: false
      schema:
        openAPIV3Schema:
          type: object
          description: How large.
          example: {disks: [{gb: 4}], name: "1"}
          default: {}
          required: [name]
          properties:
            name: {type: string, description: Its name, example: a, enum: [a, b|c]}
            note: {type: string, description: A note., example: b}
            disks:
              type: array
              description: Its disks.
              maxItems: 3
              items:
                type: object
                description: A disk.
                properties: {gb: {type: integer, description: Its size., default: 4, minimum: 1, maximum: 2147483647}}
    - name: domain
      required: true
      schema:
        openAPIV3Schema:
          type: string
          description: Where it is.
          example: maas
          x-kubernetes-validations: [{rule: self == oldSelf, message: domain stays}]
  patches:
    - name: size
      definitions:
        - selector: {apiVersion: i/v1, kind: MachineTemplate, matchResources: {machineDeploymentClass: {names: [w]}}}
          jsonPatches: [{op: add, path: /spec/template/spec/size, valueFrom: {variable: size.disks}}]
`

const reference = "\n## domain\n\nWhere it is.\n\n- domain stays\n\nIt can't be changed once it is set. For example:\n\n```yaml\n- name: domain\n  value: maas\n```\n" +
	"\n## size\n\nHow large.\n\nChanging it replaces workers. For example:\n\n```yaml\n- name: size\n  value: {disks: [{gb: 4}], name: \"1\"}\n```\n" +
	"\n| field | type | default | meaning | example |\n|---|---|---|---|---|\n" +
	"| `disks` | list of objects |  | Its disks.<br>*0 to 3 items* |  |\n" +
	"| `disks[].gb` | integer | `4` | Its size.<br>*At least 1* | `4` |\n" +
	"| `name` | string |  | Required. Its name.<br>*One of `a`, `b\\|c`* | `a` |\n" +
	"| `note` | string |  | A note. | `b` |\n"

func TestReference(t *testing.T) {
	read, err := readClass([]byte(class))
	if err != nil {
		t.Fatal(err)
	}
	got, err := write(read, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"| [`domain`](#domain) | string | required | refused |\n", "| [`size`](#size) | object | `{}` | workers |\n"} {
		if !bytes.Contains(got, []byte(row)) {
			t.Errorf("there is no row %q", row)
		}
	}
	i := bytes.Index(got, []byte("\n## "))
	if diff := cmp.Diff(reference, string(got[max(i, 0):])); diff != "" {
		t.Errorf("the reference (-want +got):\n%s", diff)
	}
}

// A variable that the class does not describe, or gives no example of, is not published.
func TestEveryFieldIsDescribed(t *testing.T) {
	for name, gone := range map[string]string{
		"no description of a variable": "description: How large.",
		"no description of a field":    "description: Its name, ",
		"no example of a variable":     "example: maas",
		"no example of a field":        ", example: b",
	} {
		read, err := readClass([]byte(strings.Replace(class, gone, "", 1)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := write(read, nil); err == nil {
			t.Errorf("%s: it is published all the same", name)
		}
	}
}

func TestNoClass(t *testing.T) {
	if _, err := readClass([]byte("kind: ConfigMap\n")); err == nil {
		t.Error("a class is found where there is none")
	}
	if err := run(t.TempDir(), filepath.Join(t.TempDir(), "none.yaml"), filepath.Join(t.TempDir(), "out.md")); err == nil {
		t.Error("a file is read that does not exist")
	}
}

// The fields of a variable are those of the kind, as far as a variable can have them.
func TestFieldsOfAKind(t *testing.T) {
	crds := t.TempDir()
	kind := func(lxd string) {
		t.Helper()
		text := "spec: {versions: [{schema: {openAPIV3Schema: {properties: {spec: {properties: {lxd: " + lxd + "}}}}}}]}\n"
		if err := os.WriteFile(filepath.Join(crds, "infrastructure.cluster.x-k8s.io_ms.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const before, after = "a:\n  # spec.lxd of ms, by hack/clusterclass; do not edit.\n", "  # End.\nb: 1\n"
	kind(`{properties: {disks: {type: array, maxItems: 2, x-kubernetes-list-type: atomic, items: {type: string}}}}`)
	got, err := fill([]byte(before+"  old: {}\n"+after), crds)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before+"  disks:\n    items:\n      type: string\n    maxItems: 2\n    type: array\n"+after, string(got)); diff != "" {
		t.Errorf("the class (-want +got):\n%s", diff)
	}
	for what, lxd := range map[string]string{
		"a rule across fields is left out": `{properties: {a: {type: string}}, x-kubernetes-validations: [{rule: has(self.a)}]}`,
		"a required field is left out":     `{properties: {a: {type: string}}, required: [a]}`,
		"nothing is filled in":             `{type: object}`,
	} {
		kind(lxd)
		if _, err := fill([]byte(before+after), crds); err == nil {
			t.Error(what)
		}
	}
	if _, err := fill([]byte("b: 1\n"), crds); err == nil {
		t.Error("a class is taken that lost its section")
	}
}

func TestVariablesInTemplates(t *testing.T) {
	for template, want := range map[string]bool{
		`{{ .zone }}`:                           true,
		`{{ if hasKey . "zone" }}true{{ end }}`: true,
		`{{ list .zone | toJson }}`:             true,
		`{{ .zone.name }}`:                      true,
		`{{ .zones }}`:                          false,
		`{{ .other.zone }}`:                     false,
		`zone`:                                  false,
		`{{ if hasKey .other "zone" }}yes{{ end }}`: false,
	} {
		if got := inTemplate(template, "zone"); got != want {
			t.Errorf("%s has the variable: %t, want %t", template, got, want)
		}
	}
}

const forKubeadm = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: ClusterClass
metadata: {name: c}
spec:
  infrastructure: {templateRef: {apiVersion: i/v1, kind: ClusterTemplate, name: c}}
  controlPlane:
    templateRef: {apiVersion: c/v1, kind: KubeadmControlPlaneTemplate, name: c-control-plane}
    machineInfrastructure: {templateRef: {apiVersion: i/v1, kind: MachineTemplate, name: c-control-plane}}
  workers:
    machineDeployments:
      - class: w
        bootstrap: {templateRef: {apiVersion: b/v1, kind: KubeadmConfigTemplate, name: c-w}}
        infrastructure: {templateRef: {apiVersion: i/v1, kind: MachineTemplate, name: c-w}}
  variables:
    - {name: port, required: false, schema: {openAPIV3Schema: {type: integer, description: The port., minimum: 1}}}
    - {name: size, required: false, schema: {openAPIV3Schema: {type: integer, description: How large., minimum: 1}}}
  patches:
    - name: port
      enabledIf: '{{ if hasKey . "port" }}true{{ end }}'
      definitions:
        - selector: {apiVersion: c/v1, kind: KubeadmControlPlaneTemplate, matchResources: {controlPlane: true}}
          jsonPatches: [{op: add, path: /port, valueFrom: {variable: port}}]
    - name: size
      definitions:
        - selector: {apiVersion: i/v1, kind: MachineTemplate, matchResources: {controlPlane: true}}
          jsonPatches: [{op: add, path: /size, valueFrom: {variable: size}}]
        - selector: {apiVersion: c/v1, kind: KubeadmControlPlaneTemplate, matchResources: {controlPlane: true}}
          jsonPatches: [{op: add, path: /size, valueFrom: {variable: size}}]
---
{apiVersion: i/v1, kind: MachineTemplate, metadata: {name: c-w}}
---
{apiVersion: b/v1, kind: KubeadmConfigTemplate, metadata: {name: c-w}}
`

const templates = `
---
{apiVersion: d/v1, kind: OtherControlPlaneTemplate, metadata: {name: c-other-control-plane}}
---
{apiVersion: d/v1, kind: OtherConfigTemplate, metadata: {name: c-other-w}}
`

const sizePatch = `
patches:
  - name: size
    definitions:
      - selector: {apiVersion: d/v1, kind: OtherControlPlaneTemplate, matchResources: {controlPlane: true}}
        jsonPatches: [{op: add, path: /other, valueFrom: {variable: size}}]
`

// The class of a distribution has its templates and patches in place of kubeadm's, and all else of the class for kubeadm.
func TestADistributionsClass(t *testing.T) {
	d, err := readDistribution([]byte(`
name: c-other
lacks: [port]
variables: [{name: size, schema: {openAPIV3Schema: {description: How large it is.}}}]` + sizePatch + templates))
	if err != nil {
		t.Fatal(err)
	}
	file, err := d.file([]byte(forKubeadm), "other.yaml")
	if err != nil {
		t.Fatal(err)
	}
	class, err := readClass(file)
	if err != nil {
		t.Fatal(err)
	}
	documents, err := split(file)
	if err != nil {
		t.Fatal(err)
	}
	size := class.Spec.Variables[0].Schema.OpenAPIV3Schema
	got := []any{
		class.Name, class.Spec.Infrastructure.TemplateRef.Name, class.Spec.ControlPlane.TemplateRef.Kind, class.Spec.ControlPlane.MachineInfrastructure.TemplateRef.Name,
		class.Spec.Workers.MachineDeployments[0].Bootstrap.TemplateRef.Name, class.Spec.Workers.MachineDeployments[0].Infrastructure.TemplateRef.Name,
		len(class.Spec.Variables), size.Type, size.Description, *size.Minimum, len(class.Spec.Patches),
	}
	want := []any{"c-other", "c-other", "OtherControlPlaneTemplate", "c-other-control-plane", "c-other-w", "c-other-w", 1, "integer", "How large it is.", int64(1), 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the class (-want +got):\n%s", diff)
	}
	var kinds []string
	for _, definition := range class.Spec.Patches[0].Definitions {
		kinds = append(kinds, definition.Selector.Kind)
	}
	rest, err := objects(documents[2:])
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range rest {
		kinds = append(kinds, o.GetKind())
	}
	want = []any{"MachineTemplate", "OtherControlPlaneTemplate", "MachineTemplate", "OtherControlPlaneTemplate", "OtherConfigTemplate"}
	if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(kinds)); diff != "" {
		t.Errorf("what the patch changes, and the templates (-want +got):\n%s", diff)
	}
}

func TestADistributionThatDoesNotFit(t *testing.T) {
	for name, content := range map[string]string{
		"a patch of kubeadm's that it does not replace": "lacks: [port]" + templates,
		"a variable that is not there":                  "lacks: [port, ports]" + sizePatch + templates,
		"a variable that nothing uses":                  "lacks: [port]\nvariables: [{name: other}]" + sizePatch + templates,
		"no templates":                                  "lacks: [port]" + sizePatch,
	} {
		d, err := readDistribution([]byte(content))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := d.file([]byte(forKubeadm), ""); !errors.Is(err, errDistribution) {
			t.Errorf("%s: %v, want an error that it does not fit", name, err)
		}
	}
}
