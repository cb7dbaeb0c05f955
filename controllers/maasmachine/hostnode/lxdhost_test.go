// SPDX-License-Identifier: Apache-2.0

package hostnode

import (
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

// Another MAAS, to which the nodes' credentials may lead, knows nothing of the VMs on a host.
func TestOnlyTheClustersMAASSaysWhichVMsAreOnAHost(t *testing.T) {
	t.Parallel()
	const region = `users: [{name: admin, admin: true, keys: ["admin:token:secret"]}, {name: plain, keys: ["plain:token:secret"]}]`
	_, here := simtest.Start(t, region, simulator.Options{})
	_, elsewhere := simtest.Start(t, region, simulator.Options{})
	for endpoint, want := range map[string]string{here: "", elsewhere: infrav1.CredentialsInvalidReason} {
		secret := func(name, endpoint, key string) *corev1.Secret {
			return &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
				Data:       map[string][]byte{scope.EndpointKey: []byte(endpoint), scope.APIKeyKey: []byte(key)},
			}
		}
		f := &scope.Factory{
			Client: fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(
				secret("maas", here, "plain:token:secret"), secret("nodes", endpoint, "admin:token:secret")).Build(),
			Registry: inventory.NewRegistry(inventory.Options{
				ActiveInterval: time.Hour, IdleInterval: time.Hour, Notify: func(string) {}, Logger: testr.New(t),
			}),
		}
		ended := make(chan struct{})
		go func() { defer close(ended); _ = f.Registry.Start(t.Context()) }()
		t.Cleanup(func() { <-ended })
		cluster, err := f.Cluster(t.Context(), &clusterv1.Cluster{}, &infrav1.MaasCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"},
			Spec: infrav1.MaasClusterSpec{
				CredentialsRef: &infrav1.LocalObjectReference{Name: "maas"},
				LXDConfig:      &infrav1.LXDHostConfig{CredentialsRef: &infrav1.LocalObjectReference{Name: "nodes"}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		r := New(&life.Steps{Base: reconciler.Base{Scopes: f}}, nil)
		_, err = r.instances(t.Context(), &life.Life{Machine: &scope.Machine{Cluster: cluster}})
		if want == "" && err == nil {
			continue
		}
		if err == nil || report.Explain(err).Reason != want {
			t.Fatalf("with the nodes' key of the MAAS at %s: %v, want the reason %q", endpoint, err, want)
		}
		for _, named := range []string{"spec.lxdConfig.credentialsRef", maas.Config{Endpoint: here}.Where(), maas.Config{Endpoint: elsewhere}.Where()} {
			if !strings.Contains(err.Error(), named) {
				t.Errorf("%q does not name %s", err, named)
			}
		}
	}
}
