// SPDX-License-Identifier: Apache-2.0

package maascluster

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// Without its MaasCluster nobody can give a machine back: it waits also for one that the cache does not have yet, and for
// one whose label somebody has removed.
func TestAMaasClusterWaitsForMachinesThatTheCacheDoesNotShow(t *testing.T) {
	t.Parallel()
	const id = "abcdefghijkl"
	machine := func(label, owner string) *infrav1.MaasMachine {
		return &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: "m", Labels: map[string]string{clusterv1.ClusterNameLabel: label},
			Annotations: map[string]string{infrav1.OwnerIDAnnotation: owner},
		}}
	}
	for name, tc := range map[string]struct {
		machine *infrav1.MaasMachine
		cached  bool
		waits   bool
	}{
		"it is in the cache":             {machine: machine("c", id), cached: true, waits: true},
		"it is new":                      {machine: machine("c", ""), waits: true},
		"its label is gone":              {machine: machine("", id), cached: true, waits: true},
		"it is of another cluster":       {machine: machine("d", "mnopqrstuvwx"), cached: true},
		"nothing is known of its owners": {machine: machine("", "")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(tc.machine).Build()
			r := &Reconciler{Base: reconciler.Base{Client: fake.NewClientBuilder().WithScheme(allkinds.Scheme()).Build(), APIReader: now}}
			if tc.cached {
				r.Client = now
			}
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}
			maasCluster := &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{
				Namespace: "n", Name: "c", Annotations: map[string]string{infrav1.OwnerIDAnnotation: id},
			}}
			left, err := r.machinesLeft(t.Context(), cluster, maasCluster)
			if err != nil || (len(left) > 0) != tc.waits {
				t.Errorf("it waits for %d machines, want that it waits: %v; %v", len(left), tc.waits, err)
			}
		})
	}
}
