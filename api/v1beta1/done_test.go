// SPDX-License-Identifier: Apache-2.0

package v1beta1_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// Helm and Flux wait for what the manager has not seen yet, also where none runs. A template that nothing works on is
// done.
func TestANewObjectIsNotDone(t *testing.T) {
	specs := map[string]string{"LXDHost": "{" + directHost + "}"}
	for kind, sets := range samples() {
		for _, spec := range sets[0] {
			specs[kind] = spec
			break
		}
	}
	for kind, spec := range specs {
		o, want := object(t, kind, spec), status.CurrentStatus
		if kind != "MaasClusterTemplate" && kind != "MaasRemediationTemplate" {
			want = status.InProgressStatus
			// What a client says of the status, the API server drops.
			if err := unstructured.SetNestedField(o.Object, int64(1), "status", "observedGeneration"); err != nil {
				t.Fatal(err)
			}
		}
		if err := api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = api.Delete(t.Context(), o) })
		result, err := status.Compute(o)
		if err != nil {
			t.Fatal(err)
		}
		if result.Status != want {
			t.Errorf("a new %s is %s (%s), want %s", kind, result.Status, result.Message, want)
		}
	}
	if len(specs) != len(generated(t)) {
		t.Errorf("there are objects of %d kinds, and %d CRDs", len(specs), len(generated(t)))
	}
}
