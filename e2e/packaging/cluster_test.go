// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// restricted are labels of a namespace that admits only pods of the restricted Pod Security profile.
var restricted = map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}

// parse reads the objects of a YAML stream. It keeps documents that are comments out.
func parse(manifest []byte) ([]*unstructured.Unstructured, error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	var objects []*unstructured.Unstructured
	for {
		content := map[string]any{}
		err := decoder.Decode(&content)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading object %d: %w", len(objects), err)
		}
		if len(content) > 0 {
			objects = append(objects, &unstructured.Unstructured{Object: content})
		}
	}
}

func mustParse(t *testing.T, manifest []byte) []*unstructured.Unstructured {
	t.Helper()
	objects, err := parse(manifest)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// ofKind returns the objects of one kind.
func ofKind(objects []*unstructured.Unstructured, kind string) []*unstructured.Unstructured {
	var found []*unstructured.Unstructured
	for _, o := range objects {
		if o.GetKind() == kind {
			found = append(found, o)
		}
	}
	return found
}

func createNamespace(ctx context.Context, name string, labels map[string]string) error {
	return management.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
}

// newNamespace makes a namespace for one test. It goes with the management cluster: to delete it takes a hundred calls.
func newNamespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := management.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	return ns.Name
}
