// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

// bootstrapFlavors are what the flavors of other bootstrap providers consist of.
var bootstrapFlavors = map[string]struct {
	// module has their CRDs in crds. If the Go module proxy does not have it, the kinds are not served here.
	module string
	crds   []string

	controlPlane, config string   // kinds
	template             []string // where the control plane names its MaasMachineTemplate
	nodeNames            []string // where the control plane says how the Nodes are named
	workerNames          []string // where the workers' template does
}{
	"lxd-k3s": {
		module: "github.com/k3s-io/cluster-api-k3s@v0.4.0",
		crds: []string{
			"bootstrap/config/crd/bases/bootstrap.cluster.x-k8s.io_kthreesconfigtemplates.yaml",
			"controlplane/config/crd/bases/controlplane.cluster.x-k8s.io_kthreescontrolplanes.yaml",
		},
		controlPlane: "KThreesControlPlane", config: "KThreesConfigTemplate", template: []string{"spec", "machineTemplate", "infrastructureRef"},
		nodeNames:   []string{"spec", "kthreesConfigSpec", "agentConfig", "nodeName"},
		workerNames: []string{"spec", "template", "spec", "agentConfig", "nodeName"},
	},
	"lxd-ck8s": {
		controlPlane: "CK8sControlPlane", config: "CK8sConfigTemplate", template: []string{"spec", "machineTemplate", "infrastructureTemplate"},
		nodeNames: []string{"spec", "spec", "nodeName"}, workerNames: []string{"spec", "template", "spec", "nodeName"},
	},
}

// The API server accepts these flavors, field by field; each reference leads to an object, and Nodes are named like
// machines in MAAS.
func TestFlavorsOfOtherBootstrapProviders(t *testing.T) {
	dir := repository(t)
	for flavor, want := range bootstrapFlavors {
		t.Run("flavor "+flavor, func(t *testing.T) {
			unknown := []string{want.controlPlane, want.config}
			if want.module != "" {
				installCRDs(t, downloaded(t, t.TempDir(), want.module), want.crds...)
				unknown = nil
			}
			namespace := newNamespace(t)
			out, err := generate(t, dir, flavor, namespace, map[string]string{"MAAS_DNS_DOMAIN": "maas", "MAAS_IMAGE": "ubuntu/noble"})
			if err != nil {
				t.Fatal(err)
			}
			objects := map[string]*unstructured.Unstructured{}
			for _, o := range mustParse(t, out) {
				objects[o.GetKind()+"/"+o.GetName()] = o
				if slices.Contains(unknown, o.GetKind()) {
					continue
				}
				if err := management.strict.Create(t.Context(), o); err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
				if len(unknown) > 0 && o.GroupVersionKind().Group == clusterv1.GroupVersion.Group {
					// The API server would try all the time to convert what refers to a kind that it does not have.
					t.Cleanup(func() {
						if err := management.Delete(context.WithoutCancel(t.Context()), o); err != nil {
							t.Error(err)
						}
					})
				}
			}
			find := func(kind, name string) *unstructured.Unstructured {
				o, found := objects[kind+"/"+name]
				if !found {
					t.Fatalf("there is no %s %s", kind, name)
				}
				return o
			}
			cluster, workers := find("Cluster", "c1"), find("MachineDeployment", "c1-md-0")
			controlPlane := find(want.controlPlane, textIn(t, cluster, "spec", "controlPlaneRef", "name"))
			config := find(want.config, textIn(t, workers, "spec", "template", "spec", "bootstrap", "configRef", "name"))
			find("MaasCluster", textIn(t, cluster, "spec", "infrastructureRef", "name"))
			for what, texts := range map[string][2]string{
				"controlPlaneRef":            {want.controlPlane, textIn(t, cluster, "spec", "controlPlaneRef", "kind")},
				"configRef":                  {want.config, textIn(t, workers, "spec", "template", "spec", "bootstrap", "configRef", "kind")},
				"version of the template":    {infrav1.GroupVersion.String(), textIn(t, controlPlane, append(want.template, "apiVersion")...)},
				"names of the control plane": {nodeName, textIn(t, controlPlane, want.nodeNames...)},
				"names of the workers":       {nodeName, textIn(t, config, want.workerNames...)},
			} {
				if texts[0] != texts[1] {
					t.Errorf("%s: %q, want %q", what, texts[1], texts[0])
				}
			}
			machines := "image: ubuntu/noble, resourcePool: default, tags: [], " + sizes
			checkMachines(t, "the control plane", "lxd", machines, readTemplate(t, namespace, textIn(t, controlPlane, append(want.template, "name")...)))
			checkMachines(t, "the workers", "bare-metal", machines, readTemplate(t, namespace, textIn(t, workers, "spec", "template", "spec", "infrastructureRef", "name")))
		})
	}
}

// Cluster API accepts the ClusterClasses of other distributions, with their patches and variables, and their flavors set
// variables that they have. What becomes of a Cluster is tested with the distributions' own providers, in e2e/bootstrap.
func TestClassesOfOtherDistributions(t *testing.T) {
	dir := repository(t)
	for _, distribution := range []string{"k3s", "rke2"} {
		t.Run(distribution, func(t *testing.T) {
			t.Parallel()
			namespace := newNamespace(t)
			out, err := generate(t, dir, "lxd-"+distribution+"-topology", namespace, map[string]string{"MAAS_DNS_DOMAIN": "maas", "MAAS_IMAGE": "custom/u-{version}"})
			if err != nil {
				t.Fatal(err)
			}
			objects := mustParse(t, out)
			for _, o := range slices.Concat(ofKind(objects, "ClusterClass"), ofKind(objects, "MaasClusterTemplate"), ofKind(objects, "MaasMachineTemplate")) {
				if err := management.strict.Create(t.Context(), o); err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
			}
			awaitClass(t, namespace, "capmaas-"+distribution)
			class, cluster := &clusterv1.ClusterClass{}, &clusterv1.Cluster{}
			if err := management.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "capmaas-" + distribution}, class); err != nil {
				t.Fatal(err)
			}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(ofKind(objects, "Cluster")[0].Object, cluster); err != nil {
				t.Fatal(err)
			}
			for _, set := range cluster.Spec.Topology.Variables {
				if !slices.ContainsFunc(class.Spec.Variables, func(v clusterv1.ClusterClassVariable) bool { return v.Name == set.Name }) {
					t.Errorf("the flavor sets the variable %s, which its class lacks", set.Name)
				}
			}
		})
	}
}

// nodeName is the machine's name in MAAS, in a template of cloud-init.
const nodeName = "{{ local_hostname }}"

// installCRDs installs CRDs from files of a module.
func installCRDs(t *testing.T, module string, files ...string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", management.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, file := range files {
		paths = append(paths, filepath.Join(module, filepath.FromSlash(file)))
	}
	options := envtest.CRDInstallOptions{Paths: paths, ErrorIfPathMissing: true, MaxTime: eventually.Limit}
	if _, err := envtest.InstallCRDs(config, options); err != nil {
		t.Fatal(err)
	}
}

// textIn returns a text in an object.
func textIn(t *testing.T, o *unstructured.Unstructured, path ...string) string {
	t.Helper()
	text, found, err := unstructured.NestedString(o.Object, path...)
	if err != nil || !found {
		t.Fatalf("%s %s has no %v: %v", o.GetKind(), o.GetName(), path, err)
	}
	return text
}
