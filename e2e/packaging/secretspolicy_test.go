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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

// The manager may patch Secrets, to hold those with credentials by its finalizer. It can change nothing else of any
// Secret but its own.
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
	eventually.Succeeds(t, "the policy acts", func(ctx context.Context) error {
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

// The Secrets that the manager may create, write and delete have the key pair for the LXD of a MaasMachine.
func TestTheManagersOwnSecretsAreKeyPairsForLXD(t *testing.T) {
	namespace, manager := newNamespace(t), managersClient(t)
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	machine := infrav1.MaasMachineSpec{Image: "ubuntu/jammy"}
	hostA, hostB := &infrav1.MaasMachine{ObjectMeta: meta("host-a"), Spec: machine}, &infrav1.MaasMachine{ObjectMeta: meta("host-b"), Spec: machine}
	cluster := &infrav1.MaasCluster{ObjectMeta: meta("host-a"), Spec: infrav1.MaasClusterSpec{DNSDomain: "maas.sim"}}
	// The owners are there, so that the garbage collector deletes no Secret.
	for _, owner := range []client.Object{hostA, hostB, cluster} {
		if err := management.Create(t.Context(), owner); err != nil {
			t.Fatal(err)
		}
	}
	newSecret := func(change func(*corev1.Secret)) *corev1.Secret {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "host-a-lxd", OwnerReferences: []metav1.OwnerReference{{
				APIVersion: infrav1.GroupVersion.String(), Kind: "MaasMachine", Name: "host-a", UID: hostA.UID, Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(false),
			}}},
			Type: corev1.SecretTypeTLS, Data: map[string][]byte{corev1.TLSCertKey: nil, corev1.TLSPrivateKeyKey: nil},
		}
		change(secret)
		return secret
	}
	others := map[string]func(*corev1.Secret){
		"another type":  func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque },
		"another name":  func(s *corev1.Secret) { s.Name = "maas" },
		"no owner":      func(s *corev1.Secret) { s.OwnerReferences = nil },
		"no controller": func(s *corev1.Secret) { s.OwnerReferences[0].Controller = nil },
		"another kind's": func(s *corev1.Secret) {
			s.OwnerReferences[0].Kind, s.OwnerReferences[0].UID = "MaasCluster", cluster.UID
		},
		"another group's": func(s *corev1.Secret) { s.OwnerReferences[0].APIVersion = "example.com/v1" },
		"of another's machine": func(s *corev1.Secret) {
			s.OwnerReferences[0].Name, s.OwnerReferences[0].UID = "host-b", hostB.UID
		},
	}
	eventually.Succeeds(t, "the policy acts", func(ctx context.Context) error {
		if manager.Create(ctx, newSecret(others["no owner"]), client.DryRunAll) == nil {
			return errors.New("a Secret without an owner is accepted")
		}
		return nil
	})
	for name, change := range others {
		if err := manager.Create(t.Context(), newSecret(change), client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("%s: creating it: got error %v, want that it is forbidden", name, err)
		}
		theirs := newSecret(change)
		if err := management.Create(t.Context(), theirs); err != nil {
			t.Fatal(err)
		}
		if err := manager.Delete(t.Context(), theirs, client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("%s: deleting it: got error %v, want that it is forbidden", name, err)
		}
		owned := newSecret(func(s *corev1.Secret) { s.Name = theirs.Name }).OwnerReferences
		patched := theirs.DeepCopy()
		patched.OwnerReferences, patched.Labels = owned, map[string]string{"a": "b"}
		if err := manager.Patch(t.Context(), patched, client.MergeFrom(theirs), client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("%s: taking it over: got error %v, want that it is forbidden", name, err)
		}
		if err := management.Delete(t.Context(), theirs); err != nil {
			t.Fatal(err)
		}
	}
	own := newSecret(func(*corev1.Secret) {})
	if err := manager.Create(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	before := own.DeepCopy()
	own.Data[corev1.TLSCertKey] = []byte("another")
	if err := manager.Patch(t.Context(), own, client.MergeFrom(before)); err != nil {
		t.Errorf("writing it: %v", err)
	}
	if err := manager.Delete(t.Context(), own); err != nil {
		t.Errorf("deleting it: %v", err)
	}
}
