// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

// Templates are immutable, except in a dry run of the topology controller. Neither the dry run nor the annotation alone
// is enough.
func TestTemplatesAreImmutable(t *testing.T) {
	for kind, field := range map[string]string{"MaasMachineTemplate": "image", "MaasClusterTemplate": "dnsDomain"} {
		t.Run(kind, func(t *testing.T) {
			namespace := newNamespace(t)
			template := func(value, annotation string) *unstructured.Unstructured {
				o := &unstructured.Unstructured{Object: map[string]any{
					"spec": map[string]any{"template": map[string]any{"spec": map[string]any{field: value}}},
				}}
				o.SetGroupVersionKind(infrav1.GroupVersion.WithKind(kind))
				o.SetNamespace(namespace)
				o.SetName("template")
				if annotation != "" {
					o.SetAnnotations(map[string]string{annotation: ""})
				}
				return o
			}
			apply := func(ctx context.Context, o *unstructured.Unstructured, options ...client.ApplyOption) error {
				options = append(options, client.FieldOwner("packaging"), client.ForceOwnership)
				return management.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), options...)
			}
			if err := apply(t.Context(), template("before", "")); err != nil {
				t.Fatal(err)
			}
			// A policy acts some time after it was created.
			eventually.Succeeds(t, "a change is denied", func(ctx context.Context) error {
				if apply(ctx, template("after", ""), client.DryRunAll) == nil {
					return errors.New("a change is accepted")
				}
				return nil
			})

			const topology = clusterv1.TopologyDryRunAnnotation
			for name, err := range map[string]error{
				"change":                     apply(t.Context(), template("after", "")),
				"dry run without annotation": apply(t.Context(), template("after", ""), client.DryRunAll),
				"annotation without dry run": apply(t.Context(), template("after", topology)),
				"dry run, other annotation":  apply(t.Context(), template("after", "example.com/dry-run"), client.DryRunAll),
			} {
				if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "create a new template") {
					t.Errorf("%s: got error %v, want one that says what to do instead", name, err)
				}
			}
			for name, err := range map[string]error{
				"dry run with annotation": apply(t.Context(), template("after", topology), client.DryRunAll),
				"no change":               apply(t.Context(), template("before", "")),
				"change of metadata":      apply(t.Context(), template("before", "example.com/note")),
			} {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}
