// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/charts"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

// initializerObjects are those that the manager puts into a host cluster.
func initializerObjects(t *testing.T, namespace string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := charts.Initializer(charts.Values{Namespace: namespace, Image: "r.example.com/lxd-initializer:v1"})
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// installInitializer installs the initializer in a new namespace, and removes it after the test.
func installInitializer(t *testing.T) (namespace string) {
	t.Helper()
	namespace = newNamespace(t)
	for _, o := range initializerObjects(t, namespace) {
		owner := client.FieldOwner("packaging")
		if err := management.strict.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), owner, client.ForceOwnership); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
		if o.GetNamespace() != namespace && o.GetKind() != "Namespace" {
			t.Cleanup(func() { _ = management.Delete(context.Background(), o) })
		}
	}
	return namespace
}

// newNode makes a Node for one test. There is no kubelet.
func newNode(t *testing.T, name string, taints ...corev1.Taint) *corev1.Node {
	t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": "infra"}, Annotations: map[string]string{"note": "kept"}},
		Spec:       corev1.NodeSpec{Taints: taints},
	}
	if err := management.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = management.Delete(context.Background(), node) })
	// Admission taints a new Node as not ready, and the controller that removes the taint in a real cluster does not
	// run here.
	node.Spec.Taints = taints
	if err := management.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure"},
	}
	if err := management.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	return node
}

// The output of `make manifests` for kubectl apply is accepted, is the same initializer, and has the requested image.
func TestDaemonSetManifest(t *testing.T) {
	for name, tt := range map[string]struct {
		arguments []string
		image     string
	}{
		"placeholders": {nil, "${REGISTRY}/capmaas-lxd-initializer:${TAG}"},
		"an image":     {[]string{"--initializer-image", "r.example.com/init:v9"}, "r.example.com/init:v9"},
	} {
		t.Run(name, func(t *testing.T) {
			content, err := os.ReadFile(filepath.Join(releaseDir(repository(t, tt.arguments...)), "lxd-initializer-daemonset.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			objects := mustParse(t, content)
			var got, want []string
			for _, o := range objects {
				got = append(got, o.GetKind()+" "+o.GetName())
				if err := dryRunApply(t.Context(), o); err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
				if manager, set := o.GetLabels()["app.kubernetes.io/managed-by"]; set {
					t.Errorf("%s %s says that %s manages it", o.GetKind(), o.GetName(), manager)
				}
			}
			for _, o := range initializerObjects(t, releaseNamespace) {
				want = append(want, o.GetKind()+" "+o.GetName())
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("objects (-for a host cluster +for kubectl):\n%s", diff)
			}
			daemonSet := appsv1.DaemonSet{}
			convert(t, ofKind(objects, "DaemonSet")[0], &daemonSet)
			if image := daemonSet.Spec.Template.Spec.Containers[0].Image; image != tt.image {
				t.Errorf("the image is %s, want %s", image, tt.image)
			}
			// A node that never becomes ready, or is down, must not stop a rollout.
			if update := daemonSet.Spec.UpdateStrategy.RollingUpdate; update == nil || update.MaxUnavailable.String() != "100%" {
				t.Errorf("a rollout waits for nodes: %+v", update)
			}
		})
	}
}

// The selectors of the chart's workloads have nothing in common.
func TestInitializersPodsAreNotTheManagers(t *testing.T) {
	objects := mustRender(t, values{"lxdInitializer": values{"enabled": true}})
	daemonSet := appsv1.DaemonSet{}
	convert(t, ofKind(objects, "DaemonSet")[0], &daemonSet)
	service := corev1.Service{}
	convert(t, ofKind(objects, "Service")[0], &service)
	matches := func(selector, labels map[string]string) bool {
		for name, value := range selector {
			if labels[name] != value {
				return false
			}
		}
		return true
	}
	manager := deployment(t, nil)
	for whose, selector := range map[string]map[string]string{"Deployment": manager.Spec.Selector.MatchLabels, "Service": service.Spec.Selector} {
		if matches(selector, daemonSet.Spec.Template.Labels) {
			t.Errorf("the manager's %s selects the initializer's pods", whose)
		}
	}
	if matches(daemonSet.Spec.Selector.MatchLabels, manager.Spec.Template.Labels) {
		t.Error("the initializer's DaemonSet selects the manager's pods")
	}
	if daemonSet.Spec.Template.Labels["app"] != "lxd-initializer" {
		t.Error("the initializer's pods don't have the label app=lxd-initializer")
	}
}

// The initializer can do nothing without credentials: its pods wait for those that the chart or the user makes.
func TestInitializerNeedsCredentials(t *testing.T) {
	for name, tt := range map[string]struct {
		maas              values
		secret, configMap string
	}{
		"none yet": {nil, "maas-credentials", "capmaas-config"},
		"existing": {values{"existingSecret": "s", "existingConfigMap": "c"}, "s", "c"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := mustRender(t, values{"maas": tt.maas, "lxdInitializer": values{"enabled": true}})
			daemonSet := appsv1.DaemonSet{}
			convert(t, ofKind(objects, "DaemonSet")[0], &daemonSet)
			found := 0
			for _, volume := range daemonSet.Spec.Template.Spec.Volumes {
				if volume.Secret != nil && volume.Secret.SecretName == tt.secret && !ptr.Deref(volume.Secret.Optional, false) {
					found++
				}
				if volume.ConfigMap != nil && volume.ConfigMap.Name == tt.configMap && !ptr.Deref(volume.ConfigMap.Optional, false) {
					found++
				}
			}
			if found != 2 {
				t.Errorf("volumes are %v, want Secret %s and ConfigMap %s, both required", daemonSet.Spec.Template.Spec.Volumes, tt.secret, tt.configMap)
			}
		})
	}
}

// Nodes become hosts by themselves, control planes as well.
func TestEveryNodeGetsAnInitializer(t *testing.T) {
	newNode(t, "control-plane", corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule})
	newNode(t, "worker")
	newNode(t, "reserved", corev1.Taint{Key: "example.com/reserved", Effect: corev1.TaintEffectNoSchedule})
	namespace := installInitializer(t)
	eventually.Succeeds(t, "pods for two nodes", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		err := management.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels{"app": "lxd-initializer"})
		if err == nil && len(pods.Items) != 2 {
			err = fmt.Errorf("%d pods", len(pods.Items))
		}
		return err
	})
}

// The initializer's pod needs more than the profiles baseline and restricted admit, and this is all of it.
func TestInitializersPodSecurity(t *testing.T) {
	objects := initializerObjects(t, "any")
	daemonSet := appsv1.DaemonSet{}
	convert(t, ofKind(objects, "DaemonSet")[0], &daemonSet)
	for profile, want := range map[string][]string{
		"privileged": nil,
		"baseline":   {`hostPath volumes (volumes "lxd-snap", "lxd-package")`},
		"restricted": {
			`restricted volume types (volumes "lxd-snap", "lxd-package" use restricted volume type "hostPath")`,
			`runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false)`,
			`runAsUser=0 (pod must not set runAsUser=0)`,
		},
	} {
		t.Run(profile, func(t *testing.T) {
			namespace := "security-" + profile
			if err := createNamespace(t.Context(), namespace, map[string]string{"pod-security.kubernetes.io/enforce": profile}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = management.Delete(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
			})
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: charts.InitializerName}}
			if err := management.Create(t.Context(), account); err != nil {
				t.Fatal(err)
			}
			pod := &corev1.Pod{ObjectMeta: daemonSet.Spec.Template.ObjectMeta, Spec: daemonSet.Spec.Template.Spec}
			pod.Namespace, pod.GenerateName = namespace, "test-"
			err := management.Create(t.Context(), pod, client.DryRunAll)
			if want == nil {
				if err != nil {
					t.Errorf("the pod is refused: %v", err)
				}
				return
			}
			if !apierrors.IsForbidden(err) {
				t.Fatalf("got error %v, want that the pod is forbidden", err)
			}
			if diff := cmp.Diff(want, violations(err)); diff != "" {
				t.Errorf("what the profile forbids (-want +got):\n%s", diff)
			}
		})
	}
}

// podSecurityMessage is the beginning of the API server's message; only its text names the rules of a profile that are
// broken.
var (
	podSecurityMessage = regexp.MustCompile(`violates PodSecurity "[^"]*": `)
	betweenViolations  = regexp.MustCompile(`\), `)
)

func violations(err error) []string {
	parts := podSecurityMessage.Split(err.Error(), 2)
	if len(parts) != 2 {
		return []string{err.Error()}
	}
	found := betweenViolations.Split(strings.TrimSuffix(parts[1], ")"), -1)
	for i := range found {
		found[i] += ")"
	}
	return found
}
