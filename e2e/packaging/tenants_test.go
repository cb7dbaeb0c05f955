// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/program"
	unreachable "github.com/capmaas/cluster-api-provider-maas/test/refused"
)

// The manager that users run gives its key neither to a tenant's MaasCluster nor, as a token, to the server of a
// tenant's kubeconfig.
func TestTheManagerKeepsItsKeyFromTenants(t *testing.T) {
	manager, err := program.Build(t.Context(), sources, "manager")
	if err != nil {
		t.Fatalf("building the manager: %v", err)
	}
	namespace := newNamespace(t)
	const key = "consumer:token:the-managers-own"
	config := t.TempDir()
	for name, content := range map[string]string{"config/maasEndpoint": "http://" + unreachable.Port(t) + "/MAAS", "credentials/apiKey": key} {
		path := filepath.Join(config, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	server := &tokens{}
	serving := httptest.NewTLSServer(server) // Tokens are sent by TLS alone.
	t.Cleanup(serving.Close)
	kubeconfig := tenantsKubeconfig(t, namespace, serving.URL, &clientcmdapi.AuthInfo{TokenFile: filepath.Join(config, "credentials/apiKey")})
	if err := management.Create(t.Context(), kubeconfig); err != nil {
		t.Fatal(err)
	}
	maasCluster := tenantsCluster(t, namespace)
	address := reservedAddress(t)
	startManager(t, manager, "--namespace="+namespace, "--health-addr=127.0.0.1:0", "--insecure-diagnostics", "--diagnostics-address="+address,
		"--maas-config-dir="+config, "--maas-config-namespaces=elsewhere", "--workload-connect-retry=1s")

	eventually.Succeeds(t, "the MaasCluster has no credentials", func(ctx context.Context) error {
		if err := management.Get(ctx, client.ObjectKeyFromObject(maasCluster), maasCluster); err != nil {
			return err
		}
		if reason := conditions.GetReason(maasCluster, infrav1.ReadyCondition); reason != infrav1.CredentialsInvalidReason {
			return fmt.Errorf("the reason is %q", reason)
		}
		return nil
	})
	before := maasCluster.DeepCopy()
	maasCluster.Status.Initialization.Provisioned = ptr.To(true)
	if err := management.Status().Patch(t.Context(), maasCluster, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, "the manager has tried to connect", func(ctx context.Context) error {
		served, err := scrape(ctx, "http://"+address+"/metrics")
		if err == nil && !strings.Contains(served, `capi_cluster_cache_connection_up{cluster_name="tenants",cluster_namespace="`+namespace+`"} 0`) {
			err = errors.New("its metrics don't say so")
		}
		return err
	})
	other := tenantsKubeconfig(t, namespace, serving.URL, &clientcmdapi.AuthInfo{Token: "the-tenants"})
	if err := management.Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, "the manager uses a kubeconfig that names no file", func(context.Context) error { return server.saw("the-tenants") })
	if server.saw(key) == nil {
		t.Error("the manager sent its MAAS key to the server of a tenant's kubeconfig")
	}
}

// tokens is a server that records the bearer tokens that the manager sends. Cluster API itself may use the same
// kubeconfig.
type tokens struct {
	mu   sync.Mutex
	seen []string
}

func (s *tokens) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasPrefix(r.UserAgent(), "manager/") {
		s.seen = append(s.seen, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	}
	http.Error(w, "this is no API server", http.StatusNotFound)
}

// saw is nil once the manager sent the token.
func (s *tokens) saw(token string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.seen, token) {
		return fmt.Errorf("it saw the manager %d times, with other tokens", len(s.seen))
	}
	return nil
}

func tenantsKubeconfig(t *testing.T, namespace, server string, user *clientcmdapi.AuthInfo) *corev1.Secret {
	t.Helper()
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: server, InsecureSkipTLSVerify: true}}, AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": user},
		Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	})
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "tenants-kubeconfig", Labels: map[string]string{clusterv1.ClusterNameLabel: "tenants"},
		},
		Type: clusterv1.ClusterSecretType, Data: map[string][]byte{"value": content},
	}
}

// tenantsCluster makes a Cluster with a MaasCluster that has no credentials of its own.
func tenantsCluster(t *testing.T, namespace string) *infrav1.MaasCluster {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "tenants"}
	maasCluster := &infrav1.MaasCluster{
		ObjectMeta: meta, Spec: infrav1.MaasClusterSpec{ControlPlaneEndpoint: infrav1.APIEndpoint{Host: "api.example.com", Port: 6443}},
	}
	for _, o := range []client.Object{maasCluster, &clusterv1.Cluster{
		ObjectMeta: meta, Spec: clusterv1.ClusterSpec{InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: infrav1.GroupVersion.Group, Kind: "MaasCluster", Name: meta.Name,
		}},
	}} {
		if err := management.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	return maasCluster
}

// With an LXDHost of a VM host of MAAS, a tenant could keep the VMs of all others off it.
func TestOnlyTheManagerMakesLXDHostsOfVMHosts(t *testing.T) {
	namespace := newNamespace(t)
	tenant, adopter := newTenant(t, "tenant", namespace), newTenant(t, "adopter", namespace, "adopt")
	host := func(spec infrav1.LXDHostSpec) *infrav1.LXDHost {
		return &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{GenerateName: "h-", Namespace: namespace}, Spec: spec}
	}
	ofMAAS := infrav1.LXDHostSpec{VMHost: &infrav1.VMHostReference{ID: 1, SystemID: "abc"}, Unschedulable: true}
	eventually.Succeeds(t, "the policy is in force", func(ctx context.Context) error {
		err := tenant.Create(ctx, host(ofMAAS), client.DryRunAll)
		if err == nil {
			return errors.New("a tenant may make one")
		}
		return nil
	})
	if err := tenant.Create(t.Context(), host(ofMAAS)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "adopt") {
		t.Errorf("a tenant makes one: %v, want a refusal that names the verb adopt", err)
	}
	for who, c := range map[string]client.Client{"the manager": managersClient(t), "one who may adopt": adopter} {
		if err := c.Create(t.Context(), host(ofMAAS)); err != nil {
			t.Errorf("%s makes one: %v", who, err)
		}
	}
	own := infrav1.LXDHostSpec{
		Address: "10.0.0.1", ServerCertificate: "-----BEGIN CERTIFICATE-----", CredentialsRef: &infrav1.LocalObjectReference{Name: "lxd"},
	}
	if err := tenant.Create(t.Context(), host(own)); err != nil {
		t.Errorf("a tenant makes an LXDHost of his own: %v", err)
	}
}
