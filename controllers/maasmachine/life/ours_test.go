// SPDX-License-Identifier: Apache-2.0

package life

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/internal/presence"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// Before MAAS is changed with a MaasCluster that may go before the machine, the machine records that it is of that one.
// If it is on its way out by then, MAAS is asked for nothing, and another one may have the machine.
func TestAMachineIsBoundBeforeMAASIsAsked(t *testing.T) {
	now := metav1.Now()
	for name, tc := range map[string]struct {
		live  *metav1.ObjectMeta // of the MaasCluster; nil: it is gone
		takes bool
	}{
		"it is there":       {live: &metav1.ObjectMeta{UID: "1"}, takes: true},
		"it goes":           {live: &metav1.ObjectMeta{UID: "1", DeletionTimestamp: &now, Finalizers: []string{infrav1.ClusterFinalizer}}},
		"it is gone":        {},
		"it is another one": {live: &metav1.ObjectMeta{UID: "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			machine := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}}
			built := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(machine).
				WithIndex(&infrav1.MaasCluster{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} })
			if tc.live != nil {
				live := &infrav1.MaasCluster{ObjectMeta: *tc.live}
				live.Namespace, live.Name = "ns", "c"
				built.WithObjects(live)
			}
			c := built.Build()
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(machine), machine); err != nil {
				t.Fatal(err)
			}
			rec, err := (&record.Records{Client: c}).OpenMachine(machine)
			if err != nil {
				t.Fatal(err)
			}
			// What the reconcile began with.
			read := &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "1",
				Annotations: map[string]string{infrav1.OwnerIDAnnotation: "id"}}, Spec: infrav1.MaasClusterSpec{ClusterName: "c1"}}
			l := &Life{Record: rec, Machine: &scope.Machine{MaasMachine: machine,
				Cluster: &scope.Cluster{Cluster: &clusterv1.Cluster{}, MaasCluster: read}}}
			s := &Steps{Base: reconciler.Base{APIReader: presence.NewReader(c, 0)}}
			out, err := s.Binding(t.Context(), l)
			if err != nil || out.Waits() == tc.takes {
				t.Fatalf("it waits: %t (%v), want %t", out.Waits(), err, !tc.takes)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(machine), machine); err != nil {
				t.Fatal(err)
			}
			want := map[bool]string{true: "id"}[tc.takes]
			if got := machine.Annotations[infrav1.OwnerIDAnnotation]; got != want {
				t.Errorf("it has the owner id %q, want %q", got, want)
			}
		})
	}
}
