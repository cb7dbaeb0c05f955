// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWhatOthersSayIsShortAndOnOneLine(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"as it is":         {"no room in the pool", "no room in the pool"},
		"several lines":    {"no room\nin the\tpool\r\n", "no room in the pool"},
		"no text":          {"a\x00b \xff c", "a b ? c"},
		"too long":         {strings.Repeat("x", maxForeign+1), strings.Repeat("x", maxForeign) + "..."},
		"cut in character": {"x" + strings.Repeat("é", maxForeign), "x" + strings.Repeat("é", (maxForeign-1)/2) + "..."},
	} {
		t.Run(name, func(t *testing.T) {
			if got := brief(tc.text); got != tc.want || !utf8.ValidString(got) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

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
