// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

const securityPage = "security.md"

// Whoever reads what the manager may, reads all of it.
func TestSecurityNamesEveryRightOfTheManager(t *testing.T) {
	page, err := os.ReadFile(securityPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"role.yaml", "evacuation.yaml"} {
		content, err := os.ReadFile(filepath.Join("..", "charts", "capmaas", "files", "rbac", file))
		if err != nil {
			t.Fatal(err)
		}
		role := &rbacv1.ClusterRole{}
		if err := yaml.UnmarshalStrict(content, role); err != nil || len(role.Rules) == 0 {
			t.Fatalf("reading the manager's rules: %v, %d rules", err, len(role.Rules))
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				if name, _, _ := strings.Cut(resource, "/"); !regexp.MustCompile(`\b` + name + `\b`).Match(page) {
					t.Errorf("%s does not say why the manager may %v %s", securityPage, rule.Verbs, resource)
				}
			}
		}
	}
}

// The policy that the page gives to those who share a manager.
func TestSecuritysPolicyKeepsTenantsToTheirOwnCredentials(t *testing.T) {
	api, _ := apiServer(t)
	for _, o := range policyOf(t) {
		if err := api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for name, labels := range map[string]map[string]string{"tenant": {"capmaas.io/tenant": "true"}, "own": nil} {
		if err := api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}); err != nil {
			t.Fatal(err)
		}
	}
	cluster := func(namespace string, ref *infrav1.LocalObjectReference) *infrav1.MaasCluster {
		return &infrav1.MaasCluster{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "c-", Namespace: namespace}, Spec: infrav1.MaasClusterSpec{DNSDomain: "maas", CredentialsRef: ref},
		}
	}
	// A policy acts some time after it was created.
	eventually.True(t, "a MaasCluster without credentials of its own is refused", func() bool {
		return apierrors.IsInvalid(api.Create(t.Context(), cluster("tenant", nil), client.DryRunAll))
	})
	if err := api.Create(t.Context(), cluster("own", nil), client.DryRunAll); err != nil {
		t.Errorf("a MaasCluster in a namespace that is no tenant's: %v", err)
	}
	ours := cluster("tenant", &infrav1.LocalObjectReference{Name: "maas"})
	if err := api.Create(t.Context(), ours); err != nil {
		t.Fatalf("a MaasCluster with credentials of its own: %v", err)
	}
	ours.Spec.CredentialsRef = nil
	if err := api.Update(t.Context(), ours); !apierrors.IsInvalid(err) {
		t.Errorf("a MaasCluster that loses its credentials: %v, want that it is refused", err)
	}
}

// policyOf are the objects of the page's only YAML block with an admission policy.
func policyOf(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	page, err := os.ReadFile(securityPage)
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(apiVersion: admissionregistration.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatalf("%s has no admission policy", securityPage)
	}
	var objects []*unstructured.Unstructured
	for _, document := range strings.Split(string(block[1]), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
	return objects
}
