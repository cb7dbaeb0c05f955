// SPDX-License-Identifier: Apache-2.0

package v1beta1_test

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// object makes an object from its spec in YAML. Unstructured, because a typed object can't hold much that is wrong.
func object(t *testing.T, kind, spec string) *unstructured.Unstructured {
	t.Helper()
	content := map[string]any{}
	if err := yaml.Unmarshal([]byte(spec), &content); err != nil {
		t.Fatalf("the test's own YAML: %v", err)
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": content}}
	o.SetGroupVersionKind(infrav1.GroupVersion.WithKind(kind))
	o.SetNamespace(metav1.NamespaceDefault)
	o.SetGenerateName("test-")
	return o
}

// inTemplate moves the spec of a MaasCluster or MaasMachine into the spec of its template.
func inTemplate(spec string) string {
	return "template:\n  spec:\n    " + strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n    ")
}

// refusal returns what err, which has to say that the object is invalid, says of the field.
func refusal(t *testing.T, name string, err error, field string) string {
	t.Helper()
	if !apierrors.IsInvalid(err) {
		t.Errorf("%s: got error %v, want one that says the object is invalid", name, err)
		return ""
	}
	var said, others []string
	for _, cause := range causes(err) {
		if cause.Field == field {
			said = append(said, cause.Message)
		} else {
			others = append(others, fmt.Sprintf("%s: %s", cause.Field, cause.Message))
		}
	}
	if len(said) == 0 {
		t.Errorf("%s: no cause on field %s, but:\n%s", name, field, strings.Join(others, "\n"))
	}
	return strings.Join(said, "\n")
}

func causes(err error) []metav1.StatusCause {
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Details == nil {
		return nil
	}
	return status.Status().Details.Causes
}
