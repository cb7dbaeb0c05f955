// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/capmaas/cluster-api-provider-maas/test/autoscaler"
)

// scaled returns the MachineDeployments in documents and in the examples of ClusterClasses that the autoscaler scales.
func scaled(t *testing.T) (all []*clusterv1.MachineDeployment) {
	t.Helper()
	add := func(from string, m clusterv1.ObjectMeta, labels map[string]string) {
		md := &clusterv1.MachineDeployment{}
		md.Name, md.Annotations, md.Spec.Template.Labels = from, m.Annotations, labels
		isScaled := func(key string) bool { return strings.Contains(key, "autoscaler") }
		for key := range m.Annotations {
			if isScaled(key) {
				all = append(all, md)
				return
			}
		}
	}
	for _, b := range manifests(t) {
		md := &clusterv1.MachineDeployment{}
		if err := yaml.Unmarshal([]byte(b.text), md); err == nil && md.Kind == "MachineDeployment" {
			add(b.document+": "+md.Name, clusterv1.ObjectMeta{Annotations: md.Annotations}, md.Spec.Template.Labels)
		}
	}
	examples, err := filepath.Glob("../clusterclass/examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range examples {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range nextObject.Split(string(content), -1) {
			cluster := &clusterv1.Cluster{}
			if err := yaml.Unmarshal([]byte(object), cluster); err != nil || cluster.Kind != "Cluster" {
				continue
			}
			for _, md := range cluster.Spec.Topology.Workers.MachineDeployments {
				add(filepath.Base(path)+": "+md.Name, md.Metadata, md.Metadata.Labels)
			}
		}
	}
	return all
}

// What documents and examples say to the autoscaler, it understands: each has both bounds, and the labels and taints of
// the nodes that are not there yet are those that the Nodes get.
func TestTheAutoscalerUnderstandsTheDocuments(t *testing.T) {
	t.Parallel()
	deployments := scaled(t)
	if len(deployments) < 2 {
		t.Errorf("only %d MachineDeployments are scaled", len(deployments))
	}
	page, err := os.ReadFile("placement.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), autoscaler.Version) {
		t.Errorf("placement.md does not name the autoscaler's version %s", autoscaler.Version)
	}
	template := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{
		"capacity": map[string]any{"cpu": "4", "memory": "8Gi"}, "nodeInfo": map[string]any{"architecture": "amd64", "operatingSystem": "linux"},
	}}}
	for _, md := range deployments {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(0)}}}
		object.SetName(md.Name)
		object.SetAnnotations(md.Annotations)
		groups, err := autoscaler.Groups([]*unstructured.Unstructured{object}, func(string) *unstructured.Unstructured { return template })
		group, ok := groups[md.Name]
		if err != nil || !ok || md.Annotations[autoscaler.MinSize] == "" {
			t.Errorf("%s is no group with both bounds: %v", md.Name, err)
			continue
		}
		for key, value := range md.Spec.Template.Labels {
			if got, known := group.Labels[key]; !known || got != value {
				t.Errorf("%s: the autoscaler does not know the label %s=%s of its nodes: %v", md.Name, key, value, group.Labels)
			}
		}
		given := md.Annotations["capacity.cluster-autoscaler.kubernetes.io/taints"]
		if want := strings.Count(given, ":"); len(group.Taints) != want || slices.ContainsFunc(group.Taints, func(t corev1.Taint) bool { return t.Effect == "" }) {
			t.Errorf("%s: of the taints %q the autoscaler reads %v", md.Name, given, group.Taints)
		}
	}
}

// One group with wrong bounds leaves the autoscaler without any, and a taint after a blank is lost: what the document
// warns of.
func TestWhatTheAutoscalerDoesNotForgive(t *testing.T) {
	t.Parallel()
	group := func(name string, annotations map[string]string) *unstructured.Unstructured {
		md := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(1)}}}
		md.SetName(name)
		md.SetAnnotations(annotations)
		return md
	}
	good := group("good", map[string]string{autoscaler.MinSize: "0", autoscaler.MaxSize: "3"})
	none := func(string) *unstructured.Unstructured { return nil }
	for name, tc := range map[string]struct {
		annotations map[string]string
		groups      int
	}{
		"both bounds":               {map[string]string{autoscaler.MinSize: "1", autoscaler.MaxSize: "3"}, 2},
		"no bounds":                 {nil, 1},
		"a maximum alone":           {map[string]string{autoscaler.MaxSize: "3"}, 2},
		"a minimum alone":           {map[string]string{autoscaler.MinSize: "1"}, 0},
		"a maximum below":           {map[string]string{autoscaler.MinSize: "3", autoscaler.MaxSize: "1"}, 0},
		"a bound that is no number": {map[string]string{autoscaler.MinSize: "0", autoscaler.MaxSize: "many"}, 0},
	} {
		groups, err := autoscaler.Groups([]*unstructured.Unstructured{good, group("other", tc.annotations)}, none)
		if len(groups) != tc.groups || (err == nil) != (tc.groups > 0) {
			t.Errorf("%s: %s: %d groups (%v), want %d", autoscaler.Version, name, len(groups), err, tc.groups)
		}
	}
	tainted := group("good", map[string]string{
		autoscaler.MinSize: "0", autoscaler.MaxSize: "3", "capacity.cluster-autoscaler.kubernetes.io/taints": "a=b:NoSchedule, c=d:NoSchedule",
	})
	if groups, err := autoscaler.Groups([]*unstructured.Unstructured{tainted}, none); err != nil || len(groups["good"].Taints) != 1 {
		t.Errorf("%s: the taints are %v (%v)", autoscaler.Version, groups["good"].Taints, err)
	}
}
