// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What capmaasctl convert writes is accepted, together with the objects of Cluster API beside it.
func TestConvertedManifestsAreAccepted(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(sources, "pkg", "convert", "testdata", "converted", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Fatal("there are no converted manifests")
	}
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
