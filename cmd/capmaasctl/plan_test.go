// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/planner"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/plan"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const planRegion = `
users: [{name: root, admin: true, keys: ["` + adminKey + `"]}]
zones: [{name: zone-a}, {name: zone-b}, {name: zone-c}]
domains: [{name: maas.test}]
subnets: [{cidr: 10.10.0.0/24, dhcp: true}]
images: [{name: ubuntu/jammy}]
machines: [{names: [metal-a], zone: zone-a, cores: 8, memory: 16384, disks: [100]}]
vm_hosts:
  - {name: lxd-a, zone: zone-a, cores: 8, memory: 16384, storage_pools: [{name: default, size: 500}]}
  - {name: lxd-b, zone: zone-b, cores: 8, memory: 16384, storage_pools: [{name: default, size: 500}]}
  - {name: lxd-c, zone: zone-c, cores: 8, memory: 16384, storage_pools: [{name: default, size: 500}]}
timings: {compose: 0s, vm_host_sync: 24h, power_poll: 24h}
`

// planManifest is a cluster in a namespace, with control planes of a number of cores in VMs, and a number of workers.
const planManifest = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: c1, namespace: %[1]s}
spec:
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: MaasCluster, name: c1}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: cp}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: MaasCluster
metadata: {name: c1, namespace: %[1]s}
spec: {dnsDomain: maas.test}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: cp, namespace: %[1]s}
spec:
  replicas: 3
  version: v1.35.0
  kubeadmConfigSpec: {format: cloud-config}
  machineTemplate: {spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: MaasMachineTemplate, name: cp}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: MaasMachineTemplate
metadata: {name: cp, namespace: %[1]s}
spec: {template: {spec: {provisioningMode: lxd, image: ubuntu/jammy, minCPU: %[2]d, minMemory: 4096}}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: md, namespace: %[1]s}
spec:
  clusterName: c1
  replicas: %[3]d
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      clusterName: c1
      version: v1.35.0
      bootstrap: {dataSecretName: none}
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: MaasMachineTemplate, name: md}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: MaasMachineTemplate
metadata: {name: md, namespace: %[1]s}
spec: {template: {spec: {provisioningMode: bare-metal, image: ubuntu/jammy, minCPU: 2}}}
`

// took is how long a machine took until it was deployed.
const took = 250 * time.Second

// planBed is a MAAS, and a namespace of a management cluster.
type planBed struct {
	bed
	kubernetes
	t         *testing.T
	namespace string
	dir       string
}

func newPlanBed(t *testing.T, k kubernetes) *planBed {
	t.Helper()
	b := &planBed{bed: newBed(t, planRegion, simulator.Options{TimeScale: 2000, Seed: seeds.Add(1)}), kubernetes: k, t: t, dir: t.TempDir()}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "plan-"}}
	b.must(k.client.Create(t.Context(), namespace))
	b.namespace = namespace.Name
	t.Cleanup(func() { // To the next test it would be in that one's MAAS.
		for _, kind := range []client.Object{&infrav1.MaasMachine{}, &infrav1.LXDHost{}} {
			if err := k.client.DeleteAllOf(context.WithoutCancel(t.Context()), kind, client.InNamespace(b.namespace)); err != nil {
				t.Error(err)
			}
		}
	})
	return b
}

func (b *planBed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// plan runs the command, and checks that it changes nothing in MAAS.
func (b *planBed) plan(code int, args ...string) planReport {
	b.t.Helper()
	before := b.State()
	args = append([]string{"capmaasctl", "plan"}, args...)
	got := call(b.t, "", nil, append(args, "--kubeconfig="+b.kubeconfig, "--maas-endpoint="+b.url, "--maas-api-key="+adminKey, "--namespace="+b.namespace, "-o", "json")...)
	var r planReport
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || got.code != code {
		b.t.Fatalf("exit code %d, want %d: %v\n%s%s", got.code, code, err, got.stdout, got.err)
	}
	if !bytes.Equal(before, b.State()) {
		b.t.Error("the plan changed something in MAAS")
	}
	return r
}

// lines are the steps in short.
func lines(r planReport) (text []string) {
	for _, step := range r.Steps {
		owner, _, _ := strings.Cut(step.Owner, "/")
		text = append(text, strings.TrimSpace(fmt.Sprintf("%s %s %s %s %t", step.Action, owner, step.Machine, step.Host, step.Fits)))
	}
	return text
}

func (b *planBed) manifest(cores, workers int) string {
	b.t.Helper()
	file := filepath.Join(b.dir, "cluster.yaml")
	b.must(os.WriteFile(file, fmt.Appendf(nil, planManifest, b.namespace, cores, workers), 0o600))
	return file
}

// topologyManifest is a Cluster of the ClusterClass of this repository that is as that of planManifest. Its parameters
// are the namespace and the variable of workers.
const topologyManifest = `---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: c1, namespace: %s}
spec:
  topology:
    classRef: {name: capmaas}
    version: v1.35.0
    controlPlane: {replicas: 3}
    workers: {machineDeployments: [{class: default-worker, name: md-0, replicas: 1}]}
    variables:
    - {name: dnsDomain, value: maas.test}
    - {name: image, value: ubuntu/jammy}
    - {name: lxdConfig, value: {}}
    - {name: controlPlane, value: {minCPU: 4, minMemory: 4096}}
    - {name: worker, %s}
`

// ofClass writes the ClusterClass and a Cluster of it, with some texts replaced, pair by pair.
func (b *planBed) ofClass(worker string, pairs ...string) (file string) {
	b.t.Helper()
	class, err := os.ReadFile(filepath.Join("..", "..", "clusterclass", "clusterclass-capmaas.yaml"))
	b.must(err)
	cluster := strings.NewReplacer(pairs...).Replace(fmt.Sprintf(topologyManifest, b.namespace, worker))
	file = filepath.Join(b.t.TempDir(), "cluster.yaml")
	b.must(os.WriteFile(file, append(class, cluster...), 0o600))
	return file
}

// labelContract labels a CRD of Cluster API as an installed one.
func (b *planBed) labelContract() {
	b.t.Helper()
	crd := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "kubeadmcontrolplanes.controlplane.cluster.x-k8s.io"}}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": {"cluster.x-k8s.io/v1beta2": "v1beta2"}}}`))
	b.must(b.kubernetes.client.Patch(b.t.Context(), crd, patch))
}

// rewrite replaces texts in the manifest that was written last, pair by pair.
func (b *planBed) rewrite(pairs ...string) (file string) {
	b.t.Helper()
	file = filepath.Join(b.dir, "cluster.yaml")
	content, err := os.ReadFile(file)
	b.must(err)
	b.must(os.WriteFile(file, []byte(strings.NewReplacer(pairs...).Replace(string(content))), 0o600))
	return file
}

func (b *planBed) apply(file string) {
	b.t.Helper()
	content, err := os.ReadFile(file)
	b.must(err)
	objects, err := planner.Decode(bytes.NewReader(content), "")
	b.must(err)
	for _, object := range objects {
		b.must(b.kubernetes.client.Create(b.t.Context(), object))
	}
}

// controlPlanes makes three VMs, one on each host, and their objects.
func (b *planBed) controlPlanes(cores int) {
	b.t.Helper()
	maasClient := b.bed.client(b.t)
	hosts, err := maasClient.ListVMHosts(b.t.Context())
	b.must(err)
	slices.SortFunc(hosts, func(x, y maas.VMHost) int { return strings.Compare(x.Name, y.Name) })
	for i, host := range hosts {
		name := fmt.Sprintf("cp-%d", i)
		id, err := maasClient.Compose(b.t.Context(), maas.Unrecorded("a test"), host.ID, maas.ComposeParams{
			Hostname: b.namespace + name, Cores: cores, Memory: 4096, Storage: "root:20", ZoneID: host.Zone.ID, PoolID: host.Pool.ID, SkipCommissioning: true,
		})
		b.must(err)
		m := &infrav1.MaasMachine{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.namespace, Labels: map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: ""}},
			Spec:       infrav1.MaasMachineSpec{Image: "ubuntu/jammy", ProvisioningMode: infrav1.ProvisioningModeLXD, MinCPU: int32(cores), MinMemory: 4096, SystemID: id},
		}
		b.must(b.kubernetes.client.Create(b.t.Context(), m))
		before := m.DeepCopy()
		m.Status.LXDHost, m.Status.FailureDomain = host.Name, host.Zone.Name
		m.SetConditions([]metav1.Condition{{
			Type: infrav1.MachineDeployedCondition, Status: metav1.ConditionTrue, Reason: "Deployed",
			LastTransitionTime: metav1.NewTime(m.CreationTimestamp.Add(took)),
		}})
		b.must(b.kubernetes.client.Status().Patch(b.t.Context(), m, client.MergeFrom(before)))
		b.must(b.kubernetes.client.Create(b.t.Context(), &infrav1.LXDHost{
			ObjectMeta: metav1.ObjectMeta{
				Name: host.Name, Namespace: b.namespace, Annotations: map[string]string{infrav1.MAASAnnotation: maas.Config{Endpoint: b.url}.Where()},
			},
			Spec: infrav1.LXDHostSpec{VMHost: &infrav1.VMHostReference{ID: int64(host.ID), SystemID: host.Host.SystemID}, AllowedNamespaces: []string{infrav1.AllNamespaces}},
		}))
	}
}

// machine makes the Machine of a MaasMachine.
func (b *planBed) machine(name string, marked bool) {
	b.t.Helper()
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.namespace, Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}}
	m.Labels[clusterv1.MachineControlPlaneLabel] = ""
	if marked {
		m.Annotations = map[string]string{clusterv1.DeleteMachineAnnotation: ""}
	}
	none := "none"
	m.Spec = clusterv1.MachineSpec{
		ClusterName: "c1", Bootstrap: clusterv1.Bootstrap{DataSecretName: &none}, FailureDomain: "zone-" + string('a'+name[len(name)-1]-'0'),
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "MaasMachine", Name: name},
	}
	b.must(b.kubernetes.client.Create(b.t.Context(), m))
}

func TestPlan(t *testing.T) {
	k := newKubernetes(t)
	t.Run("a new cluster", func(t *testing.T) {
		b := newPlanBed(t, k)
		want := []string{
			"create KubeadmControlPlane #1 lxd-a true", "create KubeadmControlPlane #2 lxd-b true", "create KubeadmControlPlane #3 lxd-c true",
			"create MachineDeployment #4 metal-a true",
		}
		if diff := cmp.Diff(want, lines(b.plan(exitOK, "-f", b.manifest(4, 1)))); diff != "" {
			t.Errorf("the plan differs (-want +got):\n%s", diff)
		}
		if r := b.plan(exitOK, "-f", b.manifest(4, 1)); r.Calls != 3*plan.CallsForVM.Create+plan.CallsForMetal.Create {
			t.Errorf("it takes %d calls", r.Calls)
		}
		r := b.plan(exitFailed, "-f", b.manifest(4, 2))
		last := r.Steps[len(r.Steps)-1]
		if len(r.Steps) != 5 || last.Fits || last.Reason == "" || last.Action != plan.Create {
			t.Errorf("of two workers both fit on one machine: %+v", r.Steps)
		}
		if r := b.plan(exitFailed, "-f", b.manifest(9, 0)); len(r.Steps) != 1 || !strings.Contains(r.Steps[0].Reason, "too small") {
			t.Errorf("a control plane larger than each host: %+v", r.Steps)
		}
	})
	t.Run("a new cluster in Cluster API's v1beta1", func(t *testing.T) {
		b := newPlanBed(t, k)
		want := lines(b.plan(exitOK, "-f", b.manifest(4, 1)))
		file := b.rewrite("apiGroup: infrastructure.cluster.x-k8s.io", "apiVersion: infrastructure.cluster.x-k8s.io/v1beta1",
			"apiGroup: controlplane.cluster.x-k8s.io", "apiVersion: controlplane.cluster.x-k8s.io/v1beta1", "x-k8s.io/v1beta2", "x-k8s.io/v1beta1",
			"machineTemplate: {spec: {infrastructureRef: ", "machineTemplate: {infrastructureRef: ", "name: cp}}}\n", "name: cp}}\n")
		if diff := cmp.Diff(want, lines(b.plan(exitOK, "-f", file))); diff != "" {
			t.Errorf("the plan differs from that of v1beta2 (-want +got):\n%s", diff)
		}
	})
	t.Run("a new cluster of a ClusterClass", func(t *testing.T) {
		b := newPlanBed(t, k)
		b.labelContract()
		want := lines(b.plan(exitOK, "-f", b.manifest(4, 1)))
		for name, file := range map[string]string{
			"that is in the manifests": b.ofClass("value: {minCPU: 2}"),
			"in v1beta1":               b.ofClass("value: {minCPU: 2}", "classRef: {name: capmaas}", "class: capmaas"),
		} {
			if diff := cmp.Diff(want, lines(b.plan(exitOK, "-f", file))); diff != "" {
				t.Errorf("%s: the plan differs from that of one without (-want +got):\n%s", name, diff)
			}
		}
		if r := b.plan(exitFailed, "-f", b.ofClass("value: {minCPU: -1}")); !strings.Contains(r.Problem, "worker") || r.Remedy != "" {
			t.Errorf("the class refuses a variable, and the report is %+v", r)
		}
		r := b.plan(exitFailed, "-f", b.ofClass("value: {minCPU: 64}"))
		if last := r.Steps[len(r.Steps)-1]; last.Fits || !strings.Contains(last.Owner, "c1-md-0") {
			t.Errorf("the worker is too large, and the plan is %+v", r.Steps)
		}
	})
	t.Run("workers of another provider's cluster", func(t *testing.T) {
		b := newPlanBed(t, k)
		b.manifest(4, 1)
		file := b.rewrite("kind: MaasCluster, name: c1", "kind: DevCluster, name: c1", "{dnsDomain: maas.test}", "{clusterName: c1}",
			"kind: MaasMachineTemplate, name: cp", "kind: DevMachineTemplate, name: cp")
		if diff := cmp.Diff([]string{"create MachineDeployment #1 metal-a true"}, lines(b.plan(exitOK, "-f", file))); diff != "" {
			t.Errorf("the plan differs (-want +got):\n%s", diff)
		}
	})
	t.Run("clusters that can't be planned", func(t *testing.T) {
		b := newPlanBed(t, k)
		for with, says := range map[string]string{
			"topology: {classRef: {name: capmaas}, version: v1.35.0}": "ClusterClass capmaas",
			"paused: false": "spec.infrastructureRef",
			"infrastructureRef: {apiGroup: example.com, kind: OtherCluster, name: c1}": "OtherCluster",
		} {
			b.manifest(4, 0)
			file := b.rewrite("infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: MaasCluster, name: c1}", with)
			if r := b.plan(exitFailed, "-f", file); !strings.Contains(r.Problem, says) {
				t.Errorf("with %s the problem is %q, want %q in it", with, r.Problem, says)
			}
		}
	})
	t.Run("a new cluster whose zones MAAS does not have", func(t *testing.T) { newPlanBed(t, k).lacksZones() })
	t.Run("an upgrade", func(t *testing.T) {
		b := newPlanBed(t, k)
		b.apply(b.manifest(4, 0))
		b.controlPlanes(4)
		want := []string{
			"create KubeadmControlPlane #1 lxd-a true", "delete KubeadmControlPlane cp-0 lxd-a true",
			"create KubeadmControlPlane #2 lxd-b true", "delete KubeadmControlPlane cp-1 lxd-b true",
			"create KubeadmControlPlane #3 lxd-c true", "delete KubeadmControlPlane cp-2 lxd-c true",
		}
		if diff := cmp.Diff(want, lines(b.plan(exitOK, "upgrade", "c1", "--kubernetes-version=v1.36.0"))); diff != "" {
			t.Errorf("the plan differs (-want +got):\n%s", diff)
		}
		if r := b.plan(exitOK, "upgrade", "c1", "--kubernetes-version=v1.36.0"); r.Seconds != 3*int(took.Seconds()) {
			t.Errorf("it takes %d s", r.Seconds)
		}
		if r := b.plan(exitOK, "upgrade", b.namespace+"/c1", "--kubernetes-version=v1.35.0"); len(r.Steps) != 0 || r.Seconds != 0 {
			t.Errorf("it has that version, and the plan is %+v", r.Steps)
		}
		if r := b.plan(exitFailed, "upgrade", "c1", "--kubernetes-version=v1.34.9"); len(r.Steps) != 0 || !strings.Contains(r.Problem, "v1.35.0") {
			t.Errorf("it has a newer version, and the plan is %+v", r)
		}
		b.checkImagesOfAnotherVersion()
		file := b.manifest(4, 0)
		if r := b.plan(exitOK, "-f", file); len(r.Steps) != 0 {
			t.Errorf("the manifests are as what is there, and the plan is %+v", r.Steps)
		}
		content, err := os.ReadFile(file)
		b.must(err)
		b.must(os.WriteFile(file, bytes.Replace(content, []byte("{format: cloud-config}"), []byte("{preKubeadmCommands: [swapoff -a]}"), 1), 0o600))
		if diff := cmp.Diff(want, lines(b.plan(exitOK, "-f", file))); diff != "" {
			t.Errorf("the plan of another bootstrap configuration differs (-want +got):\n%s", diff)
		}
		if r := b.plan(exitFailed, "upgrade", "other", "--kubernetes-version=v1.35.0"); r.Problem == "" || r.Remedy == "" {
			t.Errorf("there is no such cluster, and the report is %+v", r)
		}
	})
	t.Run("an upgrade of a control plane of which one is marked", func(t *testing.T) {
		b := newPlanBed(t, k)
		b.apply(b.manifest(4, 0))
		b.controlPlanes(4)
		for _, name := range []string{"cp-0", "cp-1", "cp-2"} {
			b.machine(name, name == "cp-1")
		}
		want := []string{
			"create KubeadmControlPlane #1 lxd-a true", "delete KubeadmControlPlane cp-1 lxd-b true",
			"create KubeadmControlPlane #2 lxd-b true", "delete KubeadmControlPlane cp-0 lxd-a true",
			"create KubeadmControlPlane #3 lxd-c true", "delete KubeadmControlPlane cp-2 lxd-c true",
		}
		if diff := cmp.Diff(want, lines(b.plan(exitOK, "upgrade", "c1", "--kubernetes-version=v1.36.0"))); diff != "" {
			t.Errorf("the plan differs (-want +got):\n%s", diff)
		}
	})
	t.Run("manifests without replicas, and with fewer", func(t *testing.T) {
		b := newPlanBed(t, k)
		file := b.manifest(4, 0)
		b.apply(file)
		b.controlPlanes(4)
		content, err := os.ReadFile(file)
		b.must(err)
		replicas := []byte("replicas: 3")
		b.must(os.WriteFile(file, bytes.Replace(content, replicas, nil, 1), 0o600))
		if r := b.plan(exitOK, "-f", file); len(r.Steps) != 0 {
			t.Errorf("the manifests don't say how many there are, and the plan is %+v", r.Steps)
		}
		b.must(os.WriteFile(file, bytes.Replace(content, replicas, []byte("replicas: 1"), 1), 0o600))
		want := []string{"delete KubeadmControlPlane cp-0 lxd-a true", "delete KubeadmControlPlane cp-1 lxd-b true"}
		if diff := cmp.Diff(want, lines(b.plan(exitOK, "-f", file))); diff != "" {
			t.Errorf("the plan differs (-want +got):\n%s", diff)
		}
	})
	t.Run("a drain", func(t *testing.T) {
		b := newPlanBed(t, k)
		b.apply(b.manifest(4, 0))
		b.controlPlanes(4)
		want := []string{"delete KubeadmControlPlane cp-1 lxd-b true", "create KubeadmControlPlane #1 lxd-a true"}
		r := b.plan(exitOK, "drain", "lxd-b")
		if diff := cmp.Diff(want, lines(r)); diff != "" {
			t.Errorf("the plan differs (-want +got):\n%s", diff)
		}
		host := &infrav1.LXDHost{}
		b.must(b.kubernetes.client.Get(t.Context(), client.ObjectKey{Namespace: b.namespace, Name: "lxd-b"}, host))
		host.Annotations[infrav1.MAASAnnotation] = "http://another.example.com/MAAS"
		b.must(b.kubernetes.client.Update(t.Context(), host))
		if r := b.plan(exitFailed, "drain", "lxd-b"); len(r.Steps) != 0 || !strings.Contains(r.Problem, "another.example.com") {
			t.Errorf("the host is of another MAAS, and the report is %+v", r)
		}
		b.must(b.kubernetes.client.DeleteAllOf(t.Context(), &infrav1.LXDHost{}, client.InNamespace(b.namespace)))
		if r := b.plan(exitFailed, "drain", "lxd-b"); r.Problem == "" {
			t.Errorf("there is no such host, and the report is %+v", r)
		}
	})
}

// lacksZones plans a cluster that waits for its failure domains: the reason names the zone.
func (b *planBed) lacksZones() {
	b.t.Helper()
	file := b.manifest(4, 0)
	content, err := os.ReadFile(file)
	b.must(err)
	b.must(os.WriteFile(file, bytes.Replace(content, []byte("dnsDomain"), []byte("failureDomains: [zone-x], dnsDomain"), 1), 0o600))
	if r := b.plan(exitFailed, "-f", file); len(r.Steps) != 1 || !strings.Contains(r.Steps[0].Reason, "zone-x") {
		b.t.Errorf("the plan is %+v", r)
	}
}

// checkImagesOfAnotherVersion checks that the plan of an upgrade names the images that have another version in their
// names.
func (b *planBed) checkImagesOfAnotherVersion() {
	b.t.Helper()
	templates := &infrav1.MaasMachineTemplateList{}
	b.must(b.kubernetes.client.List(b.t.Context(), templates, client.InNamespace(b.namespace)))
	for image, isOther := range map[string]bool{
		"ubuntu/jammy": false, "custom/u-2404-k8s": false, "custom/u-2404-k8s-1.36": false, "custom/u-2404-k8s-v1.36.0-a": false,
		"custom/u-2404-k8s-1.35": true, "custom/u-2404-k8s-v1.36.4": true, "k8s-1.3": true,
	} {
		for i := range templates.Items {
			template := templates.Items[i].DeepCopy()
			b.must(client.IgnoreNotFound(b.kubernetes.client.Delete(b.t.Context(), template)))
			template.ResourceVersion, template.UID, template.Spec.Template.Spec.Image = "", "", image
			b.must(b.kubernetes.client.Create(b.t.Context(), template))
		}
		r := b.plan(exitOK, "upgrade", "c1", "--kubernetes-version=v1.36.0")
		named := len(r.Notes) > 0 && !slices.ContainsFunc(r.Notes, func(note string) bool { return !strings.Contains(note, image) })
		if named != isOther || len(r.Notes) > 0 && !isOther {
			b.t.Errorf("with the image %s the notes are %q", image, r.Notes)
		}
	}
	for i := range templates.Items {
		before := templates.Items[i].DeepCopy()
		b.must(client.IgnoreNotFound(b.kubernetes.client.Delete(b.t.Context(), before)))
		before.ResourceVersion, before.UID = "", ""
		b.must(b.kubernetes.client.Create(b.t.Context(), before))
	}
}

func TestPlanIsCalledAsItsHelpSays(t *testing.T) {
	good := []string{"--kubeconfig=" + filepath.Join(t.TempDir(), "none"), "--maas-endpoint=http://127.0.0.1:1/MAAS", "--maas-api-key=" + goodKey}
	for name, args := range map[string][]string{
		"no manifests":         {"plan"},
		"no cluster":           {"plan", "upgrade", "--kubernetes-version=v1.36.0"},
		"no version":           {"plan", "upgrade", "c1"},
		"a version without v":  {"plan", "upgrade", "c1", "--kubernetes-version=1.36.0"},
		"half a version":       {"plan", "upgrade", "c1", "--kubernetes-version=v1.36"},
		"no number":            {"plan", "upgrade", "c1", "--kubernetes-version=vnext"},
		"two clusters":         {"plan", "upgrade", "c1", "c2", "--kubernetes-version=v1.36.0"},
		"no host":              {"plan", "drain"},
		"a host with no name":  {"plan", "drain", "default/"},
		"no such kubeconfig":   {"plan", "drain", "lxd-a"},
		"an operand of a file": {"plan", "-f", "a.yaml", "c1"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := call(t, "", nil, append(append([]string{"capmaasctl"}, args...), good...)...); got.code != exitUsage || got.stdout != "" {
				t.Errorf("exit code %d, want %d: %s", got.code, exitUsage, got.stdout)
			}
		})
	}
}

func TestThePlanAsText(t *testing.T) {
	r := &planReport{Command: "plan", Steps: []plan.Step{
		{Number: 1, Action: plan.Create, Cluster: "default/c1", Owner: "MachineDeployment/md", Machine: "#1", Host: "lxd-a", Zone: "zone-a", Fits: true},
		{Number: 2, Action: plan.Create, Cluster: "default/c1", Owner: "MachineDeployment/md", Machine: "#2", Reason: "1 host(s): 1 out of cores (lxd-a)"},
	}}
	r.sumUp()
	var text bytes.Buffer
	if err := r.text(&text); err != nil {
		t.Fatal(err)
	}
	want := `STEP  ACTION  CLUSTER     OWNER                 MACHINE  HOST   ZONE    FITS
1     create  default/c1  MachineDeployment/md  #1       lxd-a  zone-a  yes
2     create  default/c1  MachineDeployment/md  #2       -      -       no

2: 1 host(s): 1 out of cores (lxd-a)
It does not fit: 1 machine(s) created, 0 deleted, then it waits. Nothing was changed.
`
	if diff := cmp.Diff(want, text.String()); diff != "" || r.good() {
		t.Errorf("good is %t, and the text differs (-want +got):\n%s", r.good(), diff)
	}
}
