// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
)

// Whoever may edit a Secret could fill the manager's memory otherwise.
func TestNothingStaysOfIdentitiesThatNoClusterUses(t *testing.T) {
	t.Parallel()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "maas"}, Data: map[string][]byte{}}
	f := &Factory{
		Client: fake.NewClientBuilder().WithObjects(secret).Build(),
		Registry: inventory.NewRegistry(inventory.Options{
			ActiveInterval: time.Hour, IdleInterval: time.Hour, Notify: func(string) {}, Logger: testr.New(t),
		}),
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = f.Registry.Start(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	cluster := func(name string) *infrav1.MaasCluster {
		c := &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		c.Spec.CredentialsRef = &infrav1.LocalObjectReference{Name: "maas"}
		return c
	}
	see := func(c *infrav1.MaasCluster, endpoint, key int) *Region {
		t.Helper()
		secret.Data["endpoint"] = fmt.Appendf(nil, "http://127.0.0.1:1/MAAS-%d", endpoint)
		secret.Data["apiKey"] = fmt.Appendf(nil, "a:b:%d", key)
		if err := f.Client.Update(ctx, secret); err != nil {
			t.Fatal(err)
		}
		s, err := f.Cluster(ctx, &clusterv1.Cluster{}, c)
		if err != nil {
			t.Fatal(err)
		}
		return s.Region
	}
	wandering, steady := cluster("wandering"), cluster("steady")
	region := see(steady, 0, 0)
	shared := f.refresher
	for n := range 50 {
		see(wandering, n, n)
		if len(f.regions) > 2 {
			t.Fatalf("two clusters use MAAS, and there are %d regions", len(f.regions))
		}
	}
	see(wandering, 0, 0)
	if len(f.regions) != 1 || see(steady, 0, 0) != region {
		t.Errorf("two clusters with one identity have %d regions", len(f.regions))
	}
	f.Release(wandering)
	if see(steady, 0, 1).server != region.server || f.refresher != shared {
		t.Error("what identities of one MAAS share went with another cluster, or with a key")
	}
	f.Release(steady)
	if len(f.regions) != 0 {
		t.Errorf("no cluster uses MAAS, and there are %d regions", len(f.regions))
	}
}
