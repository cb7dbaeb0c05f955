// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

func hostFactory(t *testing.T, objects ...client.Object) *Factory {
	t.Helper()
	f := &Factory{
		Client: fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(objects...).Build(), Manager: ManagerCredentials{Dir: t.TempDir()},
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
		options, err := f.LXDServer(t.Context(), host, 0)
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

// Whoever obeys the error changes the field that it names.
func TestTheManagersMAASIsNotForAllLXDHosts(t *testing.T) {
	t.Parallel()
	f := hostFactory(t)
	f.Manager.Namespaces = []string{"infra"}
	var refused *CredentialsError
	_, err := f.LXDHostMAAS(t.Context(), &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one"}}, 0)
	if !errors.As(err, &refused) || refused.Source != "spec.maasCredentialsRef" {
		t.Errorf("the error is %v", err)
	}
}

// A host that the manager does not watch would go before its VMs.
func TestAnLXDHostThatIsNotWatchedTakesNoVMs(t *testing.T) {
	t.Parallel()
	host := func(name, filter string) *infrav1.LXDHost {
		h := &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{clusterv1.WatchLabel: filter}}}
		h.Spec.Address, h.Spec.CredentialsRef = "10.0.0.1", &infrav1.LocalObjectReference{Name: name}
		return h
	}
	f := hostFactory(t, host("ours", "blue"), host("theirs", "green"))
	f.WatchFilter = "blue"
	objects, err := (&hostObjects{factory: f}).HostObjects(t.Context())
	if err != nil || len(objects) != 2 {
		t.Fatalf("%+v, %v", objects, err)
	}
	for _, o := range objects {
		if o.Unschedulable != (o.Name == "theirs") {
			t.Errorf("%s: unschedulable is %t", o.Name, o.Unschedulable)
		}
	}
}

// An LXDHost whose VMs are in another LXD, or in another project, is asked nothing; its address may change.
func TestAnLXDHostKeepsToItsLXD(t *testing.T) {
	t.Parallel()
	pair := func() lxdnode.Keys {
		keys, err := lxdnode.NewKeys("lxd")
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	own, other := pair(), pair()
	f := hostFactory(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "host"}, Data: map[string][]byte{
		corev1.TLSCertKey: own.Certificate, corev1.TLSPrivateKeyKey: own.Key,
	}})
	host := &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "host"}, Spec: infrav1.LXDHostSpec{
		Address: "10.0.0.1", ServerCertificate: string(own.Certificate), Project: "maas",
		CredentialsRef: &infrav1.LocalObjectReference{Name: "host"},
	}}
	home := PlaceOf(host)
	for name, tc := range map[string]struct {
		home    string
		change  func(*infrav1.LXDHostSpec)
		refused bool
	}{
		"as it was":           {home, func(*infrav1.LXDHostSpec) {}, false},
		"another address":     {home, func(s *infrav1.LXDHostSpec) { s.Address = "10.0.0.2:9443" }, false},
		"another certificate": {home, func(s *infrav1.LXDHostSpec) { s.ServerCertificate = string(other.Certificate) }, true},
		"another project":     {home, func(s *infrav1.LXDHostSpec) { s.Project = "other" }, true},
		"not recorded yet":    {"", func(s *infrav1.LXDHostSpec) { s.Project = "other" }, false},
	} {
		changed := host.DeepCopy()
		tc.change(&changed.Spec)
		changed.Annotations = map[string]string{infrav1.LXDAnnotation: tc.home}
		_, err := f.LXDServer(t.Context(), changed, 0)
		var elsewhere *lxd.OtherLXDError
		if refused := errors.As(err, &elsewhere); refused != tc.refused || (err != nil) != tc.refused {
			t.Errorf("%s: %v", name, err)
		}
		if refused := err != nil; refused && (elsewhere.Home != home || elsewhere.There != PlaceOf(changed)) {
			t.Errorf("%s: %+v", name, elsewhere)
		}
		if _, err := f.AnyLXDServer(t.Context(), changed, 0); err != nil {
			t.Errorf("%s: to find out where it leads: %v", name, err)
		}
	}
}

// Whoever offers a host sees what runs there. That he has another key of the same MAAS is no reason to trust him.
func TestAnLXDHostWithAnotherKeyIsForItsNamespaceAlone(t *testing.T) {
	t.Parallel()
	here := maasThatAccepts(t, "b", "e").URL + "/MAAS"
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
	f := hostFactory(t,
		secret("ours", here, "a:b:c"), host("ours"), secret("theirs", here, "d:e:f"), host("theirs"),
		secret("elsewhere", "http://127.0.0.1:2/MAAS", "a:b:c"), host("elsewhere"),
		secret("invented", here, "g:h:i"), host("invented"), secret("garbage", here, "key"), host("garbage"),
		host("maas", func(s *infrav1.LXDHostSpec) { s.VMHost = &infrav1.VMHostReference{ID: 1, SystemID: "abc"} }),
	)
	objects, err := (&hostObjects{factory: f, config: maas.Config{Endpoint: here, APIKey: "a:b:c"}}).HostObjects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string][]string{}
	for _, o := range objects {
		for _, namespace := range []string{"ours", "theirs", "third", "elsewhere", "invented", "garbage"} {
			opened := o
			if o.Open != nil {
				o.Open(t.Context(), &opened, namespace, 0)
			}
			isOffered := opened.Direct || opened.VMHost != (lxd.HostKey{}) // Not one that is for another MAAS.
			if isOffered && opened.Allows(namespace) {
				allowed[o.Namespace] = append(allowed[o.Namespace], namespace)
			}
		}
	}
	all := []string{"ours", "theirs", "third", "elsewhere", "invented", "garbage"}
	want := map[string][]string{"ours": all, "theirs": {"theirs"}, "maas": all}
	if diff := cmp.Diff(want, allowed); diff != "" {
		t.Errorf("who may place VMs, by the host's namespace (-want +got):\n%s", diff)
	}
}

// maasThatAccepts is a MAAS that knows the keys with these tokens, and no machine.
func maasThatAccepts(t *testing.T, tokens ...string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		knows := func(token string) bool {
			return strings.Contains(r.Header.Get("Authorization"), fmt.Sprintf("oauth_token=%q", token))
		}
		if !slices.ContainsFunc(tokens, knows) {
			http.Error(w, "Authorization Error: Invalid access token", http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `[{"id": 1, "name": "default"}]`)
	}))
	t.Cleanup(server.Close)
	return server
}

// An LXDHost with a key that MAAS refuses is asked by nobody, and MAAS is not asked each time.
func TestAnLXDHostWithAnInventedKeyIsNoHostOfTheMAAS(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		key  string
		want bool
	}{"accepted": {"d:e:f", true}, "invented": {"g:h:i", false}, "no key": {"invented", false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			accepting := maasThatAccepts(t, "b", "e")
			meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "tenant", Name: name} }
			f := hostFactory(t,
				&corev1.Secret{ObjectMeta: meta("lxd"), Data: map[string][]byte{"tls.crt": []byte("x"), "tls.key": []byte("x")}},
				&corev1.Secret{ObjectMeta: meta("maas"), Data: map[string][]byte{
					EndpointKey: []byte(accepting.URL + "/MAAS"), APIKeyKey: []byte(tc.key),
				}},
				&infrav1.LXDHost{ObjectMeta: meta("host"), Spec: infrav1.LXDHostSpec{
					Address: "10.0.0.1", Project: "maas", CredentialsRef: &infrav1.LocalObjectReference{Name: "lxd"},
					MAASCredentialsRef: &infrav1.LocalObjectReference{Name: "maas"},
				}},
			)
			ours := &hostObjects{factory: f, config: maas.Config{Endpoint: accepting.URL + "/MAAS", APIKey: "a:b:c"}}
			for range 2 { // The second time, what MAAS said is known.
				objects, err := ours.HostObjects(t.Context())
				if err != nil || len(objects) != 1 || objects[0].Problem == nil {
					t.Fatalf("unopened, it is one that can be used: %+v, %v", objects, err)
				}
				o := objects[0]
				o.Open(t.Context(), &o, "tenant", 0)
				if isHost := o.Direct && o.Problem == nil; isHost != tc.want {
					t.Errorf("it is a host: %v, %v", isHost, o.Problem)
				}
				accepting.Close()
			}
		})
	}
}

const lookedAt = 200

// counting is a client that counts how often Secrets are read.
func counting(t *testing.T, reads *atomic.Int32, objects ...client.Object) client.Client {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, is := object.(*corev1.Secret); is {
				reads.Add(1)
			}
			return c.Get(ctx, key, object, options...)
		},
	}).Build()
}

// Each placement, and each search for a VM, looks at the hosts.
func TestALookAtTheLXDHostsOfOthersReadsNoSecret(t *testing.T) {
	t.Parallel()
	_, endpoint := simtest.Start(t, `users: [{name: admin, admin: true, keys: ["admin:token:secret"]}]`, simulator.Options{})
	config := maas.Config{Endpoint: endpoint, APIKey: "admin:token:secret"}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "tenant", Name: name} }
	ref := func(name string) *infrav1.LocalObjectReference { return &infrav1.LocalObjectReference{Name: name} }
	everybody := []string{infrav1.AllNamespaces}
	for name, tc := range map[string]struct {
		spec infrav1.LXDHostSpec
		vm   lxd.VMSpec
		// first is how many reads the first look may cost; later ones cost none.
		first int32
	}{
		"for their namespace":            {infrav1.LXDHostSpec{}, lxd.VMSpec{}, 0},
		"for everybody, of another MAAS": {infrav1.LXDHostSpec{AllowedNamespaces: everybody}, lxd.VMSpec{}, lookedAt},
		"in another zone":                {infrav1.LXDHostSpec{AllowedNamespaces: everybody, Zone: "b"}, lxd.VMSpec{Zone: "a"}, 0},
		"in another resource pool":       {infrav1.LXDHostSpec{AllowedNamespaces: everybody, ResourcePool: "b"}, lxd.VMSpec{ResourcePool: "a"}, 0},
		"without a tag":                  {infrav1.LXDHostSpec{AllowedNamespaces: everybody}, lxd.VMSpec{Tags: []string{"ssd"}}, 0},
		"with an unwanted tag":           {infrav1.LXDHostSpec{AllowedNamespaces: everybody, Tags: []string{"old"}}, lxd.VMSpec{NotTags: []string{"old"}}, 0},
		"of another name":                {infrav1.LXDHostSpec{AllowedNamespaces: everybody}, lxd.VMSpec{HostName: "pinned"}, 0},
		"of another project":             {infrav1.LXDHostSpec{AllowedNamespaces: everybody}, lxd.VMSpec{Project: "other"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{
				&corev1.Secret{ObjectMeta: meta("lxd"), Data: map[string][]byte{"tls.crt": []byte("x"), "tls.key": []byte("x")}},
			}
			for i := range lookedAt {
				host := &infrav1.LXDHost{ObjectMeta: meta(fmt.Sprint("host-", i)), Spec: tc.spec}
				host.Spec.Address, host.Spec.Project = "10.0.0.1", "maas"
				host.Spec.CredentialsRef, host.Spec.MAASCredentialsRef = ref("lxd"), ref(fmt.Sprint("maas-", i))
				secret := &corev1.Secret{ObjectMeta: meta(fmt.Sprint("maas-", i)), Data: map[string][]byte{
					EndpointKey: []byte("http://another.example.com/MAAS"), APIKeyKey: []byte("a:b:c"),
				}}
				if i%2 == 0 { // The others are missing.
					objects = append(objects, secret)
				}
				objects = append(objects, host)
			}
			var reads atomic.Int32
			f := &Factory{Client: counting(t, &reads, objects...)}
			maasClient, err := maas.NewClient(config)
			if err != nil {
				t.Fatal(err)
			}
			service := lxd.NewService(lxd.NewComposer(inventory.New(maasClient, inventory.Options{}), lxd.NewHostRefresher(),
				&hostObjects{factory: f, config: config}, &f.LXD), lxd.NewReservations())
			tc.vm.Namespace = "victim"
			for _, most := range []int32{tc.first, 0, 0} {
				reads.Store(0)
				if _, err := service.GetAvailableLXDHosts(t.Context(), tc.vm); err != nil {
					var refused *lxd.LXDError
					if !errors.As(err, &refused) {
						t.Fatal(err)
					}
				}
				if n := reads.Load(); n > most {
					t.Errorf("%d reads of Secrets for a look at %d LXDHosts, want %d at most", n, lookedAt, most)
				}
			}
		})
	}
}

// What is kept of Secrets is bounded, and not used for longer than its reader wants.
func TestSecretsAreKeptWithBounds(t *testing.T) {
	t.Parallel()
	var reads atomic.Int32
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "ns", Name: name} }
	small := &corev1.Secret{ObjectMeta: meta("small"), Data: map[string][]byte{APIKeyKey: []byte("key"), "other": []byte("not ours")}}
	large := &corev1.Secret{ObjectMeta: meta("large"), Data: map[string][]byte{CABundleKey: make([]byte, maxSecretBytes+1)}}
	c := counting(t, &reads, small, large)
	f := &Factory{Client: c}
	read := func(name string, maxAge time.Duration) (map[string][]byte, error) {
		return f.secret(t.Context(), "field", client.ObjectKey{Namespace: "ns", Name: name}, maxAge)
	}
	for _, tc := range []struct {
		name   string
		maxAge time.Duration
		want   int32
	}{
		{"small", time.Hour, 1}, {"small", time.Hour, 0}, {"small", 0, 1}, {"large", time.Hour, 1}, {"large", time.Hour, 1},
		{"missing", time.Hour, 1}, {"missing", time.Hour, 0},
	} {
		reads.Store(0)
		data, err := read(tc.name, tc.maxAge)
		var missing *CredentialsError
		if errors.As(err, &missing) != (tc.name == "missing") || (tc.name == "small" && string(data[APIKeyKey]) != "key") {
			t.Errorf("%+v: %v, %v", tc, data, err)
		}
		if n := reads.Load(); n != tc.want {
			t.Errorf("%+v: %d reads", tc, n)
		}
	}
	if data, err := read("small", time.Hour); err != nil || len(data["other"]) > 0 {
		t.Errorf("what nobody uses is kept: %v, %v", data, err)
	}
	for range 2 {
		reads.Store(0)
		for i := range 2 * maxSecrets {
			_, _ = read(fmt.Sprint("missing-", i), time.Hour)
		}
	}
	if n := reads.Load(); n < maxSecrets {
		t.Errorf("%d of %d are read again", n, 2*maxSecrets)
	}
}

// Where Secrets are watched, one is read again when it has changed, and at once.
func TestAWatchedSecretIsReadWhenItHasChanged(t *testing.T) {
	t.Parallel()
	var reads atomic.Int32
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "maas"}, Data: map[string][]byte{
		EndpointKey: []byte("https://maas/MAAS"), APIKeyKey: []byte("a:b:c"),
	}}
	c := counting(t, &reads, secret)
	f := &Factory{Client: c, Watched: c}
	read := func(want string, most int32) {
		t.Helper()
		reads.Store(0)
		for range 3 {
			got, err := f.secretConfig(t.Context(), "spec.credentialsRef", "ns", "maas")
			if err != nil || got.APIKey != want {
				t.Errorf("the key is %q, want %q; %v", got.APIKey, want, err)
			}
		}
		if n := reads.Load(); n != most {
			t.Errorf("%d reads, want %d", n, most)
		}
	}
	read("a:b:c", 1)
	secret.Data[APIKeyKey] = []byte("d:e:f")
	if err := c.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	read("d:e:f", 1)
}
