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

// An API server that others run may repeat what it was sent.
func TestARefusedSecretIsNotRepeated(t *testing.T) {
	const key = "consumer:token:secret"
	refused := apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, key, nil)
	for _, err := range []error{refused, errors.New(key)} {
		secret := &unstructured.Unstructured{}
		secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		if said := refusalOf(secret, err); said == "" || strings.Contains(said, "token") {
			t.Errorf("of a Secret is said %q", said)
		}
		secret.SetKind("ConfigMap")
		if said := refusalOf(secret, err); !strings.Contains(said, key) {
			t.Errorf("of a ConfigMap is said %q", said)
		}
	}
}
