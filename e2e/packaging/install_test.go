// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// Whatever the values, the API server knows every field of every object.
func TestRenderedObjectsAreAccepted(t *testing.T) {
	for name, v := range matrix {
		t.Run(name, func(t *testing.T) {
			if watched, ok := v["watchNamespace"].(string); ok {
				if err := createNamespace(t.Context(), watched, nil); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					_ = management.Delete(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: watched}})
				})
			}
			for _, o := range withHooks(t, v) {
				// Their CRDs are not installed; TestMonitorsFindTheMetrics and TestAlertsSayWhatIsWrong check them.
				if o.GroupVersionKind().Group == monitoringGroup {
					continue
				}
				if o.GetKind() == "Pod" {
					// A pod is refused where its ServiceAccount is not yet: here, that of the values.
					if err := unstructured.SetNestedField(o.Object, "capmaas-manager", "spec", "serviceAccountName"); err != nil {
						t.Fatal(err)
					}
				}
				if err := dryRunApply(t.Context(), o); err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
			}
		})
	}
}

// withHooks are all objects that the chart makes, the pod of helm test among them.
func withHooks(t *testing.T, v values) []*unstructured.Unstructured {
	t.Helper()
	rendered, err := render(releaseNamespace, v)
	if err != nil {
		t.Fatal(err)
	}
	objects := mustParse(t, []byte(rendered.Manifest))
	for _, hook := range rendered.Hooks {
		objects = append(objects, mustParse(t, []byte(hook.Manifest))...)
	}
	return objects
}

func dryRunApply(ctx context.Context, o *unstructured.Unstructured) error {
	// A copy, because the response is written into the object.
	return management.strict.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()),
		client.FieldOwner("packaging"), client.ForceOwnership, client.DryRunAll)
}

// The manager's pod is admitted where only the restricted Pod Security profile is.
func TestPodMeetsTheRestrictedProfile(t *testing.T) {
	installed := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: releaseNamespace, Name: "capmaas-controller-manager"}
	if err := management.Get(t.Context(), key, installed); err != nil {
		t.Fatal(err)
	}
	pod := func(template corev1.PodTemplateSpec) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		p.Namespace, p.GenerateName = releaseNamespace, "test-"
		return p
	}
	admitted := pod(installed.Spec.Template)
	if err := management.Create(t.Context(), admitted, client.DryRunAll); err != nil {
		t.Error(err)
	}
	// The same pod with one right more is not: the profile is enforced here.
	refused := pod(installed.Spec.Template)
	refused.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = ptr.To(true)
	if err := management.Create(t.Context(), refused, client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("got error %v, want that the pod is forbidden", err)
	}
}

// request is a possible request of a ServiceAccount.
type request struct {
	verb, group, resource, subresource, namespace string
	allowed                                       bool
}

func checkAccess(t *testing.T, serviceAccount, namespace string, requests []request) {
	t.Helper()
	for _, r := range requests {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   fmt.Sprintf("system:serviceaccount:%s:%s", namespace, serviceAccount),
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: r.verb, Group: r.group, Resource: r.resource, Subresource: r.subresource, Namespace: r.namespace,
			},
		}}
		if err := management.Create(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed != r.allowed {
			t.Errorf("%+v: allowed is %t", r, review.Status.Allowed)
		}
	}
}

func TestManagersRights(t *testing.T) {
	const infrastructure = "infrastructure.cluster.x-k8s.io"
	checkAccess(t, "capmaas-manager", releaseNamespace, []request{
		{verb: "watch", group: infrastructure, resource: "maasmachines", allowed: true},
		{verb: "patch", group: infrastructure, resource: "maasmachines", subresource: "status", namespace: "any", allowed: true},
		{verb: "adopt", group: infrastructure, resource: "maasclusters", namespace: "any", allowed: true},
		{verb: "create", group: infrastructure, resource: "lxdhosts", namespace: "any", allowed: true},
		{verb: "create", group: infrastructure, resource: "maasclusters", namespace: "any"},
		{verb: "create", group: infrastructure, resource: "maasmachines", namespace: "any"},
		{verb: "delete", group: infrastructure, resource: "maasmachines", namespace: "any"},
		{verb: "list", group: "cluster.x-k8s.io", resource: "machines", allowed: true},
		{verb: "get", resource: "secrets", namespace: "any", allowed: true},
		{verb: "create", group: "authentication.k8s.io", resource: "tokenreviews", allowed: true},
		{verb: "update", group: "coordination.k8s.io", resource: "leases", namespace: releaseNamespace, allowed: true},
		{verb: "update", group: "coordination.k8s.io", resource: "leases", namespace: "any"},
		{verb: "get", group: "controlplane.cluster.x-k8s.io", resource: "kubeadmcontrolplanes", namespace: "any", allowed: true},
		{verb: "create", group: "ipam.cluster.x-k8s.io", resource: "ipaddressclaims", namespace: "any", allowed: true},
		{verb: "get", group: "ipam.cluster.x-k8s.io", resource: "ipaddresses", namespace: "any", allowed: true},
		{verb: "list", group: "controlplane.cluster.x-k8s.io", resource: "kubeadmcontrolplanes", namespace: "any"},
		{verb: "get", group: "controlplane.cluster.x-k8s.io", resource: "others", namespace: "any"},
		{verb: "list", group: "ipam.cluster.x-k8s.io", resource: "ipaddresses", namespace: "any"},
		{verb: "delete", group: "ipam.cluster.x-k8s.io", resource: "ipaddresses", namespace: "any"},
		{verb: "patch", resource: "secrets", namespace: "any", allowed: true},
		{verb: "update", resource: "secrets", namespace: "any"},
		{verb: "delete", resource: "secrets", namespace: "any", allowed: true},
		{verb: "create", resource: "secrets", namespace: "any", allowed: true},
		{verb: "deletecollection", resource: "secrets", namespace: "any"},
		{verb: "create", group: infrastructure, resource: "lxdhosts", namespace: "any", allowed: true},
		{verb: "delete", group: "cluster.x-k8s.io", resource: "machines", namespace: "any"},
		{verb: "patch", group: "controlplane.cluster.x-k8s.io", resource: "kubeadmcontrolplanes", namespace: "any"},
		{verb: "get", group: "cluster.x-k8s.io", resource: "machinesets", namespace: "any", allowed: true},
		{verb: "patch", group: "cluster.x-k8s.io", resource: "machinesets", namespace: "any"},
		{verb: "create", resource: "pods", namespace: releaseNamespace},
	})
}

// A second instance that watches one namespace has rights in no other, nor those for emptying hosts.
func TestManagersRightsInOneNamespace(t *testing.T) {
	own, watched := newNamespace(t), newNamespace(t)
	v := values{"watchNamespace": watched, "crds": values{"install": false}, "evacuation": values{"enabled": true}}
	if err := installChart(t.Context(), "second", own, v); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := uninstallChart("second", own); err != nil {
			t.Error(err)
		}
	})
	const infrastructure = "infrastructure.cluster.x-k8s.io"
	checkAccess(t, "second-capmaas-manager", own, []request{
		{verb: "watch", group: infrastructure, resource: "maasmachines", namespace: watched, allowed: true},
		{verb: "adopt", group: infrastructure, resource: "maasclusters", namespace: watched, allowed: true},
		{verb: "create", group: infrastructure, resource: "lxdhosts", namespace: watched, allowed: true},
		{verb: "create", group: infrastructure, resource: "lxdhosts", namespace: own},
		{verb: "list", resource: "secrets", namespace: watched, allowed: true},
		{verb: "create", group: "authorization.k8s.io", resource: "subjectaccessreviews", allowed: true},
		{verb: "update", group: "coordination.k8s.io", resource: "leases", namespace: own, allowed: true},
		{verb: "list", resource: "secrets", namespace: own},
		{verb: "patch", resource: "secrets", namespace: own},
		{verb: "list", resource: "secrets"},
		{verb: "watch", group: infrastructure, resource: "maasmachines"},
		{verb: "adopt", group: infrastructure, resource: "maasclusters", namespace: own},
		{verb: "delete", group: "cluster.x-k8s.io", resource: "machines", namespace: watched, allowed: true},
		{verb: "patch", group: "controlplane.cluster.x-k8s.io", resource: "kubeadmcontrolplanes", namespace: watched, allowed: true},
		{verb: "get", group: "cluster.x-k8s.io", resource: "machinedeployments", namespace: watched, allowed: true},
		{verb: "delete", group: "cluster.x-k8s.io", resource: "machines", namespace: own},
		{verb: "deletecollection", group: "cluster.x-k8s.io", resource: "machines", namespace: watched},
	})
}

// Uninstalling removes the manager and nothing of the user's; installing again finds it all.
func TestUninstallKeepsClusters(t *testing.T) {
	cluster := &infrav1.MaasCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: newNamespace(t), Name: "precious"},
		Spec:       infrav1.MaasClusterSpec{DNSDomain: "maas"},
	}
	if err := management.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	if err := uninstallChart(releaseName, releaseNamespace); err != nil {
		t.Fatal(err)
	}
	manager := client.ObjectKey{Namespace: releaseNamespace, Name: "capmaas-controller-manager"}
	if err := management.Get(t.Context(), manager, &appsv1.Deployment{}); !apierrors.IsNotFound(err) {
		t.Errorf("reading the manager's Deployment: %v, want that it is not found", err)
	}
	if err := management.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
		t.Errorf("reading the MaasCluster after the chart is uninstalled: %v", err)
	}
	if err := installChart(t.Context(), releaseName, releaseNamespace, nil); err != nil {
		t.Fatalf("installing again: %v", err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := management.Get(t.Context(), client.ObjectKey{Name: "maasclusters.infrastructure.cluster.x-k8s.io"}, crd); err != nil {
		t.Fatal(err)
	}
	if err := management.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil || cluster.DeletionTimestamp != nil {
		t.Errorf("the MaasCluster is gone (%v) or going", err)
	}
}
