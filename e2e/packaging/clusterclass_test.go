// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
)

// newClass makes the ClusterClass in a namespace of its own, and waits until its variables can be used.
func newClass(t *testing.T) (namespace string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(sources, "clusterclass", "clusterclass-capmaas.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	namespace = newNamespace(t)
	for _, o := range mustParse(t, content) {
		o.SetNamespace(namespace)
		if err := management.strict.Create(t.Context(), o); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	eventually(t, "the ClusterClass is ready", func(ctx context.Context) error {
		class := &clusterv1.ClusterClass{}
		if err := management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "capmaas"}, class); err != nil {
			return err
		}
		if !conditions.IsTrue(class, clusterv1.ClusterClassVariablesReadyCondition) || class.Status.ObservedGeneration != class.Generation {
			return fmt.Errorf("conditions are %v", class.Status.Conditions)
		}
		return nil
	})
	return namespace
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

// newCluster is a Cluster of the class; with overrides, a second MachineDeployment has them.
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
			ClassRef:     clusterv1.ClusterClassRef{Name: "capmaas"},
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
	cluster := newCluster(t, newClass(t), vars, "")
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
	// commands run before kubeadm, by the MachineDeployment's name in the topology, and control-plane.
	commands map[string][]string
	// controlPlaneTemplate is the name of the control plane's MaasMachineTemplate.
	controlPlaneTemplate string
	// workerTemplates are the names of the workers' MaasMachineTemplates, as workers.
	workerTemplates map[string]string
}

// reconciled waits until Cluster API has made what the Cluster's topology asks for.
func reconciled(t *testing.T, cluster *clusterv1.Cluster) *clusterv1.Cluster {
	t.Helper()
	eventually(t, "the topology is reconciled", func(ctx context.Context) error {
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
	result.commands["control-plane"] = kcp.Spec.KubeadmConfigSpec.PreKubeadmCommands
	result.controlPlaneTemplate = kcp.Spec.MachineTemplate.Spec.InfrastructureRef.Name
	result.controlPlane = readTemplate(t, cluster.Namespace, result.controlPlaneTemplate)

	deployments := &clusterv1.MachineDeploymentList{}
	if err := management.List(t.Context(), deployments, client.InNamespace(cluster.Namespace)); err != nil {
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

// fields reads a spec from YAML, in the types that the API server's answers have.
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

// preKubeadm is what every machine runs before kubeadm.
var preKubeadm = []string{"swapoff --all", `sed --in-place --regexp-extended '/^[^#]\S*\s+\S+\s+swap\s/d' /etc/fstab`}

// installLXD is what the machines of host clusters run besides.
func installLXD(channel string) []string {
	return []string{
		"snap wait system seed.loaded", `snap list lxd || snap install lxd --channel="` + channel + `"`, "/snap/bin/lxd waitready --timeout=300",
	}
}

func TestClassVariables(t *testing.T) {
	for name, tt := range map[string]struct {
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
controlPlane: {minCPU: 4, minMemory: 8192, minDiskSize: 40, resourcePool: vms, tags: [lxd]}
worker: {minCPU: 16, minMemory: 65536, minDiskSize: 900, resourcePool: metal, tags: [gpu, ssd]}
workerMode: lxd
workerLXDConfig: {storage: {pool: slow}}
credentialsRef: {name: team-a}
controlPlaneEndpoint: {host: api.example.com}
preferredSubnets: [10.77.0.0/24]
apiServerCertSANs: [other.example.com, 10.0.0.9]
`,
			cluster: `dnsDomain: maas, failureDomains: [az2], credentialsRef: {name: team-a},
				controlPlaneEndpoint: {host: api.example.com, port: 6443}, preferredSubnets: [10.77.0.0/24]`,
			controlPlane: `image: i, provisioningMode: lxd, failureDomain: az2, staticIP: 10.77.0.50,
				minCPU: 4, minMemory: 8192, minDiskSize: 40, resourcePool: vms, tags: [lxd],
				lxdConfig: {profile: maas, storage: {size: "40", pool: fast}, vmHost: host-a1, project: k8s, commission: true,
					network: {devices: [{name: eth0, bridge: br0, linkMode: static}, {name: eth1, subnet: 10.1.0.0/16, linkMode: link_up}]}}`,
			workers: map[string]string{"md-0": `image: i, provisioningMode: lxd, failureDomain: az2, lxdConfig: {storage: {pool: slow}},
				minCPU: 16, minMemory: 65536, minDiskSize: 900, resourcePool: metal, tags: [gpu, ssd]`},
			certSANs: []string{"localhost", "127.0.0.1", "other.example.com", "10.0.0.9"},
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
			cluster := newCluster(t, newClass(t), tt.variables, tt.overrides)
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

// A bad variable is refused when the Cluster is created, and not found out by a template that can't be made.
func TestBadVariablesAreRefused(t *testing.T) {
	namespace := newClass(t)
	for name, vars := range map[string]string{
		"no domain":                   "{image: i}",
		"no image":                    "{dnsDomain: maas}",
		"unknown variable":            "{dnsDomain: maas, image: i, flavor: lxd}",
		"domain with a scheme":        "{dnsDomain: 'http://maas', image: i}",
		"image with a space":          "{dnsDomain: maas, image: ubuntu noble}",
		"unknown field of lxdConfig":  "{dnsDomain: maas, image: i, lxdConfig: {host: a}}",
		"size with a unit":            "{dnsDomain: maas, image: i, lxdConfig: {storage: {size: 40GB}}}",
		"size too small":              "{dnsDomain: maas, image: i, lxdConfig: {storage: {size: '7'}}}",
		"bridge and devices":          "{dnsDomain: maas, image: i, lxdConfig: {network: {bridge: br0, devices: [{name: a, bridge: b}]}}}",
		"device on nothing":           "{dnsDomain: maas, image: i, lxdConfig: {network: {devices: [{name: a}]}}}",
		"devices out of order":        "{dnsDomain: maas, image: i, lxdConfig: {network: {devices: [{name: b, bridge: b}, {name: a, bridge: b}]}}}",
		"unknown link mode":           "{dnsDomain: maas, image: i, lxdConfig: {network: {devices: [{name: a, bridge: b, linkMode: up}]}}}",
		"pool without a kind":         "{dnsDomain: maas, image: i, staticIPPoolRef: {apiGroup: a.b, name: p}}",
		"staticIP is no address":      "{dnsDomain: maas, image: i, staticIP: 10.77.0.50/24}",
		"empty zone":                  "{dnsDomain: maas, image: i, zone: ''}",
		"no failure domains":          "{dnsDomain: maas, image: i, failureDomains: []}",
		"cores are a word":            "{dnsDomain: maas, image: i, controlPlane: {minCPU: two}}",
		"unknown size":                "{dnsDomain: maas, image: i, worker: {memory: 4096}}",
		"bad tag":                     "{dnsDomain: maas, image: i, worker: {tags: ['a,b']}}",
		"unknown mode of workers":     "{dnsDomain: maas, image: i, workerMode: vm}",
		"credentials without a name":  "{dnsDomain: maas, image: i, credentialsRef: {}}",
		"endpoint without a host":     "{dnsDomain: maas, image: i, controlPlaneEndpoint: {port: 6443}}",
		"host cluster is a word":      "{dnsDomain: maas, image: i, lxdControlPlaneCluster: 'yes'}",
		"unknown setting of hosts":    "{dnsDomain: maas, image: i, lxdHostConfig: {bridge: br0}}",
		"unknown storage of hosts":    "{dnsDomain: maas, image: i, lxdHostConfig: {storageBackend: ceph}}",
		"storage of hosts, a unit":    "{dnsDomain: maas, image: i, lxdHostConfig: {storageSize: 50GB}}",
		"long bridge of hosts":        "{dnsDomain: maas, image: i, lxdHostConfig: {networkBridge: a-bridge-too-far}}",
		"channel is a command":        "{dnsDomain: maas, image: i, lxdChannel: 'a; reboot'}",
		"preferred subnet, no prefix": "{dnsDomain: maas, image: i, preferredSubnets: [10.77.0.0]}",
	} {
		t.Run(name, func(t *testing.T) {
			err := management.Create(t.Context(), newCluster(t, namespace, vars, ""), client.DryRunAll)
			if !apierrors.IsInvalid(err) {
				t.Errorf("got error %v, want one that says the Cluster is invalid", err)
			}
		})
	}
}

// Virtual machines of other clusters may run on the nodes of a host cluster.
func TestHostClusterStaysOne(t *testing.T) {
	cluster := newCluster(t, newClass(t), "{dnsDomain: maas, image: i, lxdControlPlaneCluster: true}", "")
	if err := management.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	for name, vars := range map[string]string{
		"turned off": "{dnsDomain: maas, image: i, lxdControlPlaneCluster: false}",
		"left out":   "{dnsDomain: maas, image: i}",
	} {
		// The topology controller writes the Cluster, too.
		eventually(t, name, func(ctx context.Context) error {
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

// Changing a variable replaces the templates that it is about, and no others: machines are replaced with them. The
// topology controller finds that out by dry runs, which the policy on templates lets pass.
func TestVariablesReplaceWhatTheyAreAbout(t *testing.T) {
	cluster := newCluster(t, newClass(t), "{dnsDomain: maas, image: i}", "")
	if err := management.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	before := observe(t, reconciled(t, cluster))
	for _, step := range []struct {
		name                  string
		variables             string
		controlPlane, workers bool
	}{
		{"image", "{dnsDomain: maas, image: j}", true, true},
		{"LXD control planes", "{dnsDomain: maas, image: j, lxdConfig: {}}", true, false},
		{"storage of LXD control planes", "{dnsDomain: maas, image: j, lxdConfig: {storage: {size: '40'}}}", true, false},
		{"tags of workers", "{dnsDomain: maas, image: j, lxdConfig: {storage: {size: '40'}}, worker: {tags: [ssd]}}", false, true},
		{"preferred subnets", "{dnsDomain: maas, image: j, lxdConfig: {storage: {size: '40'}}, worker: {tags: [ssd]}, preferredSubnets: [10.0.0.0/8]}", false, false},
		{"zone", "{dnsDomain: maas, image: j, lxdConfig: {storage: {size: '40'}}, worker: {tags: [ssd]}, zone: az1}", true, true},
	} {
		patch := client.MergeFrom(cluster.DeepCopy())
		cluster.Spec.Topology.Variables = variables(t, step.variables)
		if err := management.Patch(t.Context(), cluster, patch); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		after := observe(t, reconciled(t, cluster))
		if replaced := after.controlPlaneTemplate != before.controlPlaneTemplate; replaced != step.controlPlane {
			t.Errorf("%s: the control plane's template is replaced: %t, want %t", step.name, replaced, step.controlPlane)
		}
		if replaced := after.workerTemplates["md-0"] != before.workerTemplates["md-0"]; replaced != step.workers {
			t.Errorf("%s: the workers' template is replaced: %t, want %t", step.name, replaced, step.workers)
		}
		before = after
	}
}
