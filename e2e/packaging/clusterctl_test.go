// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	version         = "v0.1.0"
	kubeVIPFlavor   = "lxd-kube-vip"
	virtualIPSubnet = "10.77.0.0/24"
)

// flavors are the cluster templates with kubeadm, by the name that clusterctl gives them.
var flavors = map[string]string{
	"":                  "cluster-template.yaml",
	"lxd":               "cluster-template-lxd.yaml",
	kubeVIPFlavor:       "cluster-template-lxd-kube-vip.yaml",
	"lxd-host":          "cluster-template-lxd-host.yaml",
	"topology":          "cluster-template-topology.yaml",
	"lxd-topology":      "cluster-template-lxd-topology.yaml",
	"lxd-host-topology": "cluster-template-lxd-host-topology.yaml",
}

// otherFlavors are those of other bootstrap providers, with the variables that they add. That they are accepted is tested
// with those providers, in e2e/bootstrap, and in TestFlavorsOfOtherBootstrapProviders.
var otherFlavors = map[string][]string{
	"lxd-rke2": {"RKE2_AIR_GAPPED"}, "lxd-rke2-topology": {"RKE2_AIR_GAPPED"}, "lxd-k3s": nil, "lxd-k3s-topology": nil, "lxd-ck8s": nil,
}

// allFlavors are the names of both.
func allFlavors() []string {
	return slices.Concat(slices.Collect(maps.Keys(flavors)), slices.Collect(maps.Keys(otherFlavors)))
}

// buildManifests builds the program behind `make manifests`, once.
var buildManifests = sync.OnceValues(func() (string, error) {
	program := filepath.Join(management.dir, "manifests")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, "./hack/manifests")
	build.Dir, build.Stderr = sources, os.Stderr
	return program, build.Run()
})

// repository writes a clusterctl repository as `make manifests` does, and returns its directory.
func repository(t *testing.T, arguments ...string) string {
	t.Helper()
	program, err := buildManifests()
	if err != nil {
		t.Fatalf("building hack/manifests: %v", err)
	}
	dir := t.TempDir()
	arguments = append([]string{"--out", dir, "--version", version, "--source", sources}, arguments...)
	if out, err := exec.CommandContext(t.Context(), program, arguments...).CombinedOutput(); err != nil {
		t.Fatalf("hack/manifests: %v\n%s", err, out)
	}
	return dir
}

func releaseDir(repository string) string {
	return filepath.Join(repository, "infrastructure-maas", version)
}

// clusterctl runs the real clusterctl on a repository, with variables for the templates, and returns its output.
func clusterctl(t *testing.T, repository string, variables map[string]string, arguments ...string) ([]byte, error) {
	t.Helper()
	bin := os.Getenv("CAPMAAS_BIN")
	if bin == "" {
		t.Fatal("CAPMAAS_BIN is not set: it is the directory of clusterctl (`make test` builds it and sets it)")
	}
	state := t.TempDir()
	command := exec.CommandContext(t.Context(), filepath.Join(bin, "clusterctl"),
		append([]string{"--config", filepath.Join(repository, "clusterctl.yaml")}, arguments...)...)
	// The environment has nothing of the caller's, whose variables would be taken for the templates'.
	command.Env = []string{"HOME=" + state, "XDG_CONFIG_HOME=" + state, "CLUSTERCTL_DISABLE_VERSIONCHECK=true"}
	for name, value := range variables {
		command.Env = append(command.Env, name+"="+value)
	}
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Logf("clusterctl %s: %s", strings.Join(arguments, " "), stderr.String())
	}
	return out, err
}

// generate runs `clusterctl generate cluster` for a flavor.
func generate(t *testing.T, repository, flavor, namespace string, variables map[string]string, arguments ...string) ([]byte, error) {
	t.Helper()
	arguments = append([]string{
		"generate", "cluster", "c1", "--infrastructure", "maas:" + version, "--flavor", flavor, "--target-namespace", namespace,
		"--kubernetes-version", "v1.35.0", "--control-plane-machine-count", "3", "--worker-machine-count", "2",
	}, arguments...)
	return clusterctl(t, repository, variables, arguments...)
}

func TestEveryTemplateIsAFlavorAndReleased(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(sources, "templates", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, path := range paths {
		got = append(got, filepath.Base(path))
	}
	want := slices.Collect(maps.Values(flavors))
	for flavor := range otherFlavors {
		want = append(want, "cluster-template-"+flavor+".yaml")
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("templates (-tested +in the sources):\n%s", diff)
	}

	entries, err := os.ReadDir(releaseDir(repository(t)))
	if err != nil {
		t.Fatal(err)
	}
	var released []string
	for _, entry := range entries {
		released = append(released, entry.Name())
	}
	want = append(want, "clusterclass-capmaas.yaml", "clusterclass-capmaas-k3s.yaml", "clusterclass-capmaas-rke2.yaml", "infrastructure-components.yaml", "lxd-initializer-daemonset.yaml", "metadata.yaml")
	slices.Sort(want)
	if diff := cmp.Diff(want, released); diff != "" {
		t.Errorf("files of a release (-want +got):\n%s", diff)
	}
}

// The components are as clusterctl's contract wants them, and the API server knows all their fields.
func TestComponents(t *testing.T) {
	dir := repository(t, "--image", "registry.example.com:5000/capmaas/manager:v7", "--initializer-image", "registry.example.com/init@sha256:"+strings.Repeat("0b", 32))
	variables := map[string]string{"MAAS_ENDPOINT": "http://maas.example.com:5240/MAAS", "MAAS_API_KEY": "a:b:c"}
	out, err := clusterctl(t, dir, variables, "generate", "provider", "--infrastructure", "maas:"+version, "--target-namespace", releaseNamespace)
	if err != nil {
		t.Fatal(err)
	}
	objects := mustParse(t, out)
	if n := len(ofKind(objects, "Namespace")); n != 1 {
		t.Errorf("%d Namespaces, want 1", n)
	}
	for _, o := range objects {
		if got := o.GetLabels()["cluster.x-k8s.io/provider"]; got != "infrastructure-maas" {
			t.Errorf("%s %s is labelled as of provider %q", o.GetKind(), o.GetName(), got)
		}
		for name := range o.GetLabels() {
			if strings.HasPrefix(name, "helm.sh/") || name == "app.kubernetes.io/managed-by" {
				t.Errorf("%s %s has Helm's label %s", o.GetKind(), o.GetName(), name)
			}
		}
		for name := range o.GetAnnotations() {
			if strings.HasPrefix(name, "helm.sh/") {
				t.Errorf("%s %s has Helm's annotation %s", o.GetKind(), o.GetName(), name)
			}
		}
		if err := dryRunApply(t.Context(), o); err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	manager := appsv1.Deployment{}
	convert(t, ofKind(objects, "Deployment")[0], &manager)
	if got := manager.Spec.Template.Spec.Containers[0].Image; got != "registry.example.com:5000/capmaas/manager:v7" {
		t.Errorf("the manager's image is %s", got)
	}
	if want := "--initializer-image=registry.example.com/init@sha256:" + strings.Repeat("0b", 32); !slices.Contains(manager.Spec.Template.Spec.Containers[0].Args, want) {
		t.Errorf("the manager is not told the initializer's image: %v", manager.Spec.Template.Spec.Containers[0].Args)
	}
	if n := len(ofKind(objects, "DaemonSet")); n != 0 {
		t.Errorf("%d DaemonSets: the initializer is for host clusters, where the manager puts it", n)
	}
	data, _ := ofKind(objects, "Secret")[0].Object["stringData"].(map[string]any)
	if data["apiKey"] != "a:b:c" {
		t.Error("the Secret does not have the API key of the variable")
	}
	data, _ = ofKind(objects, "ConfigMap")[0].Object["data"].(map[string]any)
	if data["maasEndpoint"] != "http://maas.example.com:5240/MAAS" {
		t.Errorf("the ConfigMap has the endpoint %v", data["maasEndpoint"])
	}
}

func TestComponentsNeedCredentials(t *testing.T) {
	if _, err := clusterctl(t, repository(t), nil, "generate", "provider", "--infrastructure", "maas:"+version); err == nil {
		t.Error("clusterctl generates the provider without MAAS_ENDPOINT and MAAS_API_KEY")
	}
}

// isHost reports whether a flavor is that of a host cluster.
func isHost(flavor string) bool { return strings.HasPrefix(flavor, "lxd-host") }

// Every flavor asks for the same two variables, and offers the same others; those of host clusters, of a virtual IP and
// of other bootstrap providers some more.
func TestFlavorsVariables(t *testing.T) {
	dir := repository(t)
	optional := []string{
		"CLUSTER_NAME", "CONTROL_PLANE_MACHINE_COUNT", "KUBERNETES_VERSION", "NAMESPACE", "POD_CIDR", "SERVICE_CIDR", "WORKER_MACHINE_COUNT",
	}
	for _, role := range []string{"CONTROL_PLANE", "WORKER"} {
		for _, what := range []string{"IMAGE", "MINCPU", "MINDISKSIZE", "MINMEMORY", "RESOURCEPOOL", "TAGS"} {
			optional = append(optional, role+"_MACHINE_"+what)
		}
	}
	for _, flavor := range allFlavors() {
		t.Run("flavor "+flavor, func(t *testing.T) {
			out, err := generate(t, dir, flavor, "default", nil, "--list-variables")
			if err != nil {
				t.Fatal(err)
			}
			required, others, _ := strings.Cut(string(out), "Optional Variables:")
			want := []string{"MAAS_DNS_DOMAIN", "MAAS_IMAGE"}
			if flavor == kubeVIPFlavor {
				want = append(want, "MAAS_VIRTUAL_IP_SUBNET")
			}
			if diff := cmp.Diff(want, variableNames(required)); diff != "" {
				t.Errorf("required variables (-want +got):\n%s", diff)
			}
			want = append(slices.Clone(optional), otherFlavors[flavor]...)
			switch {
			case isHost(flavor):
				want = append(want, "LXD_CHANNEL", "LXD_NETWORK_BRIDGE", "LXD_RESOURCE_POOL", "LXD_STORAGE_BACKEND", "LXD_STORAGE_SIZE")
			case flavor == kubeVIPFlavor:
				want = append(want, "KUBE_VIP_IMAGE")
			}
			slices.Sort(want)
			if diff := cmp.Diff(want, variableNames(others)); diff != "" {
				t.Errorf("optional variables (-want +got):\n%s", diff)
			}
		})
	}
}

var variableLine = regexp.MustCompile(`(?m)^\s*- (\w+)`)

func variableNames(list string) []string {
	var names []string
	for _, match := range variableLine.FindAllStringSubmatch(list, -1) {
		names = append(names, match[1])
	}
	slices.Sort(names)
	return names
}

func TestFlavorsNeedTheirVariables(t *testing.T) {
	dir := repository(t)
	for _, flavor := range allFlavors() {
		if _, err := generate(t, dir, flavor, "default", map[string]string{"MAAS_DNS_DOMAIN": "maas"}); err == nil {
			t.Errorf("flavor %q is generated without MAAS_IMAGE", flavor)
		}
	}
}

// What clusterctl generates is accepted, defaulted and completed by Cluster API's own webhooks, field by field, and
// leads to the same machines with a ClusterClass as without.
func TestFlavorsAreAccepted(t *testing.T) {
	dir := repository(t)
	for name, tt := range map[string]struct {
		variables             map[string]string
		controlPlane, workers string
		host, channel         string // of flavors for host clusters
	}{
		"least": {
			variables:    map[string]string{"MAAS_DNS_DOMAIN": "maas", "MAAS_IMAGE": "custom/u-2404-k8s"},
			controlPlane: "image: custom/u-2404-k8s, resourcePool: default, tags: [], " + sizes,
			workers:      "image: custom/u-2404-k8s, resourcePool: default, tags: [], " + sizes,
			host:         `storageBackend: zfs, storageSize: "50", networkBridge: br0, resourcePool: default`,
			channel:      "5.21/stable",
		},
		"most": {
			variables: map[string]string{
				"MAAS_DNS_DOMAIN": "maas", "MAAS_IMAGE": "unused", "POD_CIDR": "10.200.0.0/16", "SERVICE_CIDR": "10.201.0.0/16",
				"CONTROL_PLANE_MACHINE_IMAGE": "custom/cp", "WORKER_MACHINE_IMAGE": "custom/worker",
				"CONTROL_PLANE_MACHINE_MINCPU": "4", "CONTROL_PLANE_MACHINE_MINMEMORY": "8192", "CONTROL_PLANE_MACHINE_MINDISKSIZE": "60",
				"CONTROL_PLANE_MACHINE_RESOURCEPOOL": "vm-hosts", "CONTROL_PLANE_MACHINE_TAGS": "[fast, rack-1]",
				"WORKER_MACHINE_MINCPU": "32", "WORKER_MACHINE_MINMEMORY": "131072", "WORKER_MACHINE_MINDISKSIZE": "900",
				"WORKER_MACHINE_RESOURCEPOOL": "metal", "WORKER_MACHINE_TAGS": "[gpu]",
				"LXD_STORAGE_BACKEND": "btrfs", "LXD_STORAGE_SIZE": "900", "LXD_NETWORK_BRIDGE": "br-vm", "LXD_RESOURCE_POOL": "vm-hosts",
				"LXD_CHANNEL": "6/stable", "KUBE_VIP_IMAGE": "registry.example.com/kube-vip:v1",
			},
			controlPlane: "image: custom/cp, minCPU: 4, minMemory: 8192, minDiskSize: 60, resourcePool: vm-hosts, tags: [fast, rack-1]",
			workers:      "image: custom/worker, minCPU: 32, minMemory: 131072, minDiskSize: 900, resourcePool: metal, tags: [gpu]",
			host:         `storageBackend: btrfs, storageSize: "900", networkBridge: br-vm, resourcePool: vm-hosts`,
			channel:      "6/stable",
		},
	} {
		for flavor := range flavors {
			t.Run("flavor "+flavor+"/"+name, func(t *testing.T) {
				cluster := createFlavor(t, dir, flavor, tt.variables)
				if cluster.Spec.Topology.IsDefined() {
					cluster = reconciled(t, cluster)
				}
				got := observe(t, cluster)
				spec, commands, mode := "dnsDomain: maas", preKubeadm, "bare-metal"
				controlPlane, workers := tt.controlPlane, tt.workers
				switch {
				case isHost(flavor):
					// The storage pool is a file on the disk.
					controlPlane, workers = strings.ReplaceAll(controlPlane, sizes, hostSizes), strings.ReplaceAll(workers, sizes, hostSizes)
					spec += ", lxdControlPlaneCluster: true, lxdConfig: {" + tt.host + "}"
					commands = slices.Concat(preKubeadm, installLXD(tt.channel))
				case strings.HasPrefix(flavor, "lxd"):
					mode = "lxd"
				}
				if flavor == kubeVIPFlavor {
					spec += ", virtualIP: {subnet: " + virtualIPSubnet + "}"
					delete(got.commands, "control-plane") // Compared with those by class.
				}
				if diff := cmp.Diff(fields(t, spec), got.cluster); diff != "" {
					t.Errorf("MaasCluster.spec (-want +got):\n%s", diff)
				}
				for whose, got := range got.commands {
					if diff := cmp.Diff(commands, got); diff != "" {
						t.Errorf("commands before kubeadm of %s (-want +got):\n%s", whose, diff)
					}
				}
				checkMachines(t, "the control plane", mode, controlPlane, got.controlPlane)
				for _, worker := range got.workers {
					checkMachines(t, "the workers", "bare-metal", workers, worker)
				}
				if len(got.workers) != 1 {
					t.Errorf("%d MachineDeployments, want 1", len(got.workers))
				}
			})
		}
	}
}

// createFlavor creates what clusterctl generates, and returns the Cluster.
func createFlavor(t *testing.T, repository, flavor string, variables map[string]string) *clusterv1.Cluster {
	t.Helper()
	variables = maps.Clone(variables)
	variables["MAAS_VIRTUAL_IP_SUBNET"] = virtualIPSubnet
	namespace := newNamespace(t)
	out, err := generate(t, repository, flavor, namespace, variables)
	if err != nil {
		t.Fatal(err)
	}
	objects := mustParse(t, out)
	for _, o := range objects {
		if err := management.strict.Create(t.Context(), o); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	clusters := ofKind(objects, "Cluster")
	if len(clusters) != 1 {
		t.Fatalf("%d Clusters are generated, want 1", len(clusters))
	}
	cluster := &clusterv1.Cluster{}
	if err := management.Get(t.Context(), client.ObjectKeyFromObject(clusters[0]), cluster); err != nil {
		t.Fatal(err)
	}
	return cluster
}

// checkMachines compares the spec of a MaasMachineTemplate. That of an LXD control plane by class has an empty
// lxdConfig, and that of bare metal need not have one.
func checkMachines(t *testing.T, whose, mode, want string, got map[string]any) {
	t.Helper()
	expected := fields(t, want)
	if mode == "lxd" || got["provisioningMode"] != nil {
		expected["provisioningMode"] = mode
	}
	if _, set := got["lxdConfig"]; set && mode == "lxd" {
		expected["lxdConfig"] = map[string]any{}
	}
	if diff := cmp.Diff(expected, got); diff != "" {
		t.Errorf("MaasMachineTemplate of %s (-want +got):\n%s", whose, diff)
	}
}

// kube-vip is put on the control planes in the same way with a ClusterClass as without, with the requested image, and
// on no other cluster's.
func TestKubeVIPIsTheSameByFlavorAndByClass(t *testing.T) {
	t.Parallel()
	const image = "registry.example.com/kube-vip:v1"
	flavor := observe(t, createFlavor(t, repository(t), kubeVIPFlavor, map[string]string{
		"MAAS_DNS_DOMAIN": "maas", "MAAS_IMAGE": "custom/u-2404-k8s", "KUBE_VIP_IMAGE": image,
	}))
	class := observe(t, reconciled(t, createTopology(t, "{dnsDomain: maas, image: ubuntu/noble, kubeVIPImage: "+image+", virtualIP: {subnet: "+virtualIPSubnet+"}}")))
	if diff := cmp.Diff(fields(t, "dnsDomain: maas, virtualIP: {subnet: "+virtualIPSubnet+"}"), class.cluster); diff != "" {
		t.Errorf("MaasCluster.spec by class (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(flavor.bootstrap, class.bootstrap); diff != "" {
		t.Errorf("what control planes do (-flavor +class):\n%s", diff)
	}
	if len(flavor.bootstrap.Files) != 1 || !strings.Contains(flavor.bootstrap.Files[0].Content, image) {
		t.Errorf("files of the control planes: %v, want one with the image %s", flavor.bootstrap.Files, image)
	}
	// Nobody responds while the address moves away from a control plane that is deleted.
	for how, timeout := range map[string]*int32{"flavor": flavor.deletion.NodeDeletionTimeoutSeconds, "class": class.deletion.NodeDeletionTimeoutSeconds} {
		if timeout == nil || *timeout != 0 {
			t.Errorf("by %s, the deletion of a Node is given up after %d s, want never", how, ptr.Deref(timeout, -1))
		}
	}
	without := observe(t, reconciled(t, createTopology(t, "{dnsDomain: maas, image: ubuntu/noble}")))
	if len(without.bootstrap.Files) != 0 {
		t.Errorf("files without virtualIP: %v, want none", without.bootstrap.Files)
	}
}
