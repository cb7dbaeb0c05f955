// SPDX-License-Identifier: Apache-2.0

package maascluster

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// The cache may still have a MaasCluster as it was before it was provisioned. The event is sent once, and again for another
// MaasCluster of that name.
func TestProvisionedIsToldOnce(t *testing.T) {
	t.Parallel()
	recorder := events.NewFakeRecorder(10)
	r := &Reconciler{Base: reconciler.Base{Recorder: recorder}}
	for i, uid := range []string{"a", "a", "b", "a"} {
		read := &infrav1.MaasCluster{}
		read.Name, read.UID = "c1", types.UID(uid)
		r.provisioned(read)
		if !ptr.Deref(read.Status.Initialization.Provisioned, false) {
			t.Errorf("read %d is not provisioned", i)
		}
	}
	if got := len(recorder.Events); got != 2 {
		t.Errorf("%d events, want one for each of two objects", got)
	}
}

// What blocks a move is told once in each pause, whoever manages the MaasCluster, and however often it is reconciled.
func TestABlockedMoveIsToldOnceInEachPause(t *testing.T) {
	t.Parallel()
	for name, annotations := range map[string]map[string]string{
		"ours":                 {clusterctlv1.BlockMoveAnnotation: ""},
		"managed by something": {clusterctlv1.BlockMoveAnnotation: "", clusterv1.ManagedByAnnotation: "terraform"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scheme := runtime.NewScheme()
			utilruntime.Must(clusterv1.AddToScheme(scheme))
			utilruntime.Must(infrav1.AddToScheme(scheme))
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}
			maasCluster := &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{
				Namespace: "n", Name: "c", UID: "c", Annotations: annotations, Finalizers: []string{infrav1.ClusterFinalizer},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c"}},
			}}
			coming := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{
				Namespace: "n", Name: "m", Labels: map[string]string{clusterv1.ClusterNameLabel: "c"},
			}}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, maasCluster, coming).
				WithStatusSubresource(maasCluster).Build()
			recorder := events.NewFakeRecorder(100)
			r := &Reconciler{Base: reconciler.Base{Client: c, APIReader: c, Recorder: recorder, Scopes: &scope.Factory{Client: c}}}
			pass := func(paused bool) {
				t.Helper()
				cluster.Spec.Paused = ptr.To(paused)
				if err := c.Update(t.Context(), cluster); err != nil {
					t.Fatal(err)
				}
				for range map[bool]int{true: 3, false: 1}[paused] {
					_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(maasCluster)})
					if err != nil && paused {
						t.Fatal(err)
					}
				}
			}
			pass(true)
			if got := len(recorder.Events); got != 1 {
				t.Errorf("%d events in the first pause, want 1", got)
			}
			pass(false)
			pass(true)
			if got := len(recorder.Events); got != 2 {
				t.Errorf("%d events in two pauses, want 2", got)
			}
		})
	}
}
