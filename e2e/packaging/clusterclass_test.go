// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	gocmp "cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/golden"
)

// classFile is the ClusterClass with its templates.
func classFile(t *testing.T) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(sources, "clusterclass", "clusterclass-capmaas.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// newClass makes the ClusterClass in a namespace of its own, for a test that changes it, and waits until its variables
// can be used.
func newClass(t *testing.T) (namespace string) {
	t.Helper()
	namespace = newNamespace(t)
	createClass(t, namespace)
	awaitClass(t, namespace, "capmaas")
	return namespace
}

func createClass(t *testing.T, namespace string) {
	t.Helper()
	for _, o := range mustParse(t, classFile(t)) {
		o.SetNamespace(namespace)
		if err := management.strict.Create(t.Context(), o); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// classes is the namespace of the class that tests share, which makeClass makes.
const classes = "classes"

var makeClass sync.Once

// sharedClass returns the namespace of a class that no test changes. It serves Clusters of all namespaces. Its tests
// are parallel: they run after those that delete the CRDs, and all templates with them.
func sharedClass(t *testing.T) (namespace string) {
	t.Helper()
	makeClass.Do(func() {
		if err := createNamespace(t.Context(), classes, nil); err != nil {
			t.Fatal(err)
		}
		createClass(t, classes)
	})
	awaitClass(t, classes, "capmaas")
	return classes
}

// awaitClass waits until a ClusterClass can be used.
func awaitClass(t *testing.T, namespace, name string) {
	t.Helper()
	eventually.Succeeds(t, "the ClusterClass is ready", func(ctx context.Context) error {
		class := &clusterv1.ClusterClass{}
		if err := management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, class); err != nil {
			return err
		}
		ready := conditions.Get(class, clusterv1.ClusterClassVariablesReadyCondition)
		if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != class.Generation {
			return fmt.Errorf("conditions are %v", class.Status.Conditions)
		}
		return nil
	})
}

// variables reads a topology's variables from YAML.
func variables(t *testing.T, content string) []clusterv1.ClusterVariable {
	t.Helper()
	read := map[string]any{}
	if err := yaml.Unmarshal([]byte(content), &read); err != nil {
		t.Fatalf("the test's own YAML: %v", err)
	}
	var result []clusterv1.ClusterVariable
	for name, value := range read {
		raw, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		result = append(result, clusterv1.ClusterVariable{Name: name, Value: apiextensionsv1.JSON{Raw: raw}})
	}
	return result
}

// newCluster is a Cluster of the class that tests share, in another namespace; with overrides, a second
// MachineDeployment has them.
func newCluster(t *testing.T, namespace, vars, overrides string) *clusterv1.Cluster {
	t.Helper()
	deployments := []clusterv1.MachineDeploymentTopology{{Class: "default-worker", Name: "md-0", Replicas: ptr.To[int32](1)}}
	if overrides != "" {
		deployments = append(deployments, clusterv1.MachineDeploymentTopology{
			Class: "default-worker", Name: "md-1", Replicas: ptr.To[int32](1),
			Variables: clusterv1.MachineDeploymentVariables{Overrides: variables(t, overrides)},
		})
	}
	return &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c1"},
		Spec: clusterv1.ClusterSpec{Topology: clusterv1.Topology{
			ClassRef:     clusterv1.ClusterClassRef{Name: "capmaas", Namespace: sharedClass(t)},
			Version:      "v1.35.0",
			ControlPlane: clusterv1.ControlPlaneTopology{Replicas: ptr.To[int32](1)},
			Workers:      clusterv1.WorkersTopology{MachineDeployments: deployments},
			Variables:    variables(t, vars),
		}},
	}
}

// createTopology creates a Cluster of the class.
func createTopology(t *testing.T, vars string) *clusterv1.Cluster {
	t.Helper()
	cluster := newCluster(t, newNamespace(t), vars, "")
	if err := management.strict.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	return cluster
}

// topology is what belongs to a Cluster, made by Cluster API from a class, or by the user.
type topology struct {
	cluster      map[string]any
	controlPlane map[string]any
	workers      map[string]map[string]any // by the name of their MachineDeployment in the topology
	certSANs     []string
	// bootstrap is what control planes do.
	bootstrap bootstrapv1.KubeadmConfigSpec
	// deletion is how control planes are deleted.
	deletion controlplanev1.KubeadmControlPlaneMachineTemplateDeletionSpec
	// commands run before kubeadm, by the MachineDeployment's name in the topology, and control-plane.
	commands map[string][]string
	// controlPlaneTemplate is the name of the control plane's MaasMachineTemplate.
	controlPlaneTemplate string
	// workerTemplates are the names of the workers' MaasMachineTemplates, as workers.
	workerTemplates map[string]string
}

// reconciled waits until Cluster API has applied the Cluster's topology.
func reconciled(t *testing.T, cluster *clusterv1.Cluster) *clusterv1.Cluster {
	t.Helper()
	eventually.Succeeds(t, "the topology is reconciled", func(ctx context.Context) error {
		if err := management.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil {
			return err
		}
		condition := conditions.Get(cluster, clusterv1.ClusterTopologyReconciledCondition)
		if condition == nil || condition.Status != metav1.ConditionTrue || condition.ObservedGeneration != cluster.Generation {
			return fmt.Errorf("condition is %v", condition)
		}
		return nil
	})
	return cluster
}

// observe reads the objects that a Cluster refers to.
func observe(t *testing.T, cluster *clusterv1.Cluster) topology {
	t.Helper()
	result := topology{workers: map[string]map[string]any{}, workerTemplates: map[string]string{}, commands: map[string][]string{}}
	result.cluster = readSpec(t, "MaasCluster", cluster.Namespace, cluster.Spec.InfrastructureRef.Name)

	kcp := &controlplanev1.KubeadmControlPlane{}
	if err := management.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Spec.ControlPlaneRef.Name}, kcp); err != nil {
		t.Fatal(err)
	}
	result.certSANs = kcp.Spec.KubeadmConfigSpec.ClusterConfiguration.APIServer.CertSANs
	result.bootstrap = kcp.Spec.KubeadmConfigSpec
	result.deletion = kcp.Spec.MachineTemplate.Spec.Deletion
	result.commands["control-plane"] = kcp.Spec.KubeadmConfigSpec.PreKubeadmCommands
	result.controlPlaneTemplate = kcp.Spec.MachineTemplate.Spec.InfrastructureRef.Name
	result.controlPlane = readTemplate(t, cluster.Namespace, result.controlPlaneTemplate)

	deployments := &clusterv1.MachineDeploymentList{}
	ofCluster := client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}
	if err := management.List(t.Context(), deployments, client.InNamespace(cluster.Namespace), ofCluster); err != nil {
		t.Fatal(err)
	}
	for _, md := range deployments.Items {
		name := md.Labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel]
		result.workerTemplates[name] = md.Spec.Template.Spec.InfrastructureRef.Name
		result.workers[name] = readTemplate(t, cluster.Namespace, result.workerTemplates[name])
		bootstrap := &bootstrapv1.KubeadmConfigTemplate{}
		if err := management.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: md.Spec.Template.Spec.Bootstrap.ConfigRef.Name}, bootstrap); err != nil {
			t.Fatal(err)
		}
		result.commands[name] = bootstrap.Spec.Template.Spec.PreKubeadmCommands
	}
	return result
}

func readSpec(t *testing.T, kind, namespace, name string) map[string]any {
	t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(infrav1.GroupVersion.WithKind(kind))
	if err := management.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o); err != nil {
		t.Fatal(err)
	}
	spec, _, _ := unstructured.NestedMap(o.Object, "spec")
	return spec
}

func readTemplate(t *testing.T, namespace, name string) map[string]any {
	t.Helper()
	spec, _, _ := unstructured.NestedMap(readSpec(t, "MaasMachineTemplate", namespace, name), "template", "spec")
	return spec
}

// fields reads a spec from YAML, in the types that the API server's responses have.
func fields(t *testing.T, content string) map[string]any {
	t.Helper()
	o := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte("{apiVersion: v1, kind: Spec, spec: {" + content + "}}"))
	if err != nil {
		t.Fatalf("the test's own YAML: %v", err)
	}
	if err := o.UnmarshalJSON(raw); err != nil {
		t.Fatalf("the test's own YAML: %v", err)
	}
	spec, _, _ := unstructured.NestedMap(o.Object, "spec")
	return spec
}

const sizes = "minCPU: 2, minMemory: 4096, minDiskSize: 20"

// hostSizes are those of the flavors for host clusters: the disk has room for the storage pool of 50 GB and for the
// node.
const hostSizes = "minCPU: 2, minMemory: 4096, minDiskSize: 70"

// preKubeadm is what every machine runs before kubeadm.
var preKubeadm = []string{"swapoff --all", `sed --in-place --regexp-extended '/^[^#]\S*\s+\S+\s+swap\s/d' /etc/fstab`}

// installLXD returns the additional commands on machines of host clusters.
func installLXD(channel string) []string {
	return []string{
		"snap wait system seed.loaded", `snap list lxd || snap install lxd --channel="` + channel + `"`, "/snap/bin/lxd waitready --timeout=300",
	}
}

func TestClassVariables(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		version               string // of Kubernetes, if it matters
		variables, overrides  string
		cluster, controlPlane string
		workers               map[string]string
		certSANs              []string
		commands              []string // after preKubeadm
	}{
		"the least": {
			variables:    "{dnsDomain: maas, image: ubuntu/noble}",
			cluster:      "dnsDomain: maas",
			controlPlane: "image: ubuntu/noble, " + sizes,
			workers:      map[string]string{"md-0": "image: ubuntu/noble, provisioningMode: bare-metal, " + sizes},
		},
		"LXD control planes with defaults": {
			variables:    "{dnsDomain: maas, image: i, lxdConfig: {}}",
			cluster:      "dnsDomain: maas",
			controlPlane: "image: i, provisioningMode: lxd, lxdConfig: {}, " + sizes,
			workers:      map[string]string{"md-0": "image: i, provisioningMode: bare-metal, " + sizes},
		},
		"everything": {
			variables: `
dnsDomain: maas
image: i
lxdConfig:
  profile: maas
  storage: {size: "40", pool: fast}
  network: {devices: [{name: eth0, bridge: br0, linkMode: static}, {name: eth1, subnet: 10.1.0.0/16, linkMode: link_up}]}
  vmHost: host-a1
  project: k8s
  commission: true
staticIP: 10.77.0.50
zone: az2
failureDomains: [az1, az3]
controlPlane: {minCPU: 4, minMemory: 8192, minDiskSize: 40, resourcePool: vms, tags: [lxd], notTags: [slow], kernel: ga-24.04}
worker: {minCPU: 16, minMemory: 65536, minDiskSize: 900, resourcePool: metal, tags: [gpu, ssd], notTags: [old], kernel: hwe-24.04,
  extendedResources: {nvidia.com/gpu: 8}}
workerMode: lxd
workerLXDConfig: {storage: {pool: slow}}
credentialsRef: {name: team-a}
controlPlaneEndpoint: {host: api.example.com}
preferredSubnets: [10.77.0.0/24]
preferredInterfaces: [api, eth1]
apiServerCertSANs: [other.example.com, 10.0.0.9]
`,
			cluster: `dnsDomain: maas, failureDomains: [az2], credentialsRef: {name: team-a},
				controlPlaneEndpoint: {host: api.example.com, port: 6443}, preferredSubnets: [10.77.0.0/24], preferredInterfaces: [api, eth1]`,
			controlPlane: `image: i, provisioningMode: lxd, failureDomain: az2, staticIP: 10.77.0.50,
				minCPU: 4, minMemory: 8192, minDiskSize: 40, resourcePool: vms, tags: [lxd], notTags: [slow],
				kernel: ga-24.04,
				lxdConfig: {profile: maas, storage: {size: "40", pool: fast}, vmHost: host-a1, project: k8s, commission: true,
					network: {devices: [{name: eth0, bridge: br0, linkMode: static}, {name: eth1, subnet: 10.1.0.0/16, linkMode: link_up}]}}`,
			workers: map[string]string{"md-0": `image: i, provisioningMode: lxd, failureDomain: az2, lxdConfig: {storage: {pool: slow}},
				minCPU: 16, minMemory: 65536, minDiskSize: 900, resourcePool: metal, tags: [gpu, ssd], notTags: [old],
				kernel: hwe-24.04, extendedResources: {nvidia.com/gpu: 8}`},
			certSANs: []string{"localhost", "127.0.0.1", "other.example.com", "10.0.0.9"},
		},
		"an image for each version": {
			variables:    "{dnsDomain: maas, image: 'custom/u-{version}'}",
			overrides:    "{image: 'w-{version}-gpu'}",
			cluster:      "dnsDomain: maas",
			controlPlane: "image: custom/u-v1.35.0, " + sizes,
			workers: map[string]string{
				"md-0": "image: custom/u-v1.35.0, provisioningMode: bare-metal, " + sizes,
				"md-1": "image: w-v1.35.0-gpu, provisioningMode: bare-metal, " + sizes,
			},
		},
		"an image for each version, with a suffix that no image's name can have": {
			version:      "v1.35.0+lab.1",
			variables:    "{dnsDomain: maas, image: 'custom/u-{version}'}",
			cluster:      "dnsDomain: maas",
			controlPlane: "image: custom/u-v1.35.0-lab.1, " + sizes,
			workers:      map[string]string{"md-0": "image: custom/u-v1.35.0-lab.1, provisioningMode: bare-metal, " + sizes},
		},
		"failure domains, and workers of two kinds": {
			variables: "{dnsDomain: maas, image: i, failureDomains: [az1, az3], workerLXDConfig: {storage: {pool: slow}}, " +
				"staticIPPoolRef: {apiGroup: a.b, kind: Pool, name: cp}}",
			overrides:    "{image: j, workerMode: lxd, worker: {minMemory: 2048}, workerStaticIPPoolRef: {apiGroup: a.b, kind: Pool, name: md}}",
			cluster:      "dnsDomain: maas, failureDomains: [az1, az3]",
			controlPlane: "image: i, staticIPPoolRef: {apiGroup: a.b, kind: Pool, name: cp}, " + sizes,
			workers: map[string]string{
				"md-0": "image: i, provisioningMode: bare-metal, " + sizes,
				"md-1": "image: j, provisioningMode: lxd, lxdConfig: {storage: {pool: slow}}, minCPU: 2, minMemory: 2048, minDiskSize: 20, " +
					"staticIPPoolRef: {apiGroup: a.b, kind: Pool, name: md}",
			},
		},
		"a host cluster with defaults": {
			variables:    "{dnsDomain: maas, image: i, lxdControlPlaneCluster: true}",
			cluster:      "dnsDomain: maas, lxdControlPlaneCluster: true",
			controlPlane: "image: i, " + sizes,
			workers:      map[string]string{"md-0": "image: i, provisioningMode: bare-metal, " + sizes},
			commands:     installLXD("5.21/stable"),
		},
		"a host cluster with everything": {
			variables: `
dnsDomain: maas
image: i
lxdControlPlaneCluster: true
lxdHostConfig: {storageBackend: dir, storageSize: "9", networkBridge: br1, zone: z, resourcePool: p, credentialsRef: {name: hosts}}
lxdChannel: latest/edge
`,
			cluster: `dnsDomain: maas, lxdControlPlaneCluster: true, lxdConfig: {storageBackend: dir, storageSize: "9", networkBridge: br1,
				zone: z, resourcePool: p, credentialsRef: {name: hosts}}`,
			controlPlane: "image: i, " + sizes,
			workers:      map[string]string{"md-0": "image: i, provisioningMode: bare-metal, " + sizes},
			commands:     installLXD("latest/edge"),
		},
		"settings of hosts, and no host cluster": {
			variables:    "{dnsDomain: maas, image: i, lxdHostConfig: {storageBackend: dir}}",
			cluster:      "dnsDomain: maas",
			controlPlane: "image: i, " + sizes,
			workers:      map[string]string{"md-0": "image: i, provisioningMode: bare-metal, " + sizes},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := newCluster(t, newNamespace(t), tt.variables, tt.overrides)
			cluster.Spec.Topology.Version = gocmp.Or(tt.version, cluster.Spec.Topology.Version)
			if err := management.strict.Create(t.Context(), cluster); err != nil {
				t.Fatal(err)
			}
			got := observe(t, reconciled(t, cluster))
			if diff := cmp.Diff(fields(t, tt.cluster), got.cluster); diff != "" {
				t.Errorf("MaasCluster.spec (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(fields(t, tt.controlPlane), got.controlPlane); diff != "" {
				t.Errorf("MaasMachineTemplate of the control plane (-want +got):\n%s", diff)
			}
			want := map[string]map[string]any{}
			for name, content := range tt.workers {
				want[name] = fields(t, content)
			}
			if diff := cmp.Diff(want, got.workers); diff != "" {
				t.Errorf("MaasMachineTemplates of the workers (-want +got):\n%s", diff)
			}
			sans := tt.certSANs
			if sans == nil {
				sans = []string{"localhost", "127.0.0.1"}
			}
			if diff := cmp.Diff(sans, got.certSANs); diff != "" {
				t.Errorf("names in the API server's certificate (-want +got):\n%s", diff)
			}
			for whose, got := range got.commands {
				if diff := cmp.Diff(slices.Concat(preKubeadm, tt.commands), got); diff != "" {
					t.Errorf("commands before kubeadm of %s (-want +got):\n%s", whose, diff)
				}
			}
		})
	}
}

// newMixedCluster is a Cluster with LXD control planes and a MachineDeployment of each class of workers: metal, vms,
// and other (of default-worker). None has replicas.
func newMixedCluster(t *testing.T, namespace, vars string) *clusterv1.Cluster {
	t.Helper()
	cluster := newCluster(t, namespace, vars, "")
	var deployments []clusterv1.MachineDeploymentTopology
	for class, name := range map[string]string{"bare-metal-worker": "metal", "lxd-worker": "vms", "default-worker": "other"} {
		deployments = append(deployments, clusterv1.MachineDeploymentTopology{Class: class, Name: name, Replicas: ptr.To[int32](0)})
	}
	cluster.Spec.Topology.Workers.MachineDeployments = deployments
	return cluster
}

// Settings for one kind of machine don't reach the other kind, so that one cluster can have both.
func TestWorkersOfAllClasses(t *testing.T) {
	t.Parallel()
	const in = "image: i, minCPU: 2, minMemory: 4096, minDiskSize: 20, deployInMemory: true"
	const interfaces = "interfaces: [{name: bond0, type: bond, parents: [eno1, eno2], parameters: {bond_mode: 802.3ad}, mtu: 9000}, " +
		"{name: bond0.7, type: vlan, parents: [bond0], vid: 7, subnet: 10.7.0.0/24, linkMode: auto}]"
	const onlyMetal = "provisioningMode: bare-metal, architecture: arm64, release: {erase: quick}, storage: {layout: lvm}, " + interfaces + ", "
	for name, tt := range map[string]struct {
		mode  string
		other string
	}{
		"bare metal by default": {"bare-metal", onlyMetal + in},
		"LXD by default":        {"lxd", "provisioningMode: lxd, lxdConfig: {storage: {pool: slow}}, " + in},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := newMixedCluster(t, newNamespace(t), `{dnsDomain: maas, image: i, lxdConfig: {}, workerLXDConfig: {storage: {pool: slow}},
				controlPlane: {release: {erase: full}, storageLayout: bcache, `+interfaces+`, architecture: amd64, deployInMemory: true},
				worker: {release: {erase: quick}, storageLayout: lvm, `+interfaces+`, architecture: arm64, deployInMemory: true}, workerMode: `+tt.mode+"}")
			if err := management.strict.Create(t.Context(), cluster); err != nil {
				t.Fatal(err)
			}
			got := observe(t, reconciled(t, cluster))
			if diff := cmp.Diff(fields(t, "provisioningMode: lxd, lxdConfig: {}, "+in), got.controlPlane); diff != "" {
				t.Errorf("MaasMachineTemplate of the control plane (-want +got):\n%s", diff)
			}
			want := map[string]map[string]any{
				"metal": fields(t, onlyMetal+in),
				"vms":   fields(t, "provisioningMode: lxd, lxdConfig: {storage: {pool: slow}}, "+in),
				"other": fields(t, tt.other),
			}
			if diff := cmp.Diff(want, got.workers); diff != "" {
				t.Errorf("MaasMachineTemplates of the workers (-want +got):\n%s", diff)
			}
		})
	}
}

// A control plane of as many machines as replicas has to be rolled one by one.
func TestControlPlaneMaxSurge(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	for name, tt := range map[string]struct{ variables, want string }{
		"by default": {"{dnsDomain: maas, image: i}", "1"},
		"none":       {"{dnsDomain: maas, image: i, controlPlaneMaxSurge: 0}", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := newCluster(t, namespace, tt.variables, "")
			cluster.Name, cluster.GenerateName = "", "c-"
			cluster.Spec.Topology.ControlPlane.Replicas = ptr.To[int32](3)
			if err := management.strict.Create(t.Context(), cluster); err != nil {
				t.Fatal(err)
			}
			reconciled(t, cluster)
			kcp := &controlplanev1.KubeadmControlPlane{}
			if err := management.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: cluster.Spec.ControlPlaneRef.Name}, kcp); err != nil {
				t.Fatal(err)
			}
			if got := kcp.Spec.Rollout.Strategy.RollingUpdate.MaxSurge.String(); got != tt.want {
				t.Errorf("maxSurge is %s, want %s", got, tt.want)
			}
		})
	}
}

// API servers listen where the endpoint leads to, be it a name or a virtual IP. What is before an endpoint of one's own
// has its own port.
func TestAPIServerPort(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	for name, tt := range map[string]struct{ variables, cluster string }{
		"a name":       {"", "dnsDomain: maas, controlPlaneEndpoint: {port: 8443}"},
		"a virtual IP": {", virtualIP: {address: 10.77.0.20}", "dnsDomain: maas, virtualIP: {address: 10.77.0.20}, controlPlaneEndpoint: {port: 8443}"},
		"one's own":    {", controlPlaneEndpoint: {host: api, port: 443}", "dnsDomain: maas, controlPlaneEndpoint: {host: api, port: 443}"},
		"only a host":  {", controlPlaneEndpoint: {host: '10'}", "dnsDomain: maas, controlPlaneEndpoint: {host: '10', port: 8443}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := newCluster(t, namespace, "{dnsDomain: maas, image: i, apiServerPort: 8443"+tt.variables+"}", "")
			cluster.Name, cluster.GenerateName = "", "c-"
			if err := management.strict.Create(t.Context(), cluster); err != nil {
				t.Fatal(err)
			}
			got := observe(t, reconciled(t, cluster))
			if diff := cmp.Diff(fields(t, tt.cluster), got.cluster); diff != "" {
				t.Errorf("MaasCluster.spec (-want +got):\n%s", diff)
			}
			if port := got.bootstrap.InitConfiguration.LocalAPIEndpoint.BindPort; port != 8443 {
				t.Errorf("the first API server listens at %d", port)
			}
			if join := got.bootstrap.JoinConfiguration.ControlPlane; join == nil || join.LocalAPIEndpoint.BindPort != 8443 {
				t.Errorf("the other API servers are configured as %+v", join)
			}
		})
	}
}

// Earlier classes stored the default port of an endpoint with it: a manifest without one still applies, and the endpoint
// stays.
func TestEndpointOfAnEarlierClass(t *testing.T) {
	t.Parallel()
	cluster := createTopology(t, "{dnsDomain: maas, image: i, controlPlaneEndpoint: {host: api, port: 6443}}")
	reconciled(t, cluster)
	eventually.Succeeds(t, "a manifest without a port", func(ctx context.Context) error {
		if err := management.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil {
			return err
		}
		cluster.Spec.Topology.Variables = variables(t, "{dnsDomain: maas, image: i, controlPlaneEndpoint: {host: api}}")
		return management.Update(ctx, cluster)
	})
	got := observe(t, reconciled(t, cluster))
	if diff := cmp.Diff(fields(t, "dnsDomain: maas, controlPlaneEndpoint: {host: api, port: 6443}"), got.cluster); diff != "" {
		t.Errorf("MaasCluster.spec (-want +got):\n%s", diff)
	}
}

// Machines that MAAS is still making, or that reboot, are not replaced; a Cluster may have its own checks, or none.
func TestMachineHealthChecks(t *testing.T) {
	t.Parallel()
	cluster := newMixedCluster(t, newNamespace(t), "{dnsDomain: maas, image: i}")
	cluster.Spec.Topology.ControlPlane.HealthCheck.Checks.NodeStartupTimeoutSeconds = ptr.To[int32](60)
	for i := range cluster.Spec.Topology.Workers.MachineDeployments {
		if md := &cluster.Spec.Topology.Workers.MachineDeployments[i]; md.Name == "other" {
			md.HealthCheck.Enabled = ptr.To(false)
		}
	}
	if err := management.strict.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	reconciled(t, cluster)
	checks := &clusterv1.MachineHealthCheckList{}
	if err := management.List(t.Context(), checks, client.InNamespace(cluster.Namespace)); err != nil {
		t.Fatal(err)
	}
	type check struct {
		nodeStartup, infrastructure, node int32
		atOnce                            string
	}
	got := map[string]check{}
	for _, c := range checks.Items {
		name := c.Spec.Selector.MatchLabels[clusterv1.ClusterTopologyMachineDeploymentNameLabel]
		found := check{nodeStartup: ptr.Deref(c.Spec.Checks.NodeStartupTimeoutSeconds, 0)}
		for _, condition := range c.Spec.Checks.UnhealthyMachineConditions {
			found.infrastructure = *condition.TimeoutSeconds
		}
		for _, condition := range c.Spec.Checks.UnhealthyNodeConditions {
			found.node = *condition.TimeoutSeconds
		}
		if limit := c.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo; limit != nil {
			found.atOnce = limit.String()
		}
		got[name] = found
	}
	want := map[string]check{"": {nodeStartup: 60}, "metal": {5400, 5400, 900, "2"}, "vms": {3600, 3600, 900, "2"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(check{})); diff != "" {
		t.Errorf("MachineHealthChecks by MachineDeployment (-want +got):\n%s", diff)
	}
}

// refusals returns an error's messages about the fields of an invalid object: field and message.
func refusals(t *testing.T, err error) []string {
	t.Helper()
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		t.Fatalf("got error %v, want one that says the Cluster is invalid", err)
	}
	var list []string
	for _, cause := range status.Status().Details.Causes {
		list = append(list, cause.Field+": "+cause.Message)
	}
	return list
}

// A bad variable is refused when the Cluster is created, and not only by a template that can't be made. The error names
// the variable and the valid values.
func TestBadVariablesAreRefused(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	const good = "dnsDomain: maas, image: i"
	sentences := map[string]string{}
	for name, tt := range map[string]struct {
		variables string // beside the required ones, or without them in braces
		field     string // below spec.topology
	}{
		"no domain":                    {"{image: i}", "variables"},
		"no image":                     {"{dnsDomain: maas}", "variables"},
		"unknown variable":             {"flavor: lxd", "variables[flavor]"},
		"domain with a scheme":         {"{dnsDomain: 'http://maas', image: i}", "variables[dnsDomain].value"},
		"image with another variable":  {"{dnsDomain: maas, image: 'u-{release}'}", "variables[image].value"},
		"image with a space":           {"{dnsDomain: maas, image: ubuntu noble}", "variables[image].value"},
		"unknown field of lxdConfig":   {"lxdConfig: {host: a}", "variables[lxdConfig]"},
		"size with a unit":             {"lxdConfig: {storage: {size: 40GB}}", "variables[lxdConfig].value.storage.size"},
		"device on nothing":            {"lxdConfig: {network: {devices: [{name: a}]}}", "variables[lxdConfig].value.network.devices[0]"},
		"workers' disk with a unit":    {"workerLXDConfig: {storage: {size: 1T}}", "variables[workerLXDConfig].value.storage.size"},
		"pool without a kind":          {"staticIPPoolRef: {apiGroup: a.b, name: p}", "variables[staticIPPoolRef].value.kind"},
		"workers' pool, no name":       {"workerStaticIPPoolRef: {apiGroup: a.b, kind: P}", "variables[workerStaticIPPoolRef].value.name"},
		"staticIP is no address":       {"staticIP: 10.77.0.50/24", "variables[staticIP].value"},
		"empty zone":                   {"zone: ''", "variables[zone].value"},
		"no failure domains":           {"failureDomains: []", "variables[failureDomains].value"},
		"cores are a word":             {"controlPlane: {minCPU: two}", "variables[controlPlane].value.minCPU"},
		"no cores":                     {"controlPlane: {minCPU: 0}", "variables[controlPlane].value.minCPU"},
		"unknown size":                 {"worker: {memory: 4096}", "variables[worker]"},
		"bad tag":                      {"worker: {tags: ['a,b']}", "variables[worker].value.tags[0]"},
		"bond without parents":         {"worker: {interfaces: [{name: b, type: bond}]}", "variables[worker].value.interfaces[0]"},
		"VLAN without a tag":           {"worker: {interfaces: [{name: v, type: vlan, parents: [b]}]}", "variables[worker].value.interfaces[0]"},
		"machine kept and erased":      {"worker: {release: {erase: quick, keep: {}}}", "variables[worker].value.release"},
		"resource without a domain":    {"worker: {extendedResources: {gpu: 1}}", "variables[worker].value.extendedResources"},
		"less of a resource than none": {"worker: {extendedResources: {a.b/c: -1}}", "variables[worker].value.extendedResources.a.b/c"},
		"unknown storage layout":       {"worker: {storageLayout: zfs}", "variables[worker].value.storageLayout"},
		"unknown erasing":              {"worker: {release: {erase: shred}}", "variables[worker].value.release.erase"},
		"unknown mode of workers":      {"workerMode: vm", "variables[workerMode].value"},
		"credentials without a name":   {"credentialsRef: {}", "variables[credentialsRef].value.name"},
		"endpoint without a host":      {"controlPlaneEndpoint: {port: 6443}", "variables[controlPlaneEndpoint].value.host"},
		"endpoint is a URL":            {"controlPlaneEndpoint: {host: 'https://api:6443'}", "variables[controlPlaneEndpoint].value.host"},
		"port is a word":               {"apiServerPort: https", "variables[apiServerPort].value"},
		"large surge":                  {"controlPlaneMaxSurge: 2", "variables[controlPlaneMaxSurge].value"},
		"port out of range":            {"controlPlaneEndpoint: {host: api, port: 70000}", "variables[controlPlaneEndpoint].value.port"},
		"two virtual IPs":              {"virtualIP: {address: 10.0.0.9, subnet: 10.0.0.0/24}", "variables[virtualIP].value"},
		"virtual IP with a prefix":     {"virtualIP: {address: 10.0.0.9/24}", "variables[virtualIP].value.address"},
		"virtual IP in no subnet":      {"virtualIP: {subnet: 10.0.0.9}", "variables[virtualIP].value.subnet"},
		"kube-vip's image, a space":    {"kubeVIPImage: kube vip", "variables[kubeVIPImage].value"},
		"certificate for a URL":        {"apiServerCertSANs: ['https://api']", "variables[apiServerCertSANs].value[0]"},
		"host cluster is a word":       {"lxdControlPlaneCluster: 'yes'", "variables[lxdControlPlaneCluster].value"},
		"unknown setting of hosts":     {"lxdHostConfig: {bridge: br0}", "variables[lxdHostConfig]"},
		"unknown storage of hosts":     {"lxdHostConfig: {storageBackend: ceph}", "variables[lxdHostConfig].value.storageBackend"},
		"storage of hosts, a unit":     {"lxdHostConfig: {storageSize: 50GB}", "variables[lxdHostConfig].value.storageSize"},
		"long bridge of hosts":         {"lxdHostConfig: {networkBridge: a-bridge-too-far}", "variables[lxdHostConfig].value.networkBridge"},
		"channel is a command":         {"lxdChannel: 'a; reboot'", "variables[lxdChannel].value"},
		"preferred subnet, no prefix":  {"preferredSubnets: [10.77.0.0]", "variables[preferredSubnets].value[0]"},
	} {
		vars := tt.variables
		if !strings.HasPrefix(vars, "{") {
			vars = "{" + good + ", " + vars + "}"
		}
		sentences[name] = refusal(t, newCluster(t, namespace, vars, ""), tt.field)
	}
	sentences["in an override of workers"] = refusal(t, newCluster(t, namespace, "{"+good+"}", "{worker: {tags: ['a,b']}}"),
		"workers.machineDeployments[md-1].variables.overrides[worker].value.tags[0]")
	cluster := newCluster(t, namespace, "{"+good+"}", "")
	cluster.Spec.Topology.ControlPlane.Variables.Overrides = variables(t, "{image: ubuntu noble}")
	sentences["in an override of the control plane"] = refusal(t, cluster, "controlPlane.variables.overrides[image].value")
	golden.Sentences(t, "class-variables.txt", sentences)
}

// refusal returns the one line with which a new Cluster is refused, which is about a field below spec.topology.
func refusal(t *testing.T, cluster *clusterv1.Cluster, field string) string {
	t.Helper()
	var err error
	// Cluster API checks nothing until its own cache has the class.
	_ = eventually.Wait(t.Context(), "a refusal", func() (bool, string, error) {
		err = management.Create(t.Context(), cluster, client.DryRunAll)
		return err != nil, "none", nil
	})
	// It reports an unknown variable twice.
	got := slices.Compact(refusals(t, err))
	if len(got) != 1 || !strings.HasPrefix(got[0], "spec.topology."+field+": ") {
		t.Errorf("refused for %q, want one line on spec.topology.%s", got, field)
	}
	return strings.Join(got, "\n")
}

// A variable that MAAS's and kubeadm's responses depend on can't be changed.
func TestEndpointVariablesStay(t *testing.T) {
	t.Parallel()
	const port = "apiServerPort: 8443"
	cluster := newCluster(t, newNamespace(t), "{dnsDomain: maas, image: i, "+port+", controlPlaneEndpoint: {host: api.example.com}}", "")
	if err := management.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	for vars, want := range map[string]string{
		"{dnsDomain: other, image: i, " + port + ", controlPlaneEndpoint: {host: api.example.com}}":            "spec.topology.variables[dnsDomain].value: ",
		"{dnsDomain: maas, image: i, " + port + ", controlPlaneEndpoint: {host: other.example.com}}":           "spec.topology.variables[controlPlaneEndpoint].value: ",
		"{dnsDomain: maas, image: i, " + port + ", controlPlaneEndpoint: {host: api.example.com, port: 443}}":  "spec.topology.variables[controlPlaneEndpoint].value: ",
		"{dnsDomain: maas, image: i, " + port + ", controlPlaneEndpoint: {host: api.example.com, port: 6443}}": "spec.topology.variables[controlPlaneEndpoint].value: ",
		"{dnsDomain: maas, image: i, apiServerPort: 6443, controlPlaneEndpoint: {host: api.example.com}}":      "spec.topology.variables[apiServerPort].value: ",
	} {
		eventually.Succeeds(t, vars, func(ctx context.Context) error {
			if err := management.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil {
				return err
			}
			cluster.Spec.Topology.Variables = variables(t, vars)
			err := management.Update(ctx, cluster, client.DryRunAll)
			if apierrors.IsConflict(err) {
				return err // The topology controller writes the Cluster, too.
			}
			got := refusals(t, err)
			if len(got) != 1 || !strings.HasPrefix(got[0], want) || !strings.Contains(got[0], "create a new cluster") {
				t.Errorf("refused for %q, want one line on %q that says to create a new cluster", got, want)
			}
			return nil
		})
	}
}

// A class can't compare two variables. The API's own rules refuse a contradiction, before anything is made, and the
// Cluster's condition contains their message.
func TestVariablesThatDoNotFitTogether(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	for name, tt := range map[string]struct{ variables, remedy string }{
		"an address and a pool": {
			"staticIP: 10.77.0.50, staticIPPoolRef: {apiGroup: a.b, kind: P, name: p}", "staticIP and staticIPPoolRef are mutually exclusive",
		},
		"a small VM":               {"lxdConfig: {}, controlPlane: {minMemory: 1024}", "minMemory of an LXD VM is at least 2048"},
		"a small disk":             {"workerMode: lxd, worker: {minDiskSize: 4}", "minDiskSize of an LXD VM is at least 8"},
		"a static device, nothing": {"lxdConfig: {network: {devices: [{name: eth0, bridge: br0, linkMode: static}]}}", "set staticIP or staticIPPoolRef"},
		"a lonely control plane":   {"controlPlaneMaxSurge: 0", "replica"},
		"two endpoints": {
			"virtualIP: {address: 10.77.0.9}, controlPlaneEndpoint: {host: api.example.com}", "remove virtualIP to provide the endpoint yourself",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := newCluster(t, namespace, "{dnsDomain: maas, image: i, "+tt.variables+"}", "")
			cluster.Name, cluster.GenerateName = "", "c-"
			if err := management.Create(t.Context(), cluster); err != nil {
				t.Fatal(err)
			}
			eventually.Succeeds(t, "the condition TopologyReconciled", func(ctx context.Context) error {
				if err := management.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil {
					return err
				}
				if cluster.Spec.ControlPlaneRef.IsDefined() { // Cluster API makes no workers before that runs.
					provisioned(t, cluster)
				}
				condition := conditions.Get(cluster, clusterv1.ClusterTopologyReconciledCondition)
				if condition == nil || condition.Status != metav1.ConditionFalse || !strings.Contains(condition.Message, tt.remedy) {
					return fmt.Errorf("the condition is %v, want False with %q", condition, tt.remedy)
				}
				return nil
			})
		})
	}
}

// Virtual machines of other clusters may run on the nodes of a host cluster.
func TestHostClusterStaysOne(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t, newNamespace(t), "{dnsDomain: maas, image: i, lxdControlPlaneCluster: true}", "")
	if err := management.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	for name, vars := range map[string]string{
		"turned off": "{dnsDomain: maas, image: i, lxdControlPlaneCluster: false}",
		"left out":   "{dnsDomain: maas, image: i}",
	} {
		// The topology controller writes the Cluster, too.
		eventually.Succeeds(t, name, func(ctx context.Context) error {
			if err := management.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil {
				return err
			}
			cluster.Spec.Topology.Variables = variables(t, vars)
			err := management.Update(ctx, cluster, client.DryRunAll)
			if apierrors.IsInvalid(err) {
				return nil
			}
			return errors.Join(errors.New("the Cluster is not found invalid"), err)
		})
	}
}
