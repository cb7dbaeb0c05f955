// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Flavors that the specs want, made from this project's. Cluster API's book describes what is in them.
const (
	flavorRemediateWorkers       = "spec-md-remediation"
	flavorRemediateControlPlanes = "spec-kcp-remediation"
	flavorTaints                 = "spec-taints"
	flavorTopologyTaints         = "spec-topology-taints"
	flavorUpgrade                = "spec-upgrade"
	flavorScaleIn                = "spec-scale-in"
	flavorClass                  = "spec-class"
	flavorAdoption               = "spec-kcp-adoption"
	flavorImageByVersion         = "spec-image-by-version"

	// class is the ClusterClass of flavorClass.
	class = "spec"
)

type object = map[string]any

// template is a cluster template, or a ClusterClass, with variables instead of some values.
type template []object

// flavors are how they are made: from which flavor, and what is changed.
var flavors = map[string]struct {
	from   string
	change func(template) (template, error)
}{
	flavorRemediateWorkers:                {"", remediateWorkers},
	flavorRemediateControlPlanes:          {"", remediateControlPlanes},
	"lxd-" + flavorRemediateControlPlanes: {"lxd", remediateControlPlanes},
	flavorTaints:                          {"", taint},
	flavorTopologyTaints:                  {"topology", taintTopology},
	flavorUpgrade:                         {"", addUpgradeTemplates},
	flavorScaleIn:                         {"topology", scaleIn},
	flavorClass:                           {"topology", useClass},
	flavorAdoption:                        {"", adopt},
	"lxd-" + flavorImageByVersion:         {"lxd-topology", followVersion},
}

// writeFlavors adds the flavors, and their ClusterClass, to a clusterctl repository.
func writeFlavors(repository string) error {
	for name, flavor := range flavors {
		t, err := readTemplate(filepath.Join(repository, templateFile(flavor.from)))
		if err != nil {
			return err
		}
		if t, err = flavor.change(t); err != nil {
			return fmt.Errorf("making the flavor %s: %w", name, err)
		}
		if err := t.write(filepath.Join(repository, templateFile(name))); err != nil {
			return err
		}
	}
	return writeClass(repository)
}

func templateFile(flavor string) string {
	return strings.TrimSuffix("cluster-template-"+flavor, "-") + ".yaml"
}

func readTemplate(file string) (template, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	t, err := parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return t, nil
}

func parse(text string) (template, error) {
	var t template
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		o := object{}
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return nil, err
		}
		if len(o) > 0 {
			t = append(t, o)
		}
	}
}

func (t template) write(file string) error {
	text := bytes.Buffer{}
	for _, o := range t {
		document, err := yaml.Marshal(o)
		if err != nil {
			return fmt.Errorf("writing %s: %w", file, err)
		}
		text.WriteString("---\n")
		text.Write(document)
	}
	return os.WriteFile(file, text.Bytes(), 0o600)
}

// errNoObject is for flavors that lack what is to be changed.
var errNoObject = errors.New("the flavor has no such object")

// merge merges YAML into each object of a kind. Lists are appended to.
func (t template) merge(kind, text string) (template, error) {
	more := object{}
	if err := yaml.Unmarshal([]byte(text), &more); err != nil {
		return nil, err
	}
	found := false
	for _, o := range t {
		if o["kind"] == kind {
			mergeInto(o, more)
			found = true
		}
	}
	if !found {
		return nil, fmt.Errorf("%w: %s", errNoObject, kind)
	}
	return t, nil
}

func mergeInto(into, more object) {
	for name, value := range more {
		switch value := value.(type) {
		case object:
			if nested, ok := into[name].(object); ok {
				mergeInto(nested, value)
				continue
			}
		case []any:
			if list, ok := into[name].([]any); ok {
				into[name] = append(list, value...)
				continue
			}
		}
		into[name] = value
	}
}

// with adds objects.
func (t template) with(text string) (template, error) {
	more, err := parse(text)
	return append(t, more...), err
}

// copyOf returns an object of a kind, with another name.
func (t template) copyOf(kind, suffix, name string) (object, error) {
	for _, o := range t {
		if o["kind"] != kind || !strings.HasSuffix(nameOf(o), suffix) {
			continue
		}
		text, err := yaml.Marshal(o)
		if err != nil {
			return nil, err
		}
		other := object{}
		if err := yaml.Unmarshal(text, &other); err != nil {
			return nil, err
		}
		mergeInto(other, object{"metadata": object{"name": name}})
		return other, nil
	}
	return nil, fmt.Errorf("%w: %s *%s", errNoObject, kind, suffix)
}

func nameOf(o object) string {
	metadata, _ := o["metadata"].(object)
	name, _ := metadata["name"].(string)
	return name
}

// healthCheck has Machines replaced soon after their Node has the condition with which the specs make it unhealthy.
const healthCheck = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata: {name: "${CLUSTER_NAME}-spec", namespace: "${NAMESPACE}"}
spec:
  clusterName: "${CLUSTER_NAME}"
  selector: {matchLabels: %s}
  checks:
    nodeStartupTimeoutSeconds: %d
    unhealthyNodeConditions: [{type: e2e.remediation.condition, status: "False", timeoutSeconds: 10}]
  remediation: {triggerIf: {unhealthyLessThanOrEqualTo: "100%%"}}
`

// remediateWorkers has workers that are labelled replaced when they are unhealthy.
func remediateWorkers(t template) (template, error) {
	const labels = `{e2e.remediation.label: ""}`
	t, err := t.merge("MachineDeployment", "{spec: {template: {metadata: {labels: "+labels+"}}}}")
	if err != nil {
		return nil, err
	}
	return t.with(fmt.Sprintf(healthCheck, labels, 0))
}

// remediateControlPlanes has control planes wait for a signal before they run kubeadm.
func remediateControlPlanes(t template) (template, error) {
	wait, err := yaml.Marshal(object{"spec": object{"kubeadmConfigSpec": object{
		"files":              []any{object{"path": signalScript, "permissions": "0755", "content": signalScriptText}},
		"preKubeadmCommands": []any{signalScript + " ${TOKEN} ${SERVER} ${NAMESPACE}"},
	}}})
	if err != nil {
		return nil, err
	}
	if t, err = t.merge("KubeadmControlPlane", string(wait)); err != nil {
		return nil, err
	}
	return t.with(fmt.Sprintf(healthCheck, `{cluster.x-k8s.io/control-plane: "", mhc-test: fail}`, 30))
}

// taints are the two that the specs look for.
const taints = `{taints: [
  {key: pre-existing-always-taint, value: always-value, effect: PreferNoSchedule, propagation: Always},
  {key: pre-existing-on-initialization-taint, value: on-initialization-value, effect: PreferNoSchedule, propagation: OnInitialization}]}`

func taint(t template) (template, error) {
	t, err := t.merge("KubeadmControlPlane", "{spec: {machineTemplate: {spec: "+taints+"}}}")
	if err != nil {
		return nil, err
	}
	return t.merge("MachineDeployment", "{spec: {template: {spec: "+taints+"}}}")
}

func taintTopology(t template) (template, error) {
	t, err := t.merge("Cluster", "{spec: {topology: {controlPlane: "+taints+"}}}")
	if err != nil {
		return nil, err
	}
	more := object{}
	if err := yaml.Unmarshal([]byte(taints), &more); err != nil {
		return nil, err
	}
	for _, o := range t {
		if o["kind"] != "Cluster" {
			continue
		}
		err := eachWorker(o, func(worker object) error {
			mergeInto(worker, more)
			return nil
		}, "spec", "topology", "workers", "machineDeployments")
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

// eachWorker changes each element of a list of workers.
func eachWorker(o object, change func(object) error, path ...string) error {
	workers, _, err := unstructured.NestedSlice(o, path...)
	if err != nil {
		return err
	}
	for _, worker := range workers {
		if err := change(worker.(object)); err != nil {
			return err
		}
	}
	return unstructured.SetNestedSlice(o, workers, path...)
}

// addUpgradeTemplates adds machine templates with the image of the version that clusters are upgraded to.
func addUpgradeTemplates(t template) (template, error) {
	for suffix, name := range map[string]string{"-control-plane": controlPlaneUpgradeTo, "-md-0": workersUpgradeTo} {
		newer, err := t.copyOf("MaasMachineTemplate", suffix, name)
		if err != nil {
			return nil, err
		}
		mergeInto(newer, object{"spec": object{"template": object{"spec": object{"image": "${" + imageUpgradeToVariable + "}"}}}})
		t = append(t, newer)
	}
	return t, nil
}

// scaleIn has a control plane removed before another is made.
func scaleIn(t template) (template, error) {
	return t.merge("Cluster", "{spec: {topology: {variables: [{name: controlPlaneMaxSurge, value: 0}]}}}")
}

// useClass has the cluster use a ClusterClass that the spec can change.
func useClass(t template) (template, error) {
	return t.merge("Cluster", "{spec: {topology: {classRef: {name: "+class+"}}}}")
}

// followVersion has the image follow the version, where a spec sets no variables.
func followVersion(t template) (template, error) { return t.withImage(imageByVersionVariable) }

// withImage has machines run the image that a variable names.
func (t template) withImage(variable string) (template, error) {
	text, err := yaml.Marshal(t)
	if err != nil {
		return nil, err
	}
	text = bytes.ReplaceAll(text, []byte("${"+imageVariable+"}"), []byte("${"+variable+"}"))
	t = nil
	err = yaml.Unmarshal(text, &t)
	return t, err
}

// writeClass adds that ClusterClass: this project's, with a bootstrap template for each class of workers. The spec
// copies the template of each.
func writeClass(repository string) error {
	t, err := readTemplate(filepath.Join(repository, "clusterclass-capmaas.yaml"))
	if err != nil {
		return err
	}
	for _, o := range t {
		if o["kind"] != "ClusterClass" {
			continue
		}
		o["metadata"] = object{"name": class}
		err := eachWorker(o, func(worker object) error {
			name := fmt.Sprintf("%s-%s", class, worker["class"])
			bootstrap, err := t.copyOf("KubeadmConfigTemplate", "", name)
			if err != nil {
				return err
			}
			t = append(t, bootstrap)
			return unstructured.SetNestedField(worker, name, "bootstrap", "templateRef", "name")
		}, "spec", "workers", "machineDeployments")
		if err != nil {
			return err
		}
	}
	return t.write(filepath.Join(repository, "clusterclass-"+class+".yaml"))
}
