// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

// serveDeprecated has the API server serve deprecated versions of Cluster API's kinds, in which manifests of the old
// provider are, until the test ends. The test is not parallel to others: the API server converts all that is written.
func serveDeprecated(t *testing.T) {
	t.Helper()
	list := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := management.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	serve := func(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition, served bool) (changed []string) {
		before := crd.DeepCopy()
		for i := range crd.Spec.Versions {
			if v := &crd.Spec.Versions[i]; v.Deprecated && v.Served != served {
				v.Served, changed = served, append(changed, v.Name)
			}
		}
		if len(changed) > 0 {
			if err := management.Patch(ctx, crd, client.MergeFrom(before)); err != nil {
				t.Errorf("serving deprecated versions (%t): %v", served, err)
			}
		}
		return changed
	}
	for i := range list.Items {
		crd := &list.Items[i]
		for _, version := range serve(t.Context(), crd, true) {
			t.Cleanup(func() { serve(context.WithoutCancel(t.Context()), crd, false) })
			objects := &unstructured.UnstructuredList{}
			objects.SetGroupVersionKind(schema.GroupVersionKind{Group: crd.Spec.Group, Version: version, Kind: crd.Spec.Names.ListKind})
			eventually.Succeeds(t, version+" of "+crd.Name+" is served", func(ctx context.Context) error { return management.List(ctx, objects) })
		}
	}
}

// What capmaasctl convert writes is accepted, together with the objects of Cluster API beside it.
func TestConvertedManifestsAreAccepted(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(sources, "pkg", "convert", "testdata", "converted", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Fatal("there are no converted manifests")
	}
	serveDeprecated(t)
	namespace := newNamespace(t)
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range mustParse(t, content) {
				for _, item := range itemsOf(t, o) {
					item.SetNamespace(namespace)
					if err := management.strict.Create(t.Context(), item, client.DryRunAll); err != nil {
						t.Errorf("%s %s: %v", item.GetKind(), item.GetName(), err)
					}
				}
			}
		})
	}
}

// itemsOf are the objects in a List, or the object itself.
func itemsOf(t *testing.T, o *unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	if !o.IsList() {
		return []*unstructured.Unstructured{o}
	}
	var items []*unstructured.Unstructured
	err := o.EachListItem(func(item runtime.Object) error {
		items = append(items, item.(*unstructured.Unstructured))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return items
}
