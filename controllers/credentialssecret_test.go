// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/credentialssecret"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// secret is one with credentials, as Kubernetes has it.
func (w *world) secret(name string) *corev1.Secret {
	w.t.Helper()
	secret := &corev1.Secret{}
	w.must(w.client.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, secret))
	return secret
}

func isHeld(secret *corev1.Secret) bool {
	return controllerutil.ContainsFinalizer(secret, infrav1.CredentialsFinalizer)
}

// another is a second Secret with the same credentials.
func (w *world) another(name string) *corev1.Secret {
	w.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Data: w.secret("maas").Data}
	w.create(secret)
	return secret
}

func (w *world) setCredentials(cluster *infrav1.MaasCluster, name string) {
	w.t.Helper()
	patch := []byte(`{"spec":{"credentialsRef":{"name":"` + name + `"}}}`)
	w.must(w.client.Patch(w.t.Context(), cluster, client.RawPatch(client.Merge.Type(), patch)))
}

// heldWheneverMAASIsChanged fails the test if a call changes MAAS while the Secret may be deleted.
func (w *world) heldWheneverMAASIsChanged(name string) (calls func() int) {
	var mu sync.Mutex
	n := 0
	w.maas.SetHook(func(call simulator.Call, phase simulator.Phase) error {
		if call.Method == http.MethodGet || phase != simulator.Before {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		n++
		secret := &corev1.Secret{}
		err := w.client.Get(context.Background(), client.ObjectKey{Namespace: w.namespace, Name: name}, secret)
		if err != nil || !isHeld(secret) {
			w.t.Errorf("%s %s %s: the Secret has the finalizers %v (%v)", call.Method, call.Endpoint, call.Op, secret.Finalizers, err)
		}
		return nil
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// A namespace's objects are deleted in any order, and the Secret may be the first. It stays until everything is
// released.
func TestTheCredentialsOfANamespaceGoLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.maas.State()
	calls := w.heldWheneverMAASIsChanged("maas")
	cluster := w.provisionedCluster()
	virtual, metal := w.newMachine("cp-0", true, vm), w.newMachine("md-0", false, infrav1.MaasMachineSpec{})
	w.deployed(virtual)
	w.deployed(metal)
	secret := w.secret("maas")
	for _, o := range []client.Object{secret, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}, w.cluster, cluster, virtual, metal} {
		if err := w.client.Delete(t.Context(), o); client.IgnoreNotFound(err) != nil { // The namespace's objects are being deleted.
			t.Fatal(err)
		}
	}
	for _, o := range []client.Object{virtual, metal, cluster, secret} {
		w.await(o.GetName()+" is gone", o, func(ctx context.Context) bool {
			return apierrors.IsNotFound(w.client.Get(ctx, client.ObjectKeyFromObject(o), o))
		})
	}
	w.unchanged(before)
	if calls() == 0 {
		t.Error("MAAS was never changed")
	}
}

// So do those of an LXDHost: nobody could delete its VMs without them, and a namespace that is being deleted gets no new
// Secret.
func TestTheSecretsOfAnLXDHostGoLast(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts, func(w *world) { w.hostInterval = readOften })
	before := w.maas.State()
	ofMAAS := w.another("of-the-host")
	host := w.addLXDHost(server, "host-a", "zone-a", func(h *infrav1.LXDHost) { h.Spec.MAASCredentialsRef.Name = ofMAAS.Name })
	cluster := w.provisionedCluster()
	m := w.deployedMachine("cp-0", true, vm)
	ofLXD := w.secret(host.Spec.CredentialsRef.Name)
	for _, secret := range []*corev1.Secret{ofMAAS, ofLXD} {
		w.eventually(secret, "held", func() bool { return isHeld(secret) })
	}
	w.deleteNamespace(ofMAAS, ofLXD, host, w.cluster, cluster, m)
	for _, o := range []client.Object{m, cluster, host, ofMAAS, ofLXD} {
		w.await(o.GetName()+" is gone", o, func(ctx context.Context) bool {
			return apierrors.IsNotFound(w.client.Get(ctx, client.ObjectKeyFromObject(o), o))
		})
	}
	if got := server.VMs(t); len(got) > 0 {
		t.Errorf("LXD has %v", got)
	}
	w.unchanged(before)
}

// A Secret is free when no MaasCluster names it any more: the MaasCluster names another Secret, or is gone.
func TestASecretThatNoClusterNamesIsFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.another("other")
	cluster := w.provisionedCluster()
	if !isHeld(w.secret("maas")) || isHeld(w.secret("other")) {
		t.Error("the Secret that the MaasCluster names is not held, or another one is")
	}
	second := &infrav1.MaasCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "second", Namespace: w.namespace},
		Spec:       infrav1.MaasClusterSpec{DNSDomain: "maas.sim", CredentialsRef: &infrav1.LocalObjectReference{Name: "maas"}},
	}
	w.create(second)
	w.setCredentials(cluster, "other")
	w.eventually(other, "held", func() bool { return isHeld(other) })
	if !isHeld(w.secret("maas")) {
		t.Error("a Secret is free that another MaasCluster names")
	}
	w.delete(second)
	secret := w.secret("maas")
	w.eventually(secret, "free", func() bool { return !isHeld(secret) })
	w.deleteCluster(cluster)
	w.eventually(other, "free", func() bool { return !isHeld(other) })
}

// A Secret is not held for ever if no manager ran while the last MaasCluster that named it was deleted. Finalizers of
// others stay.
func TestASecretIsFreedByTheNextManager(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	secret := w.secret("maas")
	controllerutil.AddFinalizer(secret, "example.com/other")
	w.must(w.client.Update(t.Context(), secret))
	w.stopManager()
	w.another("other")
	w.setCredentials(cluster, "other")
	w.startManager()
	w.eventually(secret, "free", func() bool { return !isHeld(secret) })
	if got := strings.Join(secret.Finalizers, " "); got != "example.com/other" {
		t.Errorf("the finalizers that are left are %s", got)
	}
}

// After `clusterctl move` the Secret is gone from the source if it was moved, too; otherwise it is free.
func TestASecretIsFreeAfterAMove(t *testing.T) {
	t.Parallel()
	for name, movesToo := range map[string]bool{"with the Secret": true, "without it": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cluster := clusterWorld(t)
			w.setPaused(cluster, true)
			secret := w.secret("maas")
			if !isHeld(secret) {
				t.Error("the Secret of a cluster that is paused is free")
			}
			if movesToo {
				w.moveAway(secret)
			}
			w.moveAway(cluster)
			if movesToo {
				return
			}
			w.eventually(secret, "free", func() bool { return !isHeld(secret) })
		})
	}
}

// moveAway deletes an object as clusterctl does after it has moved it: at once, and whatever its finalizers.
func (w *world) moveAway(object client.Object) {
	w.t.Helper()
	annotations := client.RawPatch("application/json-patch+json",
		[]byte(`[{"op":"add","path":"/metadata/annotations","value":{"`+clusterctlv1.DeleteForMoveAnnotation+`":""}}]`))
	finalizers := client.RawPatch(client.Merge.Type(), []byte(`{"metadata":{"finalizers":[]}}`))
	ctx := w.t.Context()
	err := errors.Join(w.client.Patch(ctx, object, annotations), w.client.Delete(ctx, object), w.client.Patch(ctx, object, finalizers))
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.client.Get(ctx, client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
		w.t.Errorf("%s: %v, want that it is gone", object.GetName(), err)
	}
}

// The Secret of a paused cluster is not held, because the cluster may be being moved.
func TestTheSecretOfAPausedClusterIsNotHeld(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	w.setPaused(cluster, true)
	other := w.another("other")
	w.setCredentials(cluster, "other")
	secret := w.secret("maas")
	w.eventually(secret, "free", func() bool { return !isHeld(secret) })
	if isHeld(w.secret("other")) {
		t.Error("a Secret is held for a cluster that is paused")
	}
	w.setPaused(cluster, false)
	w.eventually(other, "held", func() bool { return isHeld(other) })
}

// Without the key of its nodes, a machine of a host cluster may not be released.
func TestTheSecretOfTheNodesIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nodes := w.another("nodes")
	cluster := w.newCluster(func(c *infrav1.MaasCluster) {
		c.Spec.LXDControlPlaneCluster = true
		c.Spec.LXDConfig = &infrav1.LXDHostConfig{CredentialsRef: &infrav1.LocalObjectReference{Name: "nodes"}}
	})
	w.provisioned(cluster)
	w.eventually(nodes, "held", func() bool { return isHeld(nodes) })
	w.deleteCluster(cluster)
	w.eventually(nodes, "free", func() bool { return !isHeld(nodes) })
}

// A MaasCluster that names a Secret while it is being freed has seen the finalizer, and does not add it.
func TestASecretThatIsNamedWhileItIsFreedIsHeldAgain(t *testing.T) {
	t.Parallel()
	meta := metav1.ObjectMeta{Namespace: "default", Name: "maas"}
	secret := &corev1.Secret{ObjectMeta: meta}
	secret.Finalizers = []string{infrav1.CredentialsFinalizer}
	cluster := &infrav1.MaasCluster{ObjectMeta: meta}
	cluster.Spec.CredentialsRef = &infrav1.LocalObjectReference{Name: "maas"}
	patches := 0
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(secret).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			if patches++; patches == 1 {
				if err := c.Create(ctx, cluster); err != nil {
					return err
				}
			}
			return c.Patch(ctx, o, patch, options...)
		},
	}).Build()
	r := &credentialssecret.Reconciler{Client: c, APIReader: c}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(secret)}); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil || !isHeld(secret) {
		t.Errorf("the Secret has the finalizers %v (%v), want ours", secret.Finalizers, err)
	}
}
