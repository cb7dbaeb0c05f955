// SPDX-License-Identifier: Apache-2.0

package presence

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var (
	key    = client.ObjectKey{Namespace: "ns", Name: "n"}
	secret = schema.GroupKind{Kind: "Secret"}
	of     = schema.GroupResource{Resource: "secrets"}
)

// says is a reader whose response the test sets.
type says struct {
	client.Reader
	err error
}

func (s *says) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return s.err
}

func bare(code int32, reason metav1.StatusReason) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason}}
}

var (
	absent   = apierrors.NewNotFound(of, "n")
	noAnswer = map[string]error{
		"the right is missing":        apierrors.NewForbidden(of, "n", errors.New("no")),
		"the kind is not known":       &meta.NoKindMatchError{GroupKind: secret, SearchedVersions: []string{"v1"}},
		"the path is not served":      apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", of, "n", "404 page not found", 0, true),
		"a proxy has none":            bare(http.StatusNotFound, metav1.StatusReasonNotFound),
		"a proxy does not allow it":   bare(http.StatusForbidden, metav1.StatusReasonForbidden),
		"another object is not there": apierrors.NewNotFound(of, "other"),
	}
)

func TestOnlyAnObjectThatIsMissingTwiceIsGone(t *testing.T) {
	now := time.Now()
	server := &says{err: absent}
	reader := NewReader(server, time.Minute)
	reader.now = func() time.Time { return now }
	look := func(want bool, unknown bool) {
		t.Helper()
		there, err := Look(t.Context(), reader, secret, key, &corev1.Secret{})
		if there != want || IsUnknown(err) != unknown {
			t.Errorf("it is there: %v, want %v; nobody knows: %v (%v), want %v", there, want, IsUnknown(err), err, unknown)
		}
	}
	look(false, true)
	now = now.Add(time.Minute - 1)
	look(false, true)
	now = now.Add(1)
	look(false, false)

	server.err = nil
	look(true, false)
	server.err = absent
	look(false, true) // It was there meanwhile.
	now = now.Add(time.Hour)
	look(false, true) // Nobody looked for long.
	now = now.Add(time.Minute)
	look(false, false)
}

func TestNoAnswerIsNoProof(t *testing.T) {
	for name, err := range noAnswer {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			server := &says{err: absent}
			reader := NewReader(server, time.Minute)
			reader.now = func() time.Time { return now }
			look := func() (bool, error) { return Look(t.Context(), reader, secret, key, &corev1.Secret{}) }
			if _, unknown := look(); !IsUnknown(unknown) {
				t.Fatalf("missing once: %v", unknown)
			}
			server.err = err
			for range 2 {
				now = now.Add(5 * time.Minute)
				var unknown *UnknownError
				if there, got := look(); there || !errors.As(got, &unknown) || unknown.IsMissing() {
					t.Errorf("there: %v, %v", there, got)
				}
			}
			server.err = absent
			if _, unknown := look(); !IsUnknown(unknown) {
				t.Errorf("it counts as missing since before nobody knew: %v", unknown)
			}
		})
	}
}

func TestAnotherReaderProvesNothing(t *testing.T) {
	server := &says{err: absent}
	for range 2 {
		if there, err := Look(t.Context(), server, secret, key, &corev1.Secret{}); there || !IsUnknown(err) {
			t.Errorf("there: %v, %v", there, err)
		}
	}
	server.err = context.DeadlineExceeded
	if _, err := Look(t.Context(), server, secret, key, &corev1.Secret{}); !errors.Is(err, context.DeadlineExceeded) || IsUnknown(err) {
		t.Errorf("the error of a call that failed is %v", err)
	}
}
