// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	crconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maascluster"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
	"github.com/capmaas/cluster-api-provider-maas/test/apiserver"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// apiConfig is the configuration for the API server that the tests share; each test has a namespace, a manager and a
// MAAS of its own.
var apiConfig *rest.Config

// view is what watches show of all tests' objects, for those who wait: a hundred that asked the API server every moment would be
// a quarter of its work.
var view cache.Cache

// mapper knows the kinds of the API server, so that not each manager asks for them.
var mapper meta.RESTMapper

func TestMain(m *testing.M) {
	code, err := runWithAPIServer(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runWithAPIServer(m *testing.M) (code int, err error) {
	ctrl.SetLogger(logr.Discard())
	// These tests wait more than they compute.
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		return 0, err
	}
	server, err := apiserver.Start(context.Background(), apiserver.Options{
		Root: "..", ClusterAPI: []string{"core", "controlplane/kubeadm"}, Controllers: true,
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	apiConfig = server.RESTConfig()
	client, err := rest.HTTPClientFor(apiConfig)
	if err != nil {
		return 0, fmt.Errorf("connecting to the API server: %w", err)
	}
	if mapper, err = apiutil.NewDynamicRESTMapper(apiConfig, client); err != nil {
		return 0, fmt.Errorf("reading the kinds of the API server: %w", err)
	}
	stop, err := startView()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return m.Run(), nil
}

func startView() (stop func() error, err error) {
	if view, err = cache.New(apiConfig, cache.Options{Scheme: scheme, Mapper: mapper}); err != nil {
		return nil, fmt.Errorf("setting up the view of the objects: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- view.Start(ctx) }()
	return func() error { cancel(); return <-ended }, nil
}

// recorded returns the record of a MaasMachine.
func recorded(t testing.TB, m *infrav1.MaasMachine) *record.MachineData {
	t.Helper()
	data, err := record.OfMachine(m)
	if err != nil {
		t.Fatal(err)
	}
	return &data
}

// recordText returns the annotation for a record.
func recordText(t testing.TB, data any) string {
	t.Helper()
	text, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// world is one test's management cluster namespace, manager and MAAS.
type world struct {
	t         *testing.T
	client    client.Client
	namespace string
	second    string // another namespace that the manager reconciles; "": none
	maas      *simulator.Simulator
	workload  client.Client
	region    string
	version   string // of MAAS; "" is the simulator's own choice
	timeScale float64
	maasURL   string
	cluster   *clusterv1.Cluster
	// clusterEndpoint is the endpoint in the Cluster.
	clusterEndpoint clusterv1.APIEndpoint
	scopes          *scope.Factory // the manager's
	// commissionTimeout and deployTimeout are the manager's; 0 is none.
	commissionTimeout, deployTimeout time.Duration
	hostTimeout                      time.Duration      // the manager's
	hostInterval                     time.Duration      // the manager's; 0 is an hour
	settleTime                       time.Duration      // the manager's; 0 is half a second
	evacuation                       bool               // the manager may evacuate hosts
	watchFilter                      string             // the manager's
	concurrency                      int                // the manager's; 0 is 4
	clock                            clock.PassiveClock // the manager's; nil is the real one
	stopManager                      func()
	nudged                           *rate.Sometimes
	ownMAAS                          bool                  // the manager has credentials of its own, for this world's MAAS
	between                          transport.WrapperFunc // what the manager's requests to Kubernetes pass through, or nil
	meanwhile                        func()                // called while the test waits, or nil
	// meddles is why what the manager does in this test may differ from the models: the test plays tricks that they do
	// not have. "": it may not.
	meddles string
	writes  *atomic.Int64 // of the manager, in a world that is measured
}

const (
	// timeScale makes minutes in MAAS pass in fractions of a second.
	timeScale   = 2000
	clusterName = "c1"
)

var namespaces atomic.Int32

var scheme = allkinds.Scheme()

// newWorld starts a MAAS and a manager. The Cluster API side (Cluster, Machines, bootstrap data) is played by the test.
func newWorld(t *testing.T, change ...func(*world)) *world {
	t.Helper()
	c, err := client.New(apiConfig, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, client: c, namespace: fmt.Sprintf("test-%d", namespaces.Add(1)),
		workload: fake.NewClientBuilder().WithScheme(scheme).Build(), region: region, hostTimeout: 5 * time.Minute,
		timeScale: timeScale,
		nudged:    &rate.Sometimes{Interval: 5 * time.Second},
	}
	for _, c := range change {
		c(w)
	}
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}})
	if w.maas == nil { // Otherwise several managers use one MAAS.
		w.maasURL = w.startMAAS()
	}
	w.createCredentials()
	w.heldAgainstTheModel()
	w.startManager()
	return w
}

// clusterWorld is newWorld, with a cluster that is provisioned.
func clusterWorld(t *testing.T, change ...func(*world)) (*world, *infrav1.MaasCluster) {
	t.Helper()
	w := newWorld(t, change...)
	return w, w.provisionedCluster()
}

func (w *world) createCredentials() {
	w.t.Helper()
	w.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "maas", Namespace: w.namespace},
		StringData: map[string]string{"endpoint": w.maasURL, "apiKey": "admin:token:secret"},
	})
}

const region = `
users: [{name: admin, admin: true, keys: ["admin:token:secret"]}]
zones: [{name: zone-a}, {name: zone-b}, {name: zone-c}]
domains: [{name: maas.sim, default: true}]
subnets: [{cidr: 10.77.0.0/24, gateway: 10.77.0.1, dns_servers: [10.77.0.1], dhcp: true, dynamic_ranges: [{start: 10.77.0.200, end: 10.77.0.254}]}]
images: [{name: ubuntu/jammy}]
machines:
  - {names: [metal-a], zone: zone-a, cores: 8, memory: 16384, disks: [100]}
  - {names: [metal-b], zone: zone-b, cores: 8, memory: 16384, disks: [100]}
vm_hosts:
  - {name: lxd-a, zone: zone-a, cores: 8, memory: 16384, storage_pools: [{name: default, type: zfs, size: 200}]}
  - {name: lxd-b, zone: zone-b, cores: 8, memory: 16384, storage_pools: [{name: default, type: zfs, size: 200}]}
  - {name: lxd-c, zone: zone-c, cores: 8, memory: 16384, storage_pools: [{name: default, type: zfs, size: 200}]}
`

func (w *world) startMAAS() (endpoint string) {
	parsed, err := simulator.LoadRegion(strings.NewReader(w.region))
	if err != nil {
		w.t.Fatal(err)
	}
	w.maas, err = simulator.New(parsed, simulator.Options{TimeScale: w.timeScale, Version: w.version, PatchedLXDDriver: true})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(w.maas.Close)
	server := httptest.NewUnstartedServer(w.maas.Handler())
	server.Config.ConnState = w.maas.ConnState
	server.Start()
	w.t.Cleanup(server.Close)
	return server.URL + "/MAAS"
}

func (w *world) startManager() {
	w.t.Helper()
	log := w.logger()
	watched := map[string]cache.Config{w.namespace: {}}
	if w.second != "" {
		watched[w.second] = cache.Config{}
	}
	config := apiConfig
	if w.between != nil {
		config = rest.CopyConfig(apiConfig)
		config.Wrap(w.between)
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Logger: log,
		Controller:     crconfig.Controller{SkipNameValidation: ptr.To(true)},
		Cache:          cache.Options{DefaultNamespaces: watched},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
		Client:         client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}}}},
		Metrics:        metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(logr.NewContext(context.Background(), log))
	options := Options{
		Namespace: w.namespace, WatchFilter: w.watchFilter, Concurrency: cmp.Or(w.concurrency, 4), ClusterCache: clustercache.NewFakeEmptyClusterCache(), ManagementID: thisManagementCluster,
		Credentials: scope.ManagerCredentials{Dir: w.t.TempDir()},
		Clock:       cmp.Or[clock.PassiveClock](w.clock, clock.RealClock{}),
		PollActive:  100 * time.Millisecond, PollIdle: 300 * time.Millisecond, SettleTime: cmp.Or(w.settleTime, defaultSettleTime),
		CommissionTimeout: w.commissionTimeout, DeployTimeout: w.deployTimeout, VMHostUnreachableTimeout: w.hostTimeout,
		LXDHostInterval: cmp.Or(w.hostInterval, time.Hour), Evacuation: w.evacuation,
		Initializer: maascluster.Initializer{Image: "example.com/lxd-initializer:v1"},
	}
	if w.workload != nil {
		key := client.ObjectKey{Namespace: w.namespace, Name: clusterName}
		options.ClusterCache = clustercache.NewFakeClusterCache(w.workload, key, life.NodeWatch, maascluster.HostNodeWatch)
	}
	if w.ownMAAS {
		options.Credentials.Given = &maas.Config{Endpoint: w.maasURL, APIKey: "admin:token:secret"}
	}
	all := assemble(ctx, mgr, options)
	all.hurry()
	if err := all.addTo(ctx, mgr, options.Concurrency); err != nil {
		w.t.Fatal(err)
	}
	w.scopes = all.scopes
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	w.stopManager = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("the manager ended: %v", err)
		}
	})
	w.t.Cleanup(w.stopManager)
}

// logger keeps the manager's log and prints it when the test fails.
func (w *world) logger() logr.Logger {
	file, err := os.CreateTemp(w.t.TempDir(), "manager-*.log")
	if err != nil {
		w.t.Fatal(err)
	}
	config := zap.NewDevelopmentConfig()
	config.OutputPaths = []string{file.Name()}
	config.DisableStacktrace = true
	zapLog, err := config.Build()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if content, err := os.ReadFile(file.Name()); err == nil && w.t.Failed() {
			w.t.Logf("the manager's log:\n%s", content)
		}
		_ = file.Close()
	})
	return zapr.NewLogger(zapLog)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(object client.Object) {
	w.t.Helper()
	if err := w.client.Create(w.t.Context(), object); err != nil {
		w.t.Fatalf("creating %T: %v", object, err)
	}
}

func (w *world) patchStatus(object client.Object, change func()) {
	w.t.Helper()
	before := object.DeepCopyObject().(client.Object)
	change()
	if err := w.client.Status().Patch(w.t.Context(), object, client.MergeFrom(before)); err != nil {
		w.t.Fatalf("patching the status of %T: %v", object, err)
	}
}

// newCluster makes a Cluster and its MaasCluster, and waits until the provider says that it is provisioned.
func (w *world) newCluster(change ...func(*infrav1.MaasCluster)) *infrav1.MaasCluster {
	w.t.Helper()
	w.cluster = &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: clusterName, Namespace: w.namespace}, Spec: clusterv1.ClusterSpec{
		InfrastructureRef:    clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "MaasCluster", Name: clusterName},
		ControlPlaneRef:      clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "KubeadmControlPlane", Name: clusterName},
		ControlPlaneEndpoint: w.clusterEndpoint,
	}}
	w.create(w.cluster)
	maasCluster := &infrav1.MaasCluster{
		ObjectMeta: metav1.ObjectMeta{Name: clusterName, Namespace: w.namespace, Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName}},
		Spec:       infrav1.MaasClusterSpec{DNSDomain: "maas.sim", CredentialsRef: &infrav1.LocalObjectReference{Name: "maas"}},
	}
	for _, c := range change {
		c(maasCluster)
	}
	w.own(w.cluster, maasCluster)
	w.create(maasCluster)
	return maasCluster
}

// provisionedCluster is newCluster, and waits until it is provisioned.
func (w *world) provisionedCluster(change ...func(*infrav1.MaasCluster)) *infrav1.MaasCluster {
	w.t.Helper()
	cluster := w.newCluster(change...)
	w.provisioned(cluster)
	return cluster
}

// provisioned waits for the provider, then sets the Cluster's status, as Cluster API does.
func (w *world) provisioned(maasCluster *infrav1.MaasCluster) {
	w.t.Helper()
	w.eventually(maasCluster, "provisioned", func() bool { return ptr.Deref(maasCluster.Status.Initialization.Provisioned, false) })
	w.patchStatus(w.cluster, func() { w.cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true) })
}

func (w *world) own(owner, object client.Object) {
	w.t.Helper()
	w.must(controllerutil.SetOwnerReference(owner, object, w.client.Scheme()))
}

// newMachine makes a Machine with bootstrap data, and its MaasMachine. change changes the metadata of both.
func (w *world) newMachine(name string, controlPlane bool, spec infrav1.MaasMachineSpec, change ...func(*metav1.ObjectMeta)) *infrav1.MaasMachine {
	w.t.Helper()
	labels := map[string]string{clusterv1.ClusterNameLabel: clusterName}
	if controlPlane {
		labels[clusterv1.MachineControlPlaneLabel] = ""
	}
	meta := metav1.ObjectMeta{Name: name, Namespace: w.namespace, Labels: labels}
	for _, c := range change {
		c(&meta)
	}
	w.create(&corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"value": "#cloud-config\n# " + name}})
	machine := &clusterv1.Machine{ObjectMeta: meta, Spec: clusterv1.MachineSpec{
		ClusterName:       clusterName,
		Bootstrap:         clusterv1.Bootstrap{DataSecretName: ptr.To(name)},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "MaasMachine", Name: name},
	}}
	w.own(w.cluster, machine)
	w.create(machine)
	if spec.Image == "" {
		spec.Image = "ubuntu/jammy"
	}
	maasMachine := &infrav1.MaasMachine{ObjectMeta: meta, Spec: spec}
	w.own(machine, maasMachine)
	w.create(maasMachine)
	return maasMachine
}

// deployedMachine is newMachine, and waits until it is ready for Cluster API.
func (w *world) deployedMachine(name string, controlPlane bool, spec infrav1.MaasMachineSpec, change ...func(*metav1.ObjectMeta)) *infrav1.MaasMachine {
	w.t.Helper()
	m := w.newMachine(name, controlPlane, spec, change...)
	w.deployed(m)
	return m
}

// eventually waits until an object is as wanted.
func (w *world) eventually(object client.Object, what string, done func() bool) {
	w.t.Helper()
	w.await(object.GetName()+" is "+what, object, func(ctx context.Context) bool {
		return w.sees(ctx, object) == nil && done() && w.client.Get(ctx, client.ObjectKeyFromObject(object), object) == nil && done()
	})
}

// stored waits until the reconcile that is under way has stored all of its results, and reads the object: its conditions
// are stored in a patch of their own, before the rest. Between two reconciles an object is paused, for a moment.
func (w *world) stored(object reconciled) {
	w.t.Helper()
	w.annotate(object, clusterv1.PausedAnnotation, ptr.To(""))
	w.eventually(object, "paused", func() bool { return conditions.IsTrue(object, clusterv1.PausedCondition) })
	later := object.DeepCopyObject().(reconciled)
	w.annotate(later, clusterv1.PausedAnnotation, nil)
	w.eventually(later, "unpaused", func() bool { return conditions.IsFalse(later, clusterv1.PausedCondition) })
}

// reconciled is an object whose reconciler says so when it is paused.
type reconciled interface {
	client.Object
	conditions.Getter
}

// sees reads an object as the view has it, which may lag behind.
func (w *world) sees(ctx context.Context, object client.Object) error {
	return view.Get(ctx, client.ObjectKeyFromObject(object), object)
}

// isGone reports whether an object is gone, and reads it if it is not.
func (w *world) isGone(ctx context.Context, object client.Object) bool {
	return apierrors.IsNotFound(w.sees(ctx, object)) && apierrors.IsNotFound(w.client.Get(ctx, client.ObjectKeyFromObject(object), object))
}

// await polls until a condition holds, and shows MAAS and an object if it does not in time.
func (w *world) await(what string, object client.Object, done func(context.Context) bool) {
	w.t.Helper()
	eventually.True(w.t, what, func() bool {
		if w.meanwhile != nil {
			w.meanwhile()
		}
		return done(w.t.Context())
	}, func() any { return fmt.Sprintf("MAAS:\n%s\nit is:\n%+v", w.machines(), object) })
}

// delete deletes an object and waits until it is gone.
func (w *world) delete(object client.Object) {
	w.t.Helper()
	w.beginDeletion(object)
	w.goes(object)
}

func (w *world) machines() string {
	var text strings.Builder
	for _, m := range w.maas.Machines() {
		fmt.Fprintf(&text, "  %s %s %s power=%s owner=%q agent=%q host=%q %v\n",
			m.SystemID, m.Hostname, m.Status, m.Power, m.Owner, m.AgentName, m.VMHost, m.Addresses)
	}
	return text.String()
}

// unchanged checks that MAAS is as it was, but for quarantines. A MaasMachine that is there still may be trying again: then
// it waits until that is undone.
func (w *world) unchanged(before []byte) {
	w.t.Helper()
	left := func() string { return lineDiff(w.lasting(before), w.lasting(w.maas.State())) }
	var machines infrav1.MaasMachineList
	w.must(w.client.List(w.t.Context(), &machines, client.InNamespace(w.namespace)))
	if len(machines.Items) > 0 {
		eventually.True(w.t, "nothing is left in MAAS", func() bool { return left() == "" }, func() any { return left() })
	} else if left := left(); left != "" {
		w.t.Errorf("something is left in MAAS:\n%s", left)
	}
}

// lasting returns a state of MAAS without what comes and goes: quarantines, the tag of exclusions that no machine has,
// and ids. A link that was replaced and restored has another one.
func (w *world) lasting(state []byte) []byte {
	w.t.Helper()
	var all map[string]any
	w.must(json.Unmarshal(state, &all))
	isQuarantine := func(name any) bool { return strings.HasPrefix(name.(string), quarantine.Tag) }
	all["tags"] = slices.DeleteFunc(all["tags"].([]any), func(tag any) bool {
		name := tag.(map[string]any)["name"]
		return isQuarantine(name) || name == quarantine.ExcludeTag
	})
	for _, m := range all["machines"].([]any) {
		m := m.(map[string]any)
		m["tag_names"] = slices.DeleteFunc(m["tag_names"].([]any), isQuarantine)
	}
	text, err := json.MarshalIndent(all, "", "  ")
	w.must(err)
	return idLine.ReplaceAll(text, nil)
}

var idLine = regexp.MustCompile(`(?m)^\s*"id": [0-9]+,?$`)

func lineDiff(before, after []byte) string {
	left, right := strings.Split(string(before), "\n"), strings.Split(string(after), "\n")
	seen := map[string]int{}
	for _, line := range left {
		seen[line]++
	}
	var text strings.Builder
	for _, line := range right {
		if seen[line]--; seen[line] < 0 {
			fmt.Fprintln(&text, "+", line)
		}
	}
	for line, n := range seen {
		if n > 0 {
			fmt.Fprintln(&text, "-", line)
		}
	}
	return text.String()
}
