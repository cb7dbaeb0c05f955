// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	cloudv1 "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/cloud/api/v1alpha1"
	inmemory "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime"
	inmemoryapi "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server/api"
)

// newControlPlane is the first member of a cluster in memory, with its API server.
func newControlPlane(t *testing.T) (*member, *apiServer) {
	t.Helper()
	g := &Guests{scheme: runtime.NewScheme()}
	for _, add := range schemes {
		if err := add(g.scheme); err != nil {
			t.Fatal(err)
		}
	}
	manager := inmemory.NewManager(g.scheme)
	if err := manager.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	manager.AddResourceGroup("cluster")
	store := memory{manager.GetResourceGroup("cluster").GetClient()}
	c := &cluster{manager: manager, pods: store, objects: store, group: "cluster", founder: &kubeadmRun{}, members: map[string]*member{}}
	m := &member{cluster: c, node: "metal-a1", etcd: "metal-a1", controlPlane: true, first: true, version: "v1.35.0"}
	c.add(m)
	s := &apiServer{member: m, api: inmemoryapi.NewAPIServerHandler(manager, logr.Discard(), func(string) (string, error) { return c.group, nil })}
	m.setServer(s)
	if err := c.setUp(m); err != nil {
		t.Fatal(err)
	}
	return m, s
}

// A machine that left etcd can join again under its name before the old pod is collected.
func TestMemberThatLeftJoinsAgain(t *testing.T) {
	m, _ := newControlPlane(t)
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = "kube-system", m.etcdPod()
	if err := change(m.cluster.pods, pod, func() { pod.Annotations[cloudv1.EtcdMemberRemoved] = "" }); err != nil {
		t.Fatal(err)
	}
	if err := m.cluster.setUp(m); err != nil {
		t.Fatal(err)
	}
	members, err := m.cluster.etcdMembers()
	if err != nil {
		t.Fatal(err)
	}
	if len(members) != 1 {
		t.Errorf("etcd has %d members, want the one that joined again", len(members))
	}
}

func TestStatusOfANode(t *testing.T) {
	m, s := newControlPlane(t)
	patch := strings.NewReader(`{"status":{"conditions":[{"type":"Sick","status":"True"}]}}`)
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPatch, "/api/v1/nodes/"+m.node+"/status", patch)
	request.Header.Set("Content-Type", "application/strategic-merge-patch+json")
	request.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}, VerifiedChains: [][]*x509.Certificate{{{}}}}
	response := httptest.NewRecorder()
	s.ServeHTTP(response, request)
	if response.Code != http.StatusOK {
		t.Fatalf("the response is %d: %s", response.Code, response.Body)
	}
	node := &corev1.Node{}
	if err := m.cluster.objects.Get(t.Context(), key("", m.node), node); err != nil {
		t.Fatal(err)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Sick" {
			return
		}
	}
	t.Errorf("the Node has the conditions %v, want one that is new among them", node.Status.Conditions)
}
