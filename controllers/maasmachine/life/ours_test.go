// SPDX-License-Identifier: Apache-2.0

package life

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/internal/presence"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// Before the first call to MAAS, the machine records whose it is. If its MaasCluster is on its way out by then, or to
// another MAAS, MAAS is asked for nothing, and another MaasCluster may have the machine.
func TestAMachineIsBoundBeforeMAASIsAsked(t *testing.T) {
	const home = "maas:5240/MAAS#key"
	now := metav1.Now()
	at := func(home string) map[string]string { return map[string]string{infrav1.MAASAnnotation: home} }
	goes := metav1.ObjectMeta{UID: "1", Annotations: at(home), DeletionTimestamp: &now, Finalizers: []string{infrav1.ClusterFinalizer}}
	for name, tc := range map[string]struct {
		live           *metav1.ObjectMeta // of the MaasCluster; nil: it is gone
		infrastructure bool
		takes          bool
	}{
		"it is there":                     {live: &metav1.ObjectMeta{UID: "1", Annotations: at(home)}, takes: true},
		"it goes":                         {live: &goes},
		"it goes, after all its machines": {live: &goes, infrastructure: true, takes: true},
		"it is gone":                      {},
		"it is another one":               {live: &metav1.ObjectMeta{UID: "2", Annotations: at(home)}},
		"it is about to leave its MAAS":   {live: &metav1.ObjectMeta{UID: "1", Annotations: at(scope.Leaving(home))}, infrastructure: true},
		"it has another MAAS":             {live: &metav1.ObjectMeta{UID: "1", Annotations: at("other:5240/MAAS#key")}, infrastructure: true},
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
				Annotations: map[string]string{infrav1.OwnerIDAnnotation: "id", infrav1.MAASAnnotation: home}}}
			if !tc.infrastructure {
				read.Spec.ClusterName = "c1"
			}
			l := &Life{Record: rec, Machine: &scope.Machine{MaasMachine: machine,
				Cluster: &scope.Cluster{Cluster: &clusterv1.Cluster{}, MaasCluster: read, Home: home}}}
			s := &Steps{Base: reconciler.Base{APIReader: presence.NewReader(c, 0)}}
			takes, bound := false, ""
			err = s.Ask(t.Context(), l, record.Allocate, func(ctx context.Context, _ maas.Permit) error {
				takes = true
				if err := c.Get(ctx, client.ObjectKeyFromObject(machine), machine); err != nil {
					t.Fatal(err)
				}
				bound = machine.Annotations[infrav1.OwnerIDAnnotation]
				return nil
			})
			if takes != tc.takes || (err == nil) != tc.takes || (takes && bound != "id") {
				t.Fatalf("MAAS is asked: %t (%v), for a machine with the owner id %q; want %t", takes, err, bound, tc.takes)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(machine), machine); err != nil {
				t.Fatal(err)
			}
			if got := machine.Annotations[infrav1.OwnerIDAnnotation]; !tc.takes && (got != "" || !clusters.NothingAcquired(machine)) {
				t.Errorf("it has the owner id %q, and the record %s", got, machine.Annotations[infrav1.RecordAnnotation])
			}
		})
	}
}
