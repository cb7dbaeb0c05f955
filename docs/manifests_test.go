// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

var (
	inlineManifest = regexp.MustCompile(`(?ms)<<-?'?YAML'?[^\n]*\n(.*?)\nYAML$`)
	nextObject     = regexp.MustCompile(`(?m)^---$`)
)

// manifests are the objects in documents, and in the examples beside them.
func manifests(t *testing.T) (all []block) {
	t.Helper()
	add := func(document, text string) {
		for _, object := range nextObject.Split(text, -1) {
			if strings.Contains(object, "\nkind: ") {
				all = append(all, block{document, "yaml", object})
			}
		}
	}
	for _, b := range blocks(t) {
		switch b.language {
		case "yaml":
			add(b.document, b.text)
		case "sh":
			for _, inner := range inlineManifest.FindAllStringSubmatch(b.text, -1) {
				add(b.document, inner[1])
			}
		}
	}
	examples, err := filepath.Glob(filepath.Join("examples", "*.yaml"))
	if err != nil || len(examples) == 0 {
		t.Fatalf("%d examples: %v", len(examples), err)
	}
	for _, example := range examples {
		add(example, read(t, example))
	}
	return all
}

// Objects in documents have no fields that their kinds don't have, and variables that the ClusterClass has.
func TestManifestsInDocumentsAreStrict(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		infrav1.AddToScheme, clusterv1.AddToScheme, controlplanev1.AddToScheme, bootstrapv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	known, seen := map[string]map[string]bool{}, 0
	for _, class := range classes(t) {
		known[class.Name] = variablesIn(class)
	}
	for _, manifest := range manifests(t) {
		kind := struct{ APIVersion, Kind string }{}
		if err := yaml.Unmarshal([]byte(manifest.text), &kind); err != nil {
			t.Errorf("%s: %v\n%s", manifest.document, err, manifest.text)
			continue
		}
		gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
		object, err := scheme.New(gvk)
		if err != nil {
			continue // not ours, nor Cluster API's
		}
		seen++
		if err := yaml.UnmarshalStrict([]byte(manifest.text), object); err != nil {
			t.Errorf("%s: %s: %v", manifest.document, kind.Kind, err)
		}
		if cluster, ok := object.(*clusterv1.Cluster); ok {
			for _, variable := range variablesSet(cluster) {
				if class := cluster.Spec.Topology.ClassRef.Name; !known[class][variable.Name] {
					t.Errorf("%s: the ClusterClass %s has no variable %s", manifest.document, class, variable.Name)
				}
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d objects were found: the pattern is wrong", seen)
	}
}

// variablesSet are all variables that a Cluster sets, overrides too.
func variablesSet(cluster *clusterv1.Cluster) []clusterv1.ClusterVariable {
	all := slices.Concat(cluster.Spec.Topology.Variables, cluster.Spec.Topology.ControlPlane.Variables.Overrides)
	for _, deployment := range cluster.Spec.Topology.Workers.MachineDeployments {
		all = append(all, deployment.Variables.Overrides...)
	}
	return all
}

// classes are all ClusterClasses.
func classes(t *testing.T) (all []*clusterv1.ClusterClass) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "clusterclass", "clusterclass-*.yaml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files with ClusterClasses: %v", len(files), err)
	}
	for _, file := range files {
		for _, object := range nextObject.Split(read(t, file), -1) {
			class := &clusterv1.ClusterClass{}
			if err := yaml.Unmarshal([]byte(object), class); err == nil && class.Kind == "ClusterClass" {
				all = append(all, class)
			}
		}
	}
	return all
}

func variablesIn(class *clusterv1.ClusterClass) map[string]bool {
	names := map[string]bool{}
	for _, variable := range class.Spec.Variables {
		names[variable.Name] = true
	}
	return names
}
