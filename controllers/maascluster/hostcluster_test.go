// SPDX-License-Identifier: Apache-2.0

package maascluster

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The API server of a user's host cluster may repeat the request in its error.
func TestARefusedSecretIsNotRepeated(t *testing.T) {
	const key = "consumer:token:secret"
	refused := apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, key, nil)
	for _, err := range []error{refused, errors.New(key)} {
		secret := &unstructured.Unstructured{}
		secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		if text := refusalOf(secret, err); text == "" || strings.Contains(text, "token") {
			t.Errorf("the error for a Secret is %q", text)
		}
		secret.SetKind("ConfigMap")
		if text := refusalOf(secret, err); !strings.Contains(text, key) {
			t.Errorf("the error for a ConfigMap is %q", text)
		}
	}
}
