// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
)

func hostFactory(t *testing.T, objects ...client.Object) *Factory {
	t.Helper()
	f := &Factory{
		Client: fake.NewClientBuilder().WithObjects(objects...).Build(), Manager: ManagerCredentials{Dir: t.TempDir()},
		Registry: inventory.NewRegistry(inventory.Options{
			ActiveInterval: time.Hour, IdleInterval: time.Hour, Notify: func(string) {}, Logger: testr.New(t),
		}),
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = f.Registry.Start(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return f
}

// An LXDHost is another user of a MAAS than a MaasCluster of its name.
func TestRegionsOfLXDHosts(t *testing.T) {
	t.Parallel()
	f := hostFactory(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "maas"},
		Data:       map[string][]byte{EndpointKey: []byte("http://127.0.0.1:1/MAAS"), APIKeyKey: []byte("a:b:c")},
	})
	meta, ref := metav1.ObjectMeta{Namespace: "ns", Name: "one"}, &infrav1.LocalObjectReference{Name: "maas"}
	host := &infrav1.LXDHost{ObjectMeta: meta, Spec: infrav1.LXDHostSpec{MAASCredentialsRef: ref}}
	cluster := &infrav1.MaasCluster{ObjectMeta: meta, Spec: infrav1.MaasClusterSpec{CredentialsRef: ref}}
	if regions := f.Regions(); len(regions) != 0 {
		t.Errorf("%d regions without a user", len(regions))
	}
	region, err := f.LXDHostRegion(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.Cluster(t.Context(), &clusterv1.Cluster{}, cluster)
	if err != nil {
		t.Fatal(err)
	}
	if regions := f.Regions(); s.Region != region || len(regions) != 1 || regions[0] != region || region.Where() != "127.0.0.1:1/MAAS/api/2.0" {
		t.Errorf("one identity has the regions %v, at %s", regions, region.Where())
	}
	f.Release(cluster)
	if regions := f.Regions(); len(regions) != 1 {
		t.Errorf("%d regions while the host uses one", len(regions))
	}
	f.ReleaseLXDHost(client.ObjectKeyFromObject(host))
	if regions := f.Regions(); len(regions) != 0 {
		t.Errorf("%d regions after the last user", len(regions))
	}
}

func TestCredentialsOfLXDHosts(t *testing.T) {
	t.Parallel()
	secret := func(name string, data map[string][]byte) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: data}
	}
	f := hostFactory(t, secret("good", map[string][]byte{"tls.crt": []byte("c"), "tls.key": []byte("k")}), secret("half", map[string][]byte{"tls.crt": []byte("c")}))
	for name, good := range map[string]bool{"good": true, "half": false, "missing": false, "": false} {
		host := &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one"}}
		host.Spec.Address, host.Spec.Project = "10.0.0.1", "maas"
		if name != "" {
			host.Spec.CredentialsRef = &infrav1.LocalObjectReference{Name: name}
		}
		options, err := f.LXDServer(t.Context(), host)
		var invalid *CredentialsError
		if errors.As(err, &invalid) == good || (good && options.Address != "10.0.0.1:8443") {
			t.Errorf("Secret %q: %v, %v", name, options, err)
		}
	}
	var invalid *CredentialsError
	if _, err := f.LXDHostRegion(t.Context(), &infrav1.LXDHost{}); !errors.As(err, &invalid) {
		t.Errorf("without credentials for MAAS: %v", err)
	}
}

func TestWithPort(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"10.0.0.1": "10.0.0.1:8443", "10.0.0.1:9": "10.0.0.1:9", "[fd00::1]": "[fd00::1]:8443", "[fd00::1]:9": "[fd00::1]:9", "lxd.example.com": "lxd.example.com:8443",
	} {
		if got := withPort(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// Whoever offers a host sees what runs there. That he has another key of the same MAAS is no reason to trust him.
func TestAnLXDHostWithAnotherKeyIsForItsNamespaceAlone(t *testing.T) {
	t.Parallel()
	const here = "http://127.0.0.1:1/MAAS"
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, infrav1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	secret := func(namespace, endpoint, key string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "maas"}, Data: map[string][]byte{
			EndpointKey: []byte(endpoint), APIKeyKey: []byte(key),
		}}
	}
	host := func(namespace string, change ...func(*infrav1.LXDHostSpec)) *infrav1.LXDHost {
		vmHostOf := map[string]string{infrav1.MAASAnnotation: maas.Config{Endpoint: here}.Where()}
		h := &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "host", Annotations: vmHostOf}, Spec: infrav1.LXDHostSpec{
			MAASCredentialsRef: &infrav1.LocalObjectReference{Name: "maas"}, AllowedNamespaces: []string{infrav1.AllNamespaces},
		}}
		for _, c := range change {
			c(&h.Spec)
		}
		return h
	}
	f := &Factory{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		secret("ours", here, "a:b:c"), host("ours"), secret("theirs", here, "d:e:f"), host("theirs"),
		secret("elsewhere", "http://127.0.0.1:2/MAAS", "a:b:c"), host("elsewhere"),
		host("maas", func(s *infrav1.LXDHostSpec) { s.VMHost = &infrav1.VMHostReference{ID: 1, SystemID: "abc"} }),
	).Build()}
	objects, err := (&hostObjects{factory: f, config: maas.Config{Endpoint: here, APIKey: "a:b:c"}}).HostObjects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string][]string{}
	for _, o := range objects {
		isOffered := o.Direct || o.VMHost != (lxd.HostKey{}) // Not one that is for another MAAS.
		for _, namespace := range []string{"ours", "theirs", "third"} {
			if isOffered && o.Allows(namespace) {
				allowed[o.Namespace] = append(allowed[o.Namespace], namespace)
			}
		}
	}
	want := map[string][]string{"ours": {"ours", "theirs", "third"}, "theirs": {"theirs"}, "maas": {"ours", "theirs", "third"}}
	if diff := cmp.Diff(want, allowed); diff != "" {
		t.Errorf("who may place VMs, by the host's namespace (-want +got):\n%s", diff)
	}
}
