// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/test/e2e"
	"sigs.k8s.io/yaml"
)

// It runs with the newer version: below 1.36 a KubeadmControlPlane adds a feature gate, and replaces what it adopted.
var _ = describe("KCPAdoptionSpec", "default", func(ctx context.Context) {
	e2e.KCPAdoptionSpec(ctx, func() e2e.KCPAdoptionSpecInput {
		return e2e.KCPAdoptionSpecInput{
			E2EConfig:            here.with(map[string]string{e2e.KubernetesVersion: here.config.Variables[e2e.KubernetesVersionUpgradeTo]}),
			ClusterctlConfigPath: here.clusterctl, BootstrapClusterProxy: here.proxy, ArtifactFolder: here.artifacts,
			InfrastructureProvider: &infrastructure, PostNamespaceCreated: here.addNetwork,
			Flavor: ptr.To(flavorAdoption),
		}
	})
})

// adopt has a control plane made without a KubeadmControlPlane, by the objects of the first step, and adopted by that of
// the second.
func adopt(t template) (template, error) {
	t, err := t.withImage(imageUpgradeToVariable)
	if err != nil {
		return nil, err
	}
	first := slices.DeleteFunc(slices.Clone(t), func(o object) bool { return o["kind"] != "MaasCluster" })
	second := slices.DeleteFunc(slices.Clone(t), func(o object) bool {
		return o["kind"] != "KubeadmControlPlane" && o["kind"] != "Cluster" && (o["kind"] != "MaasMachineTemplate" || nameOf(o) != "${CLUSTER_NAME}-control-plane")
	})
	cluster, err := t.copyOf("Cluster", "", "${CLUSTER_NAME}")
	if err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(cluster, "spec", "controlPlaneRef")
	machine, err := second.machine()
	if err != nil {
		return nil, err
	}
	first = append(append(first, cluster), machine...)
	for step, objects := range map[string]template{"kcp-adoption.step1": first, "kcp-adoption.step2": second} {
		for _, o := range objects {
			mergeInto(o, object{"metadata": object{"labels": object{step: ""}}})
		}
	}
	return append(first, second...), nil
}

// machine returns the Machine that a KubeadmControlPlane would make first, and its parts.
func (t template) machine() (template, error) {
	const name = "${CLUSTER_NAME}-control-plane-0"
	metadata := object{"name": name, "namespace": "${NAMESPACE}", "labels": object{clusterv1.MachineControlPlaneLabel: ""}}
	var bootstrap, infrastructure object
	for _, o := range t {
		switch o["kind"] {
		case "KubeadmControlPlane":
			bootstrap, _, _ = unstructured.NestedMap(o, "spec", "kubeadmConfigSpec")
		case "MaasMachineTemplate":
			infrastructure, _, _ = unstructured.NestedMap(o, "spec", "template", "spec")
		}
	}
	if bootstrap == nil || infrastructure == nil {
		return nil, fmt.Errorf("%w: a control plane's", errNoObject)
	}
	delete(bootstrap, "joinConfiguration")
	reference := func(group, kind string) object { return object{"apiGroup": group, "kind": kind, "name": name} }
	text, err := yaml.Marshal([]object{
		{"apiVersion": "bootstrap.cluster.x-k8s.io/v1beta2", "kind": "KubeadmConfig", "metadata": metadata, "spec": bootstrap},
		{"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine", "metadata": metadata, "spec": infrastructure},
		{"apiVersion": clusterv1.GroupVersion.String(), "kind": "Machine", "metadata": metadata, "spec": object{
			"clusterName": "${CLUSTER_NAME}", "version": "${KUBERNETES_VERSION}",
			"bootstrap":         object{"configRef": reference("bootstrap.cluster.x-k8s.io", "KubeadmConfig")},
			"infrastructureRef": reference("infrastructure.cluster.x-k8s.io", "MaasMachine"),
		}},
	})
	if err != nil {
		return nil, err
	}
	made := template{} // each with metadata of its own
	err = yaml.Unmarshal(text, &made)
	return made, err
}
