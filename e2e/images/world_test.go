// SPDX-License-Identifier: Apache-2.0

package images_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/needs"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// requireVariable is set where the test must not be skipped.
const requireVariable = "CAPMAAS_REQUIRE_BUILDAH"

// requireBuildah skips a test if buildah can't work, and fails it if it must.
func requireBuildah(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("buildah")
	switch {
	case runtime.GOOS != "linux" || os.Getuid() != 0:
		err = errors.New("images are built and started as root on Linux")
	case err != nil:
		err = errors.New("there is no buildah: apt-get install -y --no-install-recommends buildah")
	default:
		return
	}
	needs.Skip(t, err, requireVariable)
}

const apiKey = "admin:token:hush"

// serveMAAS serves a simulated MAAS over TLS until the test ends. No client trusts its certificate.
func serveMAAS(t *testing.T) *httptest.Server {
	t.Helper()
	region, err := simulator.LoadRegion(strings.NewReader(`users: [{name: root, admin: true, keys: ["` + apiKey + `"]}]`))
	if err != nil {
		t.Fatal(err)
	}
	maas, err := simulator.New(region, simulator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(maas.Close)
	server := httptest.NewTLSServer(maas.Handler())
	t.Cleanup(server.Close)
	return server
}

// kubeconfig returns one for an API that serves what the manager checks, until the test ends.
func kubeconfig(t *testing.T) string {
	t.Helper()
	served := map[string][]string{
		infrav1.GroupVersion.String():   {"LXDHost", "MaasCluster", "MaasClusterTemplate", "MaasMachine", "MaasMachineTemplate", "MaasRemediation", "MaasRemediationTemplate"},
		clusterv1.GroupVersion.String(): {"Cluster", "Machine"},
	}
	mux := http.NewServeMux()
	for version, kinds := range served {
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version}
		for _, kind := range kinds {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: strings.ToLower(kind) + "s", Kind: kind, Namespaced: true})
		}
		mux.HandleFunc("GET /apis/"+version, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(list); err != nil {
				t.Error(err)
			}
		})
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	config := clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"test": {Server: server.URL}},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test"}},
		CurrentContext: "test",
	}
	text, err := clientcmd.Write(config)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
