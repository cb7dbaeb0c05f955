// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// The manager may patch Secrets, to hold those with credentials by its finalizer. It can change nothing else of any
// Secret.
func TestTheManagerWritesNothingOfSecretsButItsFinalizer(t *testing.T) {
	namespace, manager := newNamespace(t), managersClient(t)
	const others = "example.com/others"
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "maas", Finalizers: []string{others}},
		Data:       map[string][]byte{"apiKey": []byte("a:b:c")},
	}
	if err := management.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = management.Patch(context.Background(), secret, client.RawPatch(client.Merge.Type(), []byte(`{"metadata":{"finalizers":null}}`)))
	})
	patch := func(ctx context.Context, by client.Client, change string) error {
		return by.Patch(ctx, secret.DeepCopy(), client.RawPatch(client.Merge.Type(), []byte(change)), client.DryRunAll)
	}
	changes := map[string]string{
		"the key":          `{"stringData":{"apiKey":"d:e:f"}}`,
		"another key":      `{"stringData":{"endpoint":"http://example.com"}}`,
		"no data":          `{"data":null}`,
		"immutable":        `{"immutable":true}`,
		"a label":          `{"metadata":{"labels":{"a":"b"}}}`,
		"an annotation":    `{"metadata":{"annotations":{"a":"b"}}}`,
		"an owner":         `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"b"}]}}`,
		"no finalizer":     `{"metadata":{"finalizers":null}}`,
		"one more of them": `{"metadata":{"finalizers":["` + others + `","example.com/more"]}}`,
	}
	eventually(t, "the policy acts", func(ctx context.Context) error {
		if patch(ctx, manager, changes["a label"]) == nil {
			return errors.New("a label is accepted")
		}
		return nil
	})
	for name, change := range changes {
		if err := patch(t.Context(), manager, change); !apierrors.IsForbidden(err) {
			t.Errorf("%s: got error %v, want that it is forbidden", name, err)
		}
		if err := patch(t.Context(), management.Client, change); err != nil {
			t.Errorf("%s, by another user: %v", name, err)
		}
	}
	for _, finalizers := range [][]string{{others, infrav1.CredentialsFinalizer}, {infrav1.CredentialsFinalizer, others}, {others}} {
		change, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
		if err != nil {
			t.Fatal(err)
		}
		if err := manager.Patch(t.Context(), secret, client.RawPatch(client.Merge.Type(), change)); err != nil {
			t.Errorf("the finalizers %v: %v", finalizers, err)
		}
	}
}
