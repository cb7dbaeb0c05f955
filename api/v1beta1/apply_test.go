// SPDX-License-Identifier: Apache-2.0

package v1beta1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
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

// An extension that updates only the version of a Machine finds the MaasMachine as its template has it. Cluster API applies
// the template's spec all the same, with the annotation that says that the update goes on, and takes that away at the end
// (triggerInPlaceUpdate of the control plane, completeMoveMachine of the MachineSet, completeInPlaceUpdate of the Machine).
func TestUpdateInPlaceOfTheVersionAlone(t *testing.T) {
	for _, owner := range []client.FieldOwner{"capi-kubeadmcontrolplane", "capi-machineset"} {
		key := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "updated-by-" + string(owner)}
		apply := func(template string, annotations map[string]string, options ...client.ApplyOption) {
			t.Helper()
			u := object(t, "MaasMachine", "{image: i, minCPU: 2, tags: [t], release: {keep: {}}}")
			u.SetGenerateName("")
			u.SetName(key.Name)
			annotations[clusterv1.TemplateClonedFromNameAnnotation] = template
			u.SetAnnotations(annotations)
			options = append(options, client.ForceOwnership, owner)
			if err := api.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), options...); err != nil {
				t.Fatalf("%s: %v", owner, err)
			}
		}
		read := func() *infrav1.MaasMachine {
			t.Helper()
			m := &infrav1.MaasMachine{}
			if err := api.Get(t.Context(), key, m); err != nil {
				t.Fatal(err)
			}
			return m
		}
		apply("first", map[string]string{})
		before := read()
		ours := before.DeepCopy()
		ours.Spec.SystemID, ours.Spec.ProviderID = "abc", "maas://z/abc"
		ours.Annotations[infrav1.RecordAnnotation] = "{}"
		if err := api.Patch(t.Context(), ours, client.MergeFrom(before), client.FieldOwner("capmaas")); err != nil {
			t.Fatal(err)
		}
		apply("second", map[string]string{}, client.DryRunAll)
		apply("second", map[string]string{clusterv1.UpdateInProgressAnnotation: ""})
		marked := read()
		if _, marks := marked.Annotations[clusterv1.UpdateInProgressAnnotation]; !marks {
			t.Errorf("%s: the MaasMachine is not marked: %v", owner, marked.Annotations)
		}
		done := marked.DeepCopy()
		delete(done.Annotations, clusterv1.UpdateInProgressAnnotation)
		if err := api.Patch(t.Context(), done, client.MergeFrom(marked)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(ours.Spec, read().Spec); diff != "" {
			t.Errorf("%s changed the spec:\n%s", owner, diff)
		}
		if got := read().Annotations[infrav1.RecordAnnotation]; got != "{}" {
			t.Errorf("%s: the record is %q", owner, got)
		}
	}
}
