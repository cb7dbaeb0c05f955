// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinedeployment/mdutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

// machinesOf is what Machines of a Cluster are made from, by MachineDeployment in the topology, and control-plane. When
// it changes, they are replaced.
func machinesOf(t *testing.T, cluster *clusterv1.Cluster) map[string]string {
	t.Helper()
	kcp := &controlplanev1.KubeadmControlPlane{}
	if err := management.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Spec.ControlPlaneRef.Name}, kcp); err != nil {
		t.Fatal(err)
	}
	deployments := &clusterv1.MachineDeploymentList{}
	if err := management.List(t.Context(), deployments, client.InNamespace(cluster.Namespace)); err != nil {
		t.Fatal(err)
	}
	marshal := func(values ...any) string {
		content, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	result := map[string]string{"control-plane": marshal(kcp.Spec.Version, kcp.Spec.KubeadmConfigSpec, kcp.Spec.MachineTemplate.Spec)}
	for _, md := range deployments.Items {
		result[md.Labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel]] = marshal(mdutil.MachineTemplateDeepCopyRolloutFields(&md.Spec.Template))
	}
	return result
}

// replaced returns which machines are made from something else than before.
func replaced(before, after map[string]string) []string {
	list := []string{}
	for name, made := range after {
		if made != before[name] {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// change changes a Cluster's topology, and waits until Cluster API has applied it.
func change(t *testing.T, cluster *clusterv1.Cluster, how func(*clusterv1.Topology)) {
	t.Helper()
	patch := client.MergeFrom(cluster.DeepCopy())
	how(&cluster.Spec.Topology)
	if err := management.Patch(t.Context(), cluster, patch); err != nil {
		t.Fatal(err)
	}
	reconciled(t, cluster)
}

// with is a list of variables with some more, or with other values.
func with(old, others []clusterv1.ClusterVariable) []clusterv1.ClusterVariable {
	result := slices.DeleteFunc(slices.Clone(old), func(v clusterv1.ClusterVariable) bool {
		return slices.ContainsFunc(others, func(other clusterv1.ClusterVariable) bool { return other.Name == v.Name })
	})
	return append(result, others...)
}

// without returns a list of variables without one.
func without(old []clusterv1.ClusterVariable, name string) []clusterv1.ClusterVariable {
	return slices.DeleteFunc(slices.Clone(old), func(v clusterv1.ClusterVariable) bool { return v.Name == name })
}

// machineDeployment is a MachineDeployment of a topology.
func machineDeployment(topology *clusterv1.Topology, name string) *clusterv1.MachineDeploymentTopology {
	deployments := topology.Workers.MachineDeployments
	return &deployments[slices.IndexFunc(deployments, func(md clusterv1.MachineDeploymentTopology) bool { return md.Name == name })]
}

// mixed creates a Cluster with machines of all kinds, of the class in its namespace, and returns it when its machines
// are asked for.
func mixed(t *testing.T, namespace string) *clusterv1.Cluster {
	t.Helper()
	cluster := newMixedCluster(t, namespace, "{dnsDomain: maas, image: i, lxdConfig: {}}")
	cluster.Spec.Topology.ClassRef.Namespace = namespace
	if err := management.strict.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	return reconciled(t, cluster)
}

// Every machine of the mixed Cluster.
var (
	allControlPlanes = []string{"control-plane"}
	allWorkers       = []string{"metal", "other", "vms"}
	allMachines      = []string{"control-plane", "metal", "other", "vms"}
	none             = []string{}
)

// A variable replaces only the machines that it affects. The topology controller uses dry runs to find out what to
// replace, which the policy on templates allows. Each step adds to those before it. The documents describe each
// variable correctly.
func TestVariablesReplaceWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	cluster := newMixedCluster(t, newNamespace(t), "{dnsDomain: maas, image: i, lxdConfig: {}}")
	cluster.Spec.Topology.ControlPlane.Replicas = ptr.To[int32](3)
	if err := management.strict.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	before := machinesOf(t, reconciled(t, cluster))
	tried := map[string][]string{}
	for _, step := range []struct {
		variables string
		replaces  []string
	}{
		{"image: j", allMachines},
		{"controlPlane: {minCPU: 4, tags: [fast], resourcePool: vms}", allControlPlanes},
		{"worker: {tags: [ssd]}", allWorkers},
		{"worker: {tags: [ssd], release: {erase: quick}}", []string{"metal", "other"}},
		{"worker: {tags: [ssd], release: {keep: {timeoutSeconds: 60}}}", []string{"metal", "other"}},
		{"lxdConfig: {storage: {size: '40'}, disks: [{size: '5', pool: fast}], antiAffinity: Required}", allControlPlanes},
		{"lxdConfig: {devices: [{name: gpu0, type: gpu, properties: {pci: '1'}}]}", allControlPlanes},
		{"workerLXDConfig: {storage: {pool: slow}}", []string{"vms"}},
		{"workerMode: lxd", []string{"other"}},
		{"workerLXDConfig: {storage: {pool: fast}}", []string{"other", "vms"}},
		{"workerStaticIPPoolRef: {apiGroup: a.b, kind: P, name: p}", allWorkers},
		{"staticIP: 10.77.0.50", allControlPlanes},
		{"staticIPPoolRef: {apiGroup: a.b, kind: P, name: p}", allControlPlanes}, // Without staticIP.
		{"preferredSubnets: [10.0.0.0/8], preferredInterfaces: [api], credentialsRef: {name: team-a}, failureDomains: [az1, az2], controlPlaneMaxSurge: 0", none},
		// There are no virtual IP and no host cluster yet.
		{"kubeVIPImage: registry.example.com/kube-vip:v1, lxdChannel: 6/stable, lxdHostConfig: {storageBackend: dir}", none},
		{"zone: az1", allMachines},
		{"apiServerCertSANs: [api.example.com]", allControlPlanes},
		{"virtualIP: {subnet: 10.77.0.0/24}", allControlPlanes},
		{"kubeVIPImage: registry.example.com/kube-vip:v2", allControlPlanes},
		{"lxdControlPlaneCluster: true", allMachines},
		{"lxdHostConfig: {storageBackend: btrfs}", none},
		{"lxdChannel: latest/edge", allMachines},
	} {
		values := variables(t, "{"+step.variables+"}")
		change(t, cluster, func(topology *clusterv1.Topology) {
			topology.Variables = with(topology.Variables, values)
			if values[0].Name == "staticIPPoolRef" {
				topology.Variables = without(topology.Variables, "staticIP")
			}
			if values[0].Name == "lxdControlPlaneCluster" {
				topology.Variables = without(topology.Variables, "virtualIP") // They exclude each other.
			}
		})
		after := machinesOf(t, cluster)
		if diff := cmp.Diff(step.replaces, replaced(before, after)); diff != "" {
			t.Errorf("%s replaces (-want +got):\n%s", step.variables, diff)
		}
		for _, v := range values {
			tried[v.Name] = append(tried[v.Name], step.replaces...)
		}
		before = after
	}
	checkDocumented(t, tried)
}

// documented matches the beginning of a variable in docs/variables.md, and the machines that a change of it replaces.
var documented = regexp.MustCompile(`(?m)^## (\w+)$|^Changing it replaces ([^.]*)\.`)

// checkDocumented compares docs/variables.md with the observed replacements.
func checkDocumented(t *testing.T, seen map[string][]string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(sources, "docs", "variables.md"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for name, machines := range seen {
		var what []string
		if slices.Contains(machines, "control-plane") {
			what = append(what, "control planes")
		}
		if slices.ContainsFunc(machines, func(name string) bool { return name != "control-plane" }) {
			what = append(what, "workers")
		}
		if len(what) == 0 {
			what = []string{"nothing"}
		}
		want[name] = strings.Join(what, " and ")
	}
	got, variable := map[string]string{}, ""
	for _, match := range documented.FindAllStringSubmatch(string(content), -1) {
		if match[1] != "" {
			variable = match[1]
			continue
		}
		got[variable] = match[2]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what docs/variables.md says that a variable replaces (-seen +documented):\n%s", diff)
	}
}

// An override replaces its machines, whatever the variable affects.
func TestOverridesReplaceWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	cluster := mixed(t, newClass(t))
	before := machinesOf(t, cluster)
	for _, step := range []struct{ whose, overrides string }{
		{"control-plane", "{image: j, lxdConfig: {storage: {pool: fast}}, controlPlane: {minCPU: 8}}"},
		{"metal", "{image: j, worker: {tags: [gpu]}}"},
		{"metal", "{image: j, zone: az2}"},
		{"vms", "{workerLXDConfig: {vmHost: a}}"},
		{"vms", ""}, // A failure domain, see below.
		{"other", "{workerMode: lxd, workerStaticIPPoolRef: {apiGroup: a.b, kind: P, name: p}}"},
	} {
		change(t, cluster, func(topology *clusterv1.Topology) {
			if step.whose == "control-plane" {
				topology.ControlPlane.Variables.Overrides = variables(t, step.overrides)
				return
			}
			if step.overrides == "" {
				machineDeployment(topology, step.whose).FailureDomain = "az3"
				return
			}
			machineDeployment(topology, step.whose).Variables.Overrides = variables(t, step.overrides)
		})
		after := machinesOf(t, cluster)
		if diff := cmp.Diff([]string{step.whose}, replaced(before, after)); diff != "" {
			t.Errorf("%s of %s replaces (-want +got):\n%s", step.overrides, step.whose, diff)
		}
		before = after
	}
}

// templatesOf are the templates of a namespace, with their generations.
func templatesOf(t *testing.T, namespace string) map[string]int64 {
	t.Helper()
	result := map[string]int64{}
	for kind, apiVersion := range map[string]string{
		"MaasMachineTemplateList": "infrastructure.cluster.x-k8s.io/v1beta1", "KubeadmConfigTemplateList": "bootstrap.cluster.x-k8s.io/v1beta2",
	} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(apiVersion)
		list.SetKind(kind)
		if err := management.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			result[kind+" "+o.GetName()] = o.GetGeneration()
		}
	}
	return result
}

// Changes without an effect on machines replace none: a default that is written out, applying the class once more,
// annotations, and a class that gets a new variable with a default, in place. No superfluous template is made.
func TestChangesWithoutEffectReplaceNoMachine(t *testing.T) {
	t.Parallel()
	namespace := newClass(t)
	cluster := mixed(t, namespace)
	before, templates := machinesOf(t, cluster), templatesOf(t, namespace)
	check := func(what string) {
		t.Helper()
		if diff := cmp.Diff(none, replaced(before, machinesOf(t, cluster))); diff != "" {
			t.Errorf("%s replaces (-want +got):\n%s", what, diff)
		}
		if diff := cmp.Diff(templates, templatesOf(t, namespace)); diff != "" {
			t.Errorf("templates after %s (-before +after):\n%s", what, diff)
		}
	}
	change(t, cluster, func(topology *clusterv1.Topology) {
		topology.Variables = with(topology.Variables, variables(t, "{workerMode: bare-metal, controlPlane: {minCPU: 2}, lxdChannel: 5.21/stable}"))
	})
	check("saying the defaults")

	for _, o := range mustParse(t, classFile(t)) {
		o.SetNamespace(namespace)
		if err := management.strict.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("packaging"), client.ForceOwnership); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	for i, what := range []string{"applying the class again", "an annotation"} {
		change(t, cluster, func(topology *clusterv1.Topology) {
			machineDeployment(topology, "metal").Metadata.Annotations = map[string]string{"example.com/reconciled": fmt.Sprint(i)}
		})
		check(what)
	}

	eventually.Succeeds(t, "the class is changed", func(ctx context.Context) error {
		class := &clusterv1.ClusterClass{}
		if err := management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "capmaas"}, class); err != nil {
			return err
		}
		addSubnets(t, class)
		return management.Update(ctx, class)
	})
	checkSubnets(t, cluster)
	check("a new variable")
}

// subnets is a variable with a default, for which a patch changes the MaasCluster, so that one can see when it counts.
const subnets = `
variable:
  name: subnets
  required: false
  schema: {openAPIV3Schema: {type: array, default: [10.9.0.0/16], items: {type: string}}}
patch:
  name: subnets
  definitions:
    - selector: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: MaasClusterTemplate, matchResources: {infrastructureCluster: true}}
      jsonPatches: [{op: add, path: /spec/template/spec/preferredSubnets, valueFrom: {variable: subnets}}]
`

// addSubnets adds the variable subnets, and its patch, to a class.
func addSubnets(t *testing.T, class *clusterv1.ClusterClass) {
	t.Helper()
	more := struct {
		Variable clusterv1.ClusterClassVariable
		Patch    clusterv1.ClusterClassPatch
	}{}
	if err := yaml.UnmarshalStrict([]byte(subnets), &more); err != nil {
		t.Fatalf("the test's own YAML: %v", err)
	}
	class.Spec.Variables = append(class.Spec.Variables, more.Variable)
	class.Spec.Patches = append(class.Spec.Patches, more.Patch)
}

// checkSubnets waits until the MaasCluster has the default of the variable subnets.
func checkSubnets(t *testing.T, cluster *clusterv1.Cluster) {
	t.Helper()
	eventually.Succeeds(t, "the new variable's default counts", func(context.Context) error {
		spec := readSpec(t, "MaasCluster", cluster.Namespace, cluster.Spec.InfrastructureRef.Name)
		if got, _, _ := unstructured.NestedStringSlice(spec, "preferredSubnets"); !slices.Equal(got, []string{"10.9.0.0/16"}) {
			return fmt.Errorf("preferredSubnets are %v", got)
		}
		return nil
	})
}

// derive makes another version of the class, and its templates, under another name.
func derive(t *testing.T, namespace, name string, changes func(*clusterv1.ClusterClass), templates func(*unstructured.Unstructured)) {
	t.Helper()
	content := strings.ReplaceAll(string(classFile(t)), "name: capmaas", "name: "+name)
	for _, o := range mustParse(t, []byte(content)) {
		o.SetNamespace(namespace)
		if o.GetKind() != "ClusterClass" {
			templates(o)
			if err := management.strict.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			continue
		}
		class := &clusterv1.ClusterClass{}
		convert(t, o, class)
		changes(class)
		if err := management.strict.Create(t.Context(), class); err != nil {
			t.Fatal(err)
		}
	}
	awaitClass(t, namespace, name)
}

// rawJSON is a value as the API has it.
func rawJSON(t *testing.T, value any) apiextensionsv1.JSON {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return apiextensionsv1.JSON{Raw: raw}
}

// If a Cluster changes to another version of the class, the machines for which the versions differ are replaced: none,
// if they differ only in names.
func TestAClusterChangesToAnotherVersionOfTheClass(t *testing.T) {
	t.Parallel()
	namespace := newClass(t)
	cluster := mixed(t, namespace)
	same := func(*unstructured.Unstructured) {}
	derive(t, namespace, "capmaas-v2", func(class *clusterv1.ClusterClass) { addSubnets(t, class) }, same)
	derive(t, namespace, "capmaas-v3", func(class *clusterv1.ClusterClass) {
		addSubnets(t, class)
		class.Spec.Patches = append(class.Spec.Patches, clusterv1.ClusterClassPatch{Name: "more", Definitions: []clusterv1.PatchDefinition{{
			Selector: clusterv1.PatchSelector{
				APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfigTemplate",
				MatchResources: clusterv1.PatchSelectorMatch{
					MachineDeploymentClass: &clusterv1.PatchSelectorMatchMachineDeploymentClass{Names: []string{"bare-metal-worker"}},
				},
			},
			JSONPatches: []clusterv1.JSONPatch{{
				Op: "add", Path: "/spec/template/spec/preKubeadmCommands/-", Value: ptr.To(rawJSON(t, "modprobe nvidia")),
			}},
		}}})
	}, same)
	derive(t, namespace, "capmaas-v4", func(class *clusterv1.ClusterClass) { addSubnets(t, class) }, func(o *unstructured.Unstructured) {
		if o.GetName() == "capmaas-v4-lxd-worker" {
			if err := unstructured.SetNestedField(o.Object, int64(6), "spec", "template", "spec", "minCPU"); err != nil {
				t.Fatal(err)
			}
			if err := unstructured.SetNestedField(o.Object, "pool", "spec", "template", "spec", "lxdConfig", "storage", "pool"); err != nil {
				t.Fatal(err)
			}
		}
	})

	before := machinesOf(t, cluster)
	for _, step := range []struct {
		class    string
		replaces []string
	}{
		{"capmaas-v2", none},
		{"capmaas-v3", []string{"metal"}},
		{"capmaas-v4", []string{"metal", "vms"}}, // Without the patch of v3.
		{"capmaas", []string{"vms"}},
	} {
		change(t, cluster, func(topology *clusterv1.Topology) {
			topology.ClassRef.Name = step.class
			if step.class == "capmaas" {
				// What the webhook wrote down for the others is no variable of this one.
				topology.Variables = without(topology.Variables, "subnets")
			}
		})
		if step.class != "capmaas" {
			checkSubnets(t, cluster)
		}
		after := machinesOf(t, cluster)
		if diff := cmp.Diff(step.replaces, replaced(before, after)); diff != "" {
			t.Errorf("rebasing to %s replaces (-want +got):\n%s", step.class, diff)
		}
		before = after
	}
}
