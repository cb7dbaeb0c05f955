// SPDX-License-Identifier: Apache-2.0

package maascluster

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// A MaasCluster is moved only if nothing is done for its machines by now, whatever the cache shows of them.
func TestAMaasClusterMovesByWhatTheAPIServerHas(t *testing.T) {
	t.Parallel()
	const id = "abcdefghijkl"
	machine := func(change func(*infrav1.MaasMachine)) *infrav1.MaasMachine {
		m := &infrav1.MaasMachine{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "n", Name: "m", Labels: map[string]string{clusterv1.ClusterNameLabel: "c"},
				Annotations: map[string]string{infrav1.OwnerIDAnnotation: id}, Finalizers: []string{infrav1.MachineFinalizer},
			},
			Spec: infrav1.MaasMachineSpec{ProviderID: "maas:///z/abcdef"},
			Status: infrav1.MaasMachineStatus{Conditions: []metav1.Condition{
				{Type: clusterv1.PausedCondition, Status: metav1.ConditionTrue},
			}},
		}
		change(m)
		return m
	}
	deleted := func(m *infrav1.MaasMachine) { m.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	for name, tc := range map[string]struct {
		now   func(*infrav1.MaasMachine)
		moves bool
	}{
		"as the cache shows it":     {now: func(*infrav1.MaasMachine) {}, moves: true},
		"deleted":                   {now: deleted},
		"deleted, without a label":  {now: func(m *infrav1.MaasMachine) { deleted(m); m.Labels = nil }},
		"created since":             {now: func(m *infrav1.MaasMachine) { m.Name, m.Spec.ProviderID = "new", "" }},
		"worked on again":           {now: func(m *infrav1.MaasMachine) { m.Status.Conditions[0].Status = metav1.ConditionFalse }},
		"deleted, of another owner": {now: func(m *infrav1.MaasMachine) { deleted(m); m.Labels, m.Annotations = nil, nil }, moves: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			maasCluster := &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{
				Namespace: "n", Name: "c", Labels: map[string]string{clusterv1.ClusterNameLabel: "c"},
				Annotations: map[string]string{infrav1.OwnerIDAnnotation: id, clusterctlv1.BlockMoveAnnotation: ""},
			}}
			holding := func(m *infrav1.MaasMachine) client.WithWatch {
				return fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(maasCluster, m).Build()
			}
			cached, now := holding(machine(func(*infrav1.MaasMachine) {})), holding(machine(tc.now))
			r := &Reconciler{Base: reconciler.Base{Client: cached, APIReader: now, Recorder: events.NewFakeRecorder(1)}}
			result, err := r.allowMove(t.Context(), &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}, maasCluster)
			if err != nil {
				t.Fatal(err)
			}
			if err := cached.Get(t.Context(), client.ObjectKeyFromObject(maasCluster), maasCluster); err != nil {
				t.Fatal(err)
			}
			_, blocks := maasCluster.Annotations[clusterctlv1.BlockMoveAnnotation]
			if blocks == tc.moves || (result.RequeueAfter > 0) == tc.moves {
				t.Errorf("it blocks its move: %v, and looks again after %s; want that it moves: %v", blocks, result.RequeueAfter, tc.moves)
			}
		})
	}
}

// A MaasCluster with nothing in its MAAS leaves it for that of other credentials, but not while a machine may be about to
// take something there, which the cache need not show.
func TestAMAASIsLeftOnlyIfNoMachineIsAsked(t *testing.T) {
	t.Parallel()
	const home = "maas:5240/MAAS#key"
	for name, tc := range map[string]struct {
		recorded string
		leaves   bool
	}{
		"no call is recorded": {leaves: true},
		"one is":              {recorded: `{"pending":[{"op":"allocate","at":"2026-11-30T12:00:00.5Z"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			maasCluster := &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{
				Namespace: "n", Name: "c", Labels: map[string]string{clusterv1.ClusterNameLabel: "c"},
				Annotations: map[string]string{infrav1.OwnerIDAnnotation: "abcdefghijkl", infrav1.MAASAnnotation: home},
			}}
			m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{
				Namespace: "n", Name: "m", Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}, Annotations: map[string]string{},
			}}
			if tc.recorded != "" {
				m.Annotations[infrav1.OwnerIDAnnotation], m.Annotations[infrav1.RecordAnnotation] = "abcdefghijkl", tc.recorded
			}
			cached := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(maasCluster).Build()
			now := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(maasCluster, m).Build()
			if err := cached.Get(t.Context(), client.ObjectKeyFromObject(maasCluster), maasCluster); err != nil {
				t.Fatal(err)
			}
			r := &Reconciler{Base: reconciler.Base{Client: cached, APIReader: now}}
			leaves, err := r.leave(t.Context(), &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}, maasCluster, home)
			if err != nil || leaves != tc.leaves {
				t.Errorf("it leaves: %t (%v), want %t", leaves, err, tc.leaves)
			}
			if got := maasCluster.Annotations[infrav1.MAASAnnotation]; got != scope.Leaving(home) {
				t.Errorf("it is at home in %q: no machine may ask any more", got)
			}
		})
	}
}
