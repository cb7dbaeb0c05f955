// SPDX-License-Identifier: Apache-2.0

package v1beta1_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// Cluster API finds out by a dry run of a server-side apply whether a MaasMachine can be updated in place, and replaces the
// Machine only if the error is Invalid or Forbidden (createRequest in its inplace_canupdatemachine.go).
func TestMaasMachineIsAppliedByClusterAPI(t *testing.T) {
	const clusterAPI = client.FieldOwner("capi-kubeadmcontrolplane")
	apply := func(spec map[string]any, options ...client.ApplyOption) (*unstructured.Unstructured, error) {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		u.SetGroupVersionKind(infrav1.GroupVersion.WithKind("MaasMachine"))
		u.SetNamespace(metav1.NamespaceDefault)
		u.SetName("applied")
		err := api.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), append(options, client.ForceOwnership, clusterAPI)...)
		return u, err
	}
	spec := func(changes ...string) map[string]any {
		spec := map[string]any{"image": "i", "minCPU": int64(2), "release": map[string]any{"erase": "none"}}
		for i := 0; i < len(changes); i += 2 {
			spec[changes[i]] = changes[i+1]
		}
		return spec
	}
	if _, err := apply(spec()); err != nil {
		t.Fatal(err)
	}
	m := &infrav1.MaasMachine{}
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "applied"}, m); err != nil {
		t.Fatal(err)
	}
	ours := m.DeepCopy()
	ours.Spec.SystemID, ours.Spec.ProviderID = "abc", "maas://z/abc"
	if err := api.Patch(t.Context(), ours, client.MergeFrom(m), client.FieldOwner("capmaas")); err != nil {
		t.Fatal(err)
	}
	erased := spec()
	erased["release"] = map[string]any{"erase": "quick"}
	fewer := spec()
	fewer["minCPU"] = int64(1)
	for name, tc := range map[string]struct {
		spec    map[string]any
		allowed bool
	}{
		"nothing":      {spec(), true},
		"release":      {erased, true},
		"image":        {spec("image", "j"), false},
		"cores":        {fewer, false},
		"zone":         {spec("failureDomain", "a"), false},
		"architecture": {spec("architecture", "arm64"), false},
		"other system": {spec("systemID", "abd"), false},
	} {
		got, err := apply(tc.spec, client.DryRunAll)
		switch {
		case tc.allowed != (err == nil), err != nil && !apierrors.IsInvalid(err):
			t.Errorf("%s: %v, allowed: %v", name, err, tc.allowed)
		case err == nil:
			if id, _, _ := unstructured.NestedString(got.Object, "spec", "systemID"); id != "abc" {
				t.Errorf("%s: the apply leaves the system id %q", name, id)
			}
		}
	}
}
