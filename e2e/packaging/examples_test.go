// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// The examples are accepted, field by field, and Cluster API creates their objects without errors. Each is in the
// documents.
func TestExamples(t *testing.T) {
	t.Parallel()
	namespace := newClass(t)
	paths, err := filepath.Glob(filepath.Join(sources, "clusterclass", "examples", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < 6 {
		t.Errorf("only %d examples are found: %v", len(paths), paths)
	}
	document, err := os.ReadFile(filepath.Join(sources, "docs", "clusterclass.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(string(document), "(../clusterclass/examples/"+filepath.Base(path)+")") {
				t.Error("docs/clusterclass.md has no link to it")
			}
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			objects := mustParse(t, content)
			clusters := ofKind(objects, "Cluster")
			if len(clusters) != 1 {
				t.Fatalf("%d Clusters, want 1", len(clusters))
			}
			clusters[0].SetNamespace(namespace)
			if err := management.strict.Create(t.Context(), clusters[0]); err != nil {
				t.Fatal(err)
			}
			cluster := &clusterv1.Cluster{}
			if err := management.Get(t.Context(), client.ObjectKeyFromObject(clusters[0]), cluster); err != nil {
				t.Fatal(err)
			}
			checkPools(t, cluster, objects)
			got := observe(t, reconciled(t, cluster))
			if len(got.workers) != len(cluster.Spec.Topology.Workers.MachineDeployments) {
				t.Errorf("%d MachineDeployments, want %d", len(got.workers), len(cluster.Spec.Topology.Workers.MachineDeployments))
			}
		})
	}
}

// What the class, and with it docs/variables.md, gives as an example of a variable is accepted.
func TestExamplesOfVariables(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	class := &clusterv1.ClusterClass{}
	if err := management.Get(t.Context(), client.ObjectKey{Namespace: sharedClass(t), Name: "capmaas"}, class); err != nil {
		t.Fatal(err)
	}
	for _, v := range class.Spec.Variables {
		cluster := newCluster(t, namespace, "{dnsDomain: maas, image: i}", "")
		example := clusterv1.ClusterVariable{Name: v.Name, Value: *v.Schema.OpenAPIV3Schema.Example}
		cluster.Spec.Topology.Variables = with(cluster.Spec.Topology.Variables, []clusterv1.ClusterVariable{example})
		if err := management.Create(t.Context(), cluster, client.DryRunAll); err != nil {
			t.Errorf("%s: %s: %v", v.Name, example.Value.Raw, err)
		}
	}
}

// checkPools wants the pools that a Cluster refers to beside it, and no other objects: the kind of a pool belongs to
// its provider, and is not known here.
func checkPools(t *testing.T, cluster *clusterv1.Cluster, objects []*unstructured.Unstructured) {
	t.Helper()
	var want, got []ipamv1.IPPoolReference
	for _, v := range cluster.Spec.Topology.Variables {
		if v.Name != "staticIPPoolRef" && v.Name != "workerStaticIPPoolRef" {
			continue
		}
		ref := ipamv1.IPPoolReference{}
		if err := yaml.UnmarshalStrict(v.Value.Raw, &ref); err != nil {
			t.Fatal(err)
		}
		want = append(want, ref)
	}
	for _, o := range objects {
		if o.GetKind() != "Cluster" {
			got = append(got, ipamv1.IPPoolReference{APIGroup: o.GroupVersionKind().Group, Kind: o.GetKind(), Name: o.GetName()})
		}
	}
	if !slices.Equal(want, got) {
		t.Errorf("the pools beside the Cluster are %v, want %v", got, want)
	}
}
