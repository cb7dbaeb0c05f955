// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	lxdclient "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/charts"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	built "github.com/capmaas/cluster-api-provider-maas/test/program"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/controlplane"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

// All tests share an API server, with the chart's objects for a host cluster except the DaemonSet. Each test has its
// own MAAS and nodes.
var (
	apiConfig *rest.Config
	admin     *kubernetes.Clientset
	binary    string
)

const (
	namespace = "capmaas-system"
	apiKey    = "admin:token:hush"
)

func TestMain(m *testing.M) {
	code, err := runWithAPIServer(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runWithAPIServer(m *testing.M) (code int, err error) {
	flag.Parse()
	if flag.Lookup("test.fuzz").Value.String() != "" || flag.Lookup("test.list").Value.String() != "" {
		return m.Run(), nil // Fuzz targets need no API server, and each worker would start one.
	}
	// These tests wait more than they compute.
	if err := flag.Set("test.parallel", "4"); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "capmaas-initializer-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx := context.Background()
	if binary, err = built.Build(ctx, filepath.Join("..", ".."), "lxd-initializer"); err != nil {
		return 0, err
	}
	server, err := controlplane.Start(ctx, controlplane.Options{Dir: filepath.Join(dir, "data"), LogDir: dir})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	apiConfig = server.RESTConfig()
	if admin, err = kubernetes.NewForConfig(apiConfig); err != nil {
		return 0, err
	}
	if err := installChart(ctx); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// installChart gives the ServiceAccount the chart's permissions, and nothing else.
func installChart(ctx context.Context) error {
	objects, err := charts.Initializer(charts.Values{Namespace: namespace, Image: "example.com/lxd-initializer:test"})
	if err != nil {
		return err
	}
	c, err := client.New(apiConfig, client.Options{})
	if err != nil {
		return err
	}
	for _, object := range objects {
		if object.GetKind() == "DaemonSet" {
			continue
		}
		if err := c.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// bed is one test's MAAS.
type bed struct {
	t        *testing.T
	region   *simulator.Simulator
	client   *maas.Client
	endpoint string
	dir      string // the MAAS config dir
	down     atomic.Bool
	plays    string // the version of the LXDs of its nodes, or ""

	mu    sync.Mutex
	hosts map[string]*lxd.Daemon // by address
}

const regionYAML = `
users: [{name: admin, admin: true, keys: ["admin:token:hush"]}, {name: plain, keys: ["plain:token:hush"]}]
zones: [{name: zone-a}, {name: zone-b}]
pools: [{name: pool-a}, {name: pool-b}]
subnets: [{cidr: 10.0.2.0/24, gateway: 10.0.2.1, dhcp: true}]
images: [{name: ubuntu/jammy}]
machines: [{prefix: metal-, count: 3, zone: zone-b, cores: 8, memory: 16384, disks: [200], status: deployed}]
`

// newBed starts a MAAS that reaches the LXD of the bed's nodes.
func newBed(t *testing.T, wrap ...func(http.Handler) http.Handler) *bed {
	t.Helper()
	lxdtest.Require(t)
	b := &bed{t: t, dir: t.TempDir(), hosts: map[string]*lxd.Daemon{}, plays: lxdtest.ForMAAS()}
	b.region = simtest.New(t, regionYAML, simulator.Options{TimeScale: 1000, Dial: b.dial, PatchedLXDDriver: true})
	var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.down.Load() {
			panic(http.ErrAbortHandler)
		}
		b.region.Handler().ServeHTTP(w, r)
	})
	for _, w := range wrap {
		handler = w(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	b.endpoint = server.URL + "/MAAS"
	b.writeCredentials(apiKey)
	b.client = simtest.Client(t, b.endpoint, apiKey)
	return b
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) writeCredentials(key string) {
	b.t.Helper()
	for file, content := range map[string]string{"config/maasEndpoint": b.endpoint, "credentials/apiKey": key} {
		path := filepath.Join(b.dir, file)
		b.must(os.MkdirAll(filepath.Dir(path), 0o700))
		b.must(os.WriteFile(path, []byte(content), 0o600))
	}
}

func (b *bed) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	daemon := b.hosts[host]
	b.mu.Unlock()
	if daemon == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("no route to host")}
	}
	return daemon.Dial(ctx, network, address)
}

// vmHosts are those that MAAS has.
func (b *bed) vmHosts() []maas.VMHost {
	b.t.Helper()
	hosts, err := b.client.ListVMHosts(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return hosts
}

// onlyHost is the one VM host that MAAS has.
func (b *bed) onlyHost() maas.VMHost {
	b.t.Helper()
	hosts := b.vmHosts()
	if len(hosts) != 1 {
		b.t.Fatalf("MAAS has %d VM hosts, want 1: %+v", len(hosts), hosts)
	}
	return hosts[0]
}

// writes are the calls to MAAS that change something, since ResetCalls.
func (b *bed) writes() []string {
	var writes []string
	for _, call := range b.region.Calls().Log {
		if call.Method != http.MethodGet {
			writes = append(writes, call.Method+" "+call.Endpoint+" "+call.Op)
		}
	}
	return writes
}

// testNode is a node with a real LXD, and the pod of the initializer on it.
type testNode struct {
	*bed
	name, ip string
	machine  simulator.MachineSnapshot // that the node is on
	lxd      *lxd.Daemon
	token    string
	between  transport.WrapperFunc // what its requests to Kubernetes pass through, or nil
}

var nodeNumber atomic.Int32

// newNode starts an LXD on a machine that MAAS deployed, and makes a Node with it.
func (b *bed) newNode() *testNode {
	b.t.Helper()
	b.mu.Lock()
	machine := b.region.Machines()[len(b.hosts)]
	b.mu.Unlock()
	nic := machine.Interfaces[0]
	n := &testNode{bed: b, name: fmt.Sprintf("node-%d", nodeNumber.Add(1)), ip: nic.Addresses[0].Addr().String(), machine: machine}
	n.lxd = lxdtest.Start(b.t, lxd.Options{Address: nic.Addresses[0], MAC: nic.MAC, Plays: b.plays})
	if b.plays == lxdtest.ForMAAS() {
		lxdtest.RequireForMAAS(b.t, n.lxd)
	}
	b.mu.Lock()
	b.hosts[n.ip] = n.lxd
	b.mu.Unlock()
	n.createNode("maas://zone-b/" + machine.SystemID)
	n.createPod()
	return n
}

// replaceNode deletes the Node and makes it again: a provider ID does not change.
func (n *testNode) replaceNode(providerID string) {
	n.t.Helper()
	n.must(admin.CoreV1().Nodes().Delete(n.t.Context(), n.name, metav1.DeleteOptions{}))
	n.createNode(providerID)
}

func (n *testNode) createNode(providerID string) {
	n.t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.name},
		Spec:       corev1.NodeSpec{ProviderID: providerID},
	}
	created, err := admin.CoreV1().Nodes().Create(n.t.Context(), node, metav1.CreateOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	created.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
	n.setAddress(created)
}

// setAddress makes the Node's address that of the machine.
func (n *testNode) setAddress(node *corev1.Node) {
	n.t.Helper()
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.ip}}
	if _, err := admin.CoreV1().Nodes().UpdateStatus(n.t.Context(), node, metav1.UpdateOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

// createPod makes the pod that the ServiceAccount's token is bound to.
func (n *testNode) createPod() {
	n.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "initializer-" + n.name, Namespace: namespace}, Spec: corev1.PodSpec{
		ServiceAccountName: charts.InitializerName, NodeName: n.name,
		Containers: []corev1.Container{{Name: "initializer", Image: "example.com/lxd-initializer:test"}},
	}}
	created, err := admin.CoreV1().Pods(namespace).Create(n.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	token, err := admin.CoreV1().ServiceAccounts(namespace).CreateToken(n.t.Context(), charts.InitializerName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			Kind: "Pod", APIVersion: "v1", Name: created.Name, UID: created.UID,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	n.token = token.Status.Token
}

// env returns the chart's environment variables for the pod.
func (n *testNode) env(change ...map[string]string) map[string]string {
	env := map[string]string{
		"NODE_NAME": n.name, "LXD_LISTEN": "8443", "LXD_SOCKET": n.lxd.Socket(), "POD_NAMESPACE": namespace,
		"STORAGE_BACKEND": "dir", "ZONE": "zone-a", "RESOURCE_POOL": "pool-a", "MAAS_CONFIG_DIR": n.dir,
		"HEALTH_ADDR": "127.0.0.1:0", "METRICS_ADDR": "127.0.0.1:0", "CHECK_INTERVAL": "1s",
	}
	for _, c := range change {
		for key, value := range c {
			env[key] = value
		}
	}
	return env
}

// agent makes an initializer with the pod's permissions, which makes passes on request.
func (n *testNode) agent(change ...map[string]string) *agent {
	n.t.Helper()
	env := n.env(change...)
	opts, _, err := parseOptions(nil, func(name string) (string, bool) { value, there := env[name]; return value, there })
	if err != nil {
		n.t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(apiConfig)
	config.BearerToken = n.token
	config.Wrap(n.between)
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		n.t.Fatal(err)
	}
	events, stop := newRecorder(kube, n.name)
	n.t.Cleanup(stop)
	return newAgent(opts, kube, events)
}

// settle makes passes until one succeeds.
func (n *testNode) settle(a *agent) {
	n.t.Helper()
	eventually.Succeeds(n.t, n.name+" is an LXD host", a.pass)
}

// await waits until something is so.
func (b *bed) await(what string, done func(context.Context) bool) {
	b.t.Helper()
	eventually.True(b.t, what, func() bool { return done(b.t.Context()) })
}

func (n *testNode) node() *corev1.Node {
	n.t.Helper()
	node, err := admin.CoreV1().Nodes().Get(n.t.Context(), n.name, metav1.GetOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	return node
}

// condition returns the Node's, or the zero one.
func (n *testNode) condition() corev1.NodeCondition {
	n.t.Helper()
	for _, c := range n.node().Status.Conditions {
		if c.Type == infrav1.LXDHostReadyNodeCondition {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// wantCondition checks the Node's condition, and that the others are still there.
func (n *testNode) wantCondition(status corev1.ConditionStatus, reason string) {
	n.t.Helper()
	if c := n.condition(); c.Status != status || c.Reason != reason {
		n.t.Errorf("the condition is %s/%s (%s), want %s/%s", c.Status, c.Reason, c.Message, status, reason)
	}
	if len(n.node().Status.Conditions) != 2 {
		n.t.Errorf("the Node's conditions are %+v, want the kubelet's, too", n.node().Status.Conditions)
	}
}

func (n *testNode) wantLabel(want bool) {
	n.t.Helper()
	if got := n.node().Labels[infrav1.LXDHostLabel] == "true"; got != want {
		n.t.Errorf("the Node has the label: %v, want %v", got, want)
	}
}

// secret returns the Node's, or nil.
func (n *testNode) secret() *corev1.Secret {
	n.t.Helper()
	all, err := admin.CoreV1().Secrets(namespace).List(n.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + secretPrefix + n.name})
	if err != nil {
		n.t.Fatal(err)
	}
	if len(all.Items) == 0 {
		return nil
	}
	return &all.Items[0]
}

// local returns a client of the node's LXD. An LXD that is silent is restarted once, as a person would: LXD 5.0 has
// been seen to respond to no request any more, on a busy machine, after a client of it was killed.
func (n *testNode) local() lxdclient.InstanceServer {
	n.t.Helper()
	server, err := lxd.Connect(n.t.Context(), n.lxd.Socket())
	if errors.Is(err, context.DeadlineExceeded) {
		n.t.Log("LXD is silent, and is restarted")
		n.must(n.lxd.Restart(n.t.Context()))
		return lxdtest.Connect(n.t, n.lxd.Socket())
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(server.Disconnect)
	return server
}

// trusted are the fingerprints that the node's LXD trusts.
func (n *testNode) trusted() []string {
	n.t.Helper()
	fingerprints, err := n.local().GetCertificateFingerprints()
	if err != nil {
		n.t.Fatal(err)
	}
	return fingerprints
}

// wantHost checks that the node is a host, once: one VM host that MAAS can use, one key pair, one certificate.
func (n *testNode) wantHost() maas.VMHost {
	n.t.Helper()
	n.wantCondition(corev1.ConditionTrue, reasonRegistered)
	n.wantLabel(true)
	if n.secret() == nil {
		n.t.Error("there is no Secret with the key pair")
	}
	if trusted := n.trusted(); len(trusted) != 1 {
		n.t.Errorf("LXD trusts %d certificates, want 1", len(trusted))
	}
	var mine []maas.VMHost
	for _, host := range n.vmHosts() {
		if host.Name == n.name {
			mine = append(mine, host)
		}
	}
	if len(mine) != 1 {
		n.t.Fatalf("MAAS has %d VM hosts %s, want 1", len(mine), n.name)
	}
	if _, err := n.client.RefreshVMHost(n.t.Context(), mine[0].ID); err != nil {
		n.t.Errorf("MAAS can't use the VM host: %v", err)
	}
	return mine[0]
}

// lxdWrites records LXD's events of changes, in their order, until the test ends.
func (n *testNode) lxdWrites() func() []string {
	n.t.Helper()
	listener, err := n.local().GetEventsAllProjects()
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(listener.Disconnect)
	var mu sync.Mutex
	var actions []string
	_, err = listener.AddHandler([]string{api.EventTypeLifecycle}, func(event api.Event) {
		var lifecycle api.EventLifecycle
		if err := json.Unmarshal(event.Metadata, &lifecycle); err != nil {
			lifecycle.Action = err.Error()
		}
		mu.Lock()
		defer mu.Unlock()
		actions = append(actions, lifecycle.Action)
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(actions)
	}
}

// removeTrust removes all certificates, as a person might.
func (n *testNode) removeTrust() {
	n.t.Helper()
	for _, fingerprint := range n.trusted() {
		n.must(n.local().DeleteCertificate(fingerprint))
	}
}

// retire sets or removes the annotation that retires the node.
func (n *testNode) retire(yes bool) {
	n.t.Helper()
	value := "null"
	if yes {
		value = `"true"`
	}
	n.patchNode(`{"metadata":{"annotations":{"` + infrav1.LXDHostRetireAnnotation + `":` + value + `}}}`)
}

// removeForeign removes the certificates that were there before ours.
func (n *testNode) removeForeign(fingerprints []string) {
	n.t.Helper()
	for _, fingerprint := range fingerprints {
		n.must(n.local().DeleteCertificate(fingerprint))
	}
}

// newCertificate returns one in LXD's form: DER in base64.
func newCertificate(t *testing.T, commonName string) string {
	t.Helper()
	keys, err := lxdnode.NewKeys(commonName)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(keys.Certificate)
	return base64.StdEncoding.EncodeToString(block.Bytes)
}

// registered is a VM host that an operator registered without a certificate.
func registered(name, ip string) maas.VMHostParams {
	return maas.VMHostParams{Name: name, VMHostPower: maas.VMHostPower{PowerAddress: ip, Project: lxdnode.DefaultProject}}
}

func (n *testNode) patchNode(patch string) {
	n.t.Helper()
	if _, err := admin.CoreV1().Nodes().Patch(n.t.Context(), n.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

func (n *testNode) patchSecret(patch string) {
	n.t.Helper()
	if _, err := admin.CoreV1().Secrets(namespace).Patch(
		n.t.Context(), secretPrefix+n.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{},
	); err != nil {
		n.t.Fatal(err)
	}
}
