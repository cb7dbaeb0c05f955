// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
)

const testNamespace = "capmaas-system"

var everything = Values{
	Namespace: testNamespace, Image: "registry.example.com:5000/lxd-initializer:v7", PullPolicy: "Always", ImagePullSecrets: []string{"pull"},
	StorageBackend: "btrfs", StorageSize: "120", NetworkBridge: "br-lxd", Zone: "az2", ResourcePool: "vm-hosts",
	CredentialsHash: "0a1b",
}

func mustRender(t *testing.T, values Values) []*unstructured.Unstructured {
	t.Helper()
	objects, err := Initializer(values)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// byHelm returns the initializer's objects of those that an installation of the whole chart with the same values makes.
func byHelm(t *testing.T, values Values) []*unstructured.Unstructured {
	t.Helper()
	whole, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	install := action.NewInstall(&action.Configuration{})
	install.ClientOnly, install.DryRun = true, true
	install.ReleaseName, install.Namespace = InitializerName, values.Namespace
	install.KubeVersion = &chartutil.KubeVersion{Version: "v1.33.0", Major: "1", Minor: "33"}
	release, err := install.Run(whole, values.chart())
	if err != nil {
		t.Fatal(err)
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(release.Manifest), 4096)
	var objects []*unstructured.Unstructured
	for {
		o := &unstructured.Unstructured{}
		if decoder.Decode(o) != nil {
			return objects
		}
		if o.GetLabels()["app"] == InitializerName {
			objects = append(objects, o)
		}
	}
}

// unmanaged removes what says who installed an object, and sorts.
func unmanaged(objects []*unstructured.Unstructured) []map[string]any {
	var result []map[string]any
	for _, o := range objects {
		labels := o.GetLabels()
		delete(labels, helmLabel)
		delete(labels, "app.kubernetes.io/managed-by")
		o.SetLabels(labels)
		result = append(result, o.Object)
	}
	key := func(o map[string]any) string {
		u := unstructured.Unstructured{Object: o}
		return u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
	}
	slices.SortFunc(result, func(a, b map[string]any) int { return cmp.Compare(key(a), key(b)) })
	return result
}

func TestInitializerIsWhatTheChartInstalls(t *testing.T) {
	for name, values := range map[string]Values{"defaults": {Namespace: testNamespace}, "everything": everything} {
		t.Run(name, func(t *testing.T) {
			objects := mustRender(t, values)
			if objects[0].GetKind() != "Namespace" {
				t.Fatalf("the first object is a %s, want the Namespace", objects[0].GetKind())
			}
			if diff := gocmp.Diff(unmanaged(byHelm(t, values)), unmanaged(objects[1:])); diff != "" {
				t.Errorf("objects (-installed by Helm +for a host cluster):\n%s", diff)
			}
		})
	}
}

func TestInitializerIsInstalledInOrder(t *testing.T) {
	want := []string{
		"Namespace capmaas-system",
		"ServiceAccount lxd-initializer",
		"ValidatingAdmissionPolicy lxd-initializer.capmaas-system",
		"ValidatingAdmissionPolicyBinding lxd-initializer.capmaas-system",
		"ClusterRole lxd-initializer.capmaas-system",
		"ClusterRoleBinding lxd-initializer.capmaas-system",
		"Role lxd-initializer",
		"RoleBinding lxd-initializer",
		"Role lxd-initializer.capmaas-system",
		"RoleBinding lxd-initializer.capmaas-system",
		"DaemonSet lxd-initializer",
	}
	var got []string
	for _, o := range mustRender(t, everything) {
		got = append(got, o.GetKind()+" "+o.GetName())
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func TestInitializerIsDeterministic(t *testing.T) {
	if diff := gocmp.Diff(mustRender(t, everything), mustRender(t, everything)); diff != "" {
		t.Errorf("two renderings differ:\n%s", diff)
	}
}

// The manager finds its objects by labels, and leaves those that Helm installed alone.
func TestObjectsHaveTheManagersLabels(t *testing.T) {
	for _, o := range mustRender(t, everything)[1:] {
		for name, want := range map[string]string{"app": InitializerName, "app.kubernetes.io/managed-by": managedBy} {
			if got := o.GetLabels()[name]; got != want {
				t.Errorf("%s %s: label %s is %q, want %q", o.GetKind(), o.GetName(), name, got, want)
			}
		}
		if provider, set := o.GetLabels()["cluster.x-k8s.io/provider"]; set {
			t.Errorf("%s %s is labelled as of provider %s: clusterctl would delete it with the provider", o.GetKind(), o.GetName(), provider)
		}
		if value, set := o.GetLabels()[helmLabel]; set {
			t.Errorf("%s %s has Helm's label %s", o.GetKind(), o.GetName(), value)
		}
	}
	installed := byHelm(t, everything)
	if len(installed) == 0 {
		t.Fatal("the chart installs nothing of the initializer's")
	}
	for _, o := range installed {
		if o.GetLabels()["app.kubernetes.io/managed-by"] == managedBy {
			t.Errorf("%s %s, installed by Helm, has the labels that the manager looks for", o.GetKind(), o.GetName())
		}
	}
}

func toDaemonSet(t *testing.T, o *unstructured.Unstructured) *appsv1.DaemonSet {
	t.Helper()
	daemonSet := &appsv1.DaemonSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, daemonSet); err != nil {
		t.Fatal(err)
	}
	return daemonSet
}

// environment returns the variables of the container, by name.
func environment(t *testing.T, daemonSet *unstructured.Unstructured) map[string]string {
	t.Helper()
	values := map[string]string{}
	for _, variable := range toDaemonSet(t, daemonSet).Spec.Template.Spec.Containers[0].Env {
		values[variable.Name] = variable.Value
	}
	return values
}

// Every field of Values arrives.
func TestValuesReachTheDaemonSet(t *testing.T) {
	objects := mustRender(t, everything)
	daemonSet := toDaemonSet(t, objects[len(objects)-1])
	template := daemonSet.Spec.Template
	container := template.Spec.Containers[0]
	got := map[string]string{
		"namespace": daemonSet.Namespace,
		"image":     container.Image, "pull policy": string(container.ImagePullPolicy), "pull secret": template.Spec.ImagePullSecrets[0].Name,
		"credentials": template.Annotations[CredentialsHashAnnotation],
	}
	maps.Copy(got, environment(t, objects[len(objects)-1]))
	for name, want := range map[string]string{
		"namespace": testNamespace,
		"image":     everything.Image, "pull policy": "Always", "pull secret": "pull", "credentials": "0a1b",
		"STORAGE_BACKEND": "btrfs", "STORAGE_SIZE": "120", "NETWORK_BRIDGE": "br-lxd", "ZONE": "az2", "RESOURCE_POOL": "vm-hosts",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}

// The initializer looks for LXD where its packages have it, at the same paths as on the node. It gets the directories, whether they are there
// or not, and can't change what is in them.
func TestLXDsDirectoriesAreMounted(t *testing.T) {
	objects := mustRender(t, Values{Namespace: testNamespace})
	daemonSet := objects[len(objects)-1]
	sockets := lxdnode.Sockets("")
	if got := environment(t, daemonSet)["LXD_SOCKET"]; got != strings.Join(sockets, ",") {
		t.Errorf("the initializer looks for LXD at %s, want %v", got, sockets)
	}
	spec := toDaemonSet(t, daemonSet).Spec.Template.Spec
	var directories []string
	for _, volume := range spec.Volumes {
		if volume.HostPath == nil {
			continue
		}
		directories = append(directories, volume.HostPath.Path)
		if kind := *volume.HostPath.Type; kind != corev1.HostPathDirectoryOrCreate {
			t.Errorf("%s is to be a %s", volume.HostPath.Path, kind)
		}
		want := corev1.VolumeMount{
			Name: volume.Name, MountPath: volume.HostPath.Path, ReadOnly: true, MountPropagation: ptr.To(corev1.MountPropagationHostToContainer),
		}
		at := slices.IndexFunc(spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume.Name })
		if at < 0 {
			t.Fatalf("the volume %s is not mounted", volume.Name)
		}
		if diff := gocmp.Diff(want, spec.Containers[0].VolumeMounts[at]); diff != "" {
			t.Errorf("the mount of %s (-want +got):\n%s", volume.Name, diff)
		}
	}
	if want := []string{filepath.Dir(sockets[0]), filepath.Dir(sockets[1])}; !slices.Equal(directories, want) {
		t.Errorf("the volumes of the host are %v, want %v", directories, want)
	}
}

// Where nothing is said of the zone, a node of a host cluster has that of its machine.
func TestTheZoneIsThatOfTheMachine(t *testing.T) {
	objects := mustRender(t, Values{Namespace: testNamespace})
	daemonSet := objects[len(objects)-1]
	if got := environment(t, daemonSet); got["ZONE"] != "" || got["ZONE_OF_MACHINE"] != "true" {
		t.Errorf("the initializer has the environment %v", got)
	}
}

func TestBadValuesAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		values Values
		path   string // of what is wrong, in the message
	}{
		"no namespace":         {Values{}, "namespace"},
		"unknown backend":      {Values{Namespace: "n", StorageBackend: "ceph"}, "/lxdInitializer/storageBackend"},
		"size with a unit":     {Values{Namespace: "n", StorageSize: "50GB"}, "/lxdInitializer/storageSize"},
		"long bridge":          {Values{Namespace: "n", NetworkBridge: "a-bridge-too-far"}, "/lxdInitializer/networkBridge"},
		"unknown pull policy":  {Values{Namespace: "n", PullPolicy: "Sometimes"}, "/lxdInitializer/image/pullPolicy"},
		"digest of a bad form": {Values{Namespace: "n", Image: "a@sha256:1"}, "/lxdInitializer/image/digest"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Initializer(tt.values)
			if err == nil {
				t.Fatal("the values are accepted")
			}
			if !strings.Contains(err.Error(), tt.path) {
				t.Errorf("the error does not name %s: %v", tt.path, err)
			}
		})
	}
}

func TestImage(t *testing.T) {
	for reference, want := range map[string]struct{ repository, tag, digest string }{
		"capmaas-manager":                  {"capmaas-manager", "", ""},
		"capmaas-manager:v1":               {"capmaas-manager", "v1", ""},
		"r.example.com:5000/a/b":           {"r.example.com:5000/a/b", "", ""},
		"r.example.com:5000/a/b:v1":        {"r.example.com:5000/a/b", "v1", ""},
		"r.example.com:5000/a/b@sha256:01": {"r.example.com:5000/a/b", "", "sha256:01"},
		"${REGISTRY}/b:${TAG}":             {"${REGISTRY}/b", "${TAG}", ""},
	} {
		all := map[string]any{"repository": want.repository, "tag": want.tag, "digest": want.digest}
		if diff := gocmp.Diff(all, Image(reference)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reference, diff)
		}
	}
}
