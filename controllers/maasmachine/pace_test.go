// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	capicontroller "sigs.k8s.io/cluster-api/util/controller"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maascluster"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/metal"
	"github.com/capmaas/cluster-api-provider-maas/controllers/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/internal/presence"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
	"github.com/capmaas/cluster-api-provider-maas/test/figures"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// pace runs the reconcilers of MaasMachines and their MaasCluster at production intervals on a fake clock, against a
// simulated MAAS, with what wakes them in a manager: their own writes, changes in MAAS, and the times that they ask for.
// It must be used in a bubble of synctest, in which nothing may come from a real network.
type pace struct {
	*testing.T
	client   client.WithWatch
	MAAS     *simulator.Simulator
	scopes   *scope.Factory
	machines *Reconciler
	clusters *maascluster.Reconciler

	mu     sync.Mutex
	due    map[job]time.Time
	woken  chan struct{}
	ran    map[job]time.Time // when the last reconcile began
	failed map[job]int       // in a row
	looks  map[job]int       // reconciles
	names  map[string]string // of MaasMachines, by system id
	shown  map[job]int       // changes of the object that its watchers see
}

// job is an object to be reconciled.
type job struct{ kind, name string }

const (
	productionActive = 5 * time.Second
	productionIdle   = time.Minute
	productionSettle = 4 * time.Minute
	// leastPause is how long Cluster API keeps an object from being reconciled again.
	leastPause       = time.Second
	firstRetry       = 5 * time.Millisecond
	lastRetry        = 1000 * time.Second
	productionMirror = 30 * time.Second
	namespace        = "default"
	pipedMAAS        = "127.0.0.1:1"
)

// pipes connects clients in a bubble to the MAAS in it: a connection that waits for a network would stop the fake clock.
var pipes sync.Map // listeners by the context's bubble: there is one at a time for each address

func init() {
	transport := http.DefaultTransport.(*http.Transport)
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if l, piped := pipes.Load(address); piped {
			return l.(*pipeListener).dial(ctx)
		}
		return dial(ctx, network, address)
	}
}

// pipeListener accepts connections in memory.
type pipeListener struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.accepted <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error { l.once.Do(func() { close(l.closed) }); return nil }

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

const pacedRegion = `
users: [{name: admin, admin: true, keys: ["admin:token:secret"]}, {name: other, admin: true, keys: ["other:token:secret"]}]
zones: [{name: zone-a}]
domains: [{name: maas.sim, default: true}]
subnets: [{cidr: 10.77.0.0/24, gateway: 10.77.0.1, dhcp: true, dynamic_ranges: [{start: 10.77.0.200, end: 10.77.0.254}]}]
images: [{name: ubuntu/jammy}]
machines:
  - {names: [metal-a], zone: zone-a, cores: 8, memory: 16384, disks: [100]}
vm_hosts:
  - {name: lxd-a, zone: zone-a, cores: 8, memory: 16384, storage_pools: [{name: default, type: zfs, size: 200}]}
`

func newPace(t *testing.T, region string) *pace {
	t.Helper()
	p := &pace{
		T: t, due: map[job]time.Time{}, woken: make(chan struct{}, 1), ran: map[job]time.Time{}, failed: map[job]int{}, looks: map[job]int{}, names: map[string]string{}, shown: map[job]int{},
	}
	p.startMAAS(cmp.Or(region, pacedRegion))
	p.startKubernetes()
	ctx, cancel := context.WithCancel(t.Context())
	registry := inventory.NewRegistry(inventory.Options{
		ActiveInterval: productionActive, IdleInterval: productionIdle, Notify: p.changed, Logger: testr.New(t),
	})
	ended := make(chan struct{})
	go func() { defer close(ended); _ = registry.Start(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	p.scopes = &scope.Factory{Client: p.client, Registry: registry}
	records := &record.Records{Client: p.client, SettleTime: productionSettle}
	recorder := events.NewFakeRecorder(100_000)
	p.machines = &Reconciler{
		Steps: life.Steps{
			Base: reconciler.Base{
				Client:    p.client,
				APIReader: presence.NewReader(p.client, productionSettle),
				Scopes:    p.scopes,
				Recorder:  recorder,
				Clock:     clock.RealClock{},
				Records:   records,
			},
			ClusterCache: clustercache.NewFakeEmptyClusterCache(),
			Controller:   capicontroller.NewFakeController(),
		},
		HostUnreachableTimeout: 5 * time.Minute,
	}
	p.clusters = &maascluster.Reconciler{
		Base: reconciler.Base{
			Client:    p.client,
			APIReader: presence.NewReader(p.client, productionSettle),
			Scopes:    p.scopes,
			Recorder:  recorder,
			Clock:     clock.RealClock{},
			Records:   records,
		},
		ClusterCache: clustercache.NewFakeEmptyClusterCache(),
	}
	return p
}

func (p *pace) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *pace) startMAAS(region string) {
	p.Helper()
	parsed, err := simulator.LoadRegion(strings.NewReader(region))
	if err != nil {
		p.Fatal(err)
	}
	if p.MAAS, err = simulator.New(parsed, simulator.Options{}); err != nil {
		p.Fatal(err)
	}
	listener := &pipeListener{accepted: make(chan net.Conn), closed: make(chan struct{})}
	pipes.Store(pipedMAAS, listener)
	server := &http.Server{Handler: p.MAAS.Handler(), ConnState: p.MAAS.ConnState, ReadHeaderTimeout: time.Hour}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	p.Cleanup(func() {
		pipes.Delete(pipedMAAS)
		_ = server.Close()
		<-done
		p.MAAS.Close()
	})
}

func (p *pace) startKubernetes() {
	p.Helper()
	scheme := runtime.NewScheme()
	// Of each kind, the client makes a mapping for each patch.
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, ipamv1.AddToScheme, infrav1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: namespace, UID: "cluster"},
		Spec: clusterv1.ClusterSpec{
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "MaasCluster", Name: "c"},
		},
		Status: clusterv1.ClusterStatus{Initialization: clusterv1.ClusterInitializationStatus{InfrastructureProvisioned: ptr.To(true)}},
	}
	maasCluster := &infrav1.MaasCluster{
		ObjectMeta: metav1.ObjectMeta{
			Name: "c", Namespace: namespace, UID: "maascluster", Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}, OwnerReferences: ownedBy("Cluster", "c", "cluster"),
		},
		Spec: infrav1.MaasClusterSpec{DNSDomain: "maas.sim", CredentialsRef: &infrav1.LocalObjectReference{Name: "maas"}},
	}
	credentials := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "maas", Namespace: namespace, UID: "secret"},
		Data:       map[string][]byte{"endpoint": []byte("http://" + pipedMAAS + "/MAAS"), "apiKey": []byte("admin:token:secret")},
	}
	base := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, maasCluster, credentials).
		WithStatusSubresource(&infrav1.MaasMachine{}, &infrav1.MaasCluster{}, &clusterv1.Machine{}, &clusterv1.Cluster{}).
		WithIndex(&infrav1.MaasMachine{}, SystemIDIndex, systemIDOf).
		WithIndex(&infrav1.MaasCluster{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).Build()
	p.client = interceptor.NewClient(base, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			return p.watched(ctx, c, o, func() error { return c.Patch(ctx, o, patch, options...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			return p.watched(ctx, c, o, func() error { return c.SubResource(name).Patch(ctx, o, patch, options...) })
		},
	})
}

func ownedBy(kind, name string, uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: kind, Name: name, UID: uid}}
}

// watched makes a write, and wakes who watches what it changed.
func (p *pace) watched(ctx context.Context, c client.Client, o client.Object, write func() error) error {
	read := func() client.Object {
		now := o.DeepCopyObject().(client.Object)
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
			return nil
		}
		return now
	}
	before := read()
	err := write()
	after := read()
	if before == nil || after == nil || before.GetResourceVersion() == after.GetResourceVersion() {
		return err
	}
	switch after := after.(type) {
	case *infrav1.MaasMachine:
		p.mu.Lock()
		p.names[after.Spec.SystemID] = after.Name
		p.mu.Unlock()
		wakes := objects.IgnoreBookkeeping.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
		if wakes || !equality.Semantic.DeepEqual(before.(*infrav1.MaasMachine).Status, after.Status) {
			p.count(p.shown, job{"MaasMachine", o.GetName()})
		}
		if wakes {
			p.wake(job{"MaasMachine", o.GetName()}, 0)
		}
		p.wake(job{"MaasCluster", "c"}, 0)
	case *infrav1.MaasCluster:
		if objects.IgnoreBookkeeping.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
			p.wake(job{"MaasCluster", o.GetName()}, 0)
		}
		for _, r := range p.machines.maasClusterToMachines(ctx, after) {
			p.wake(job{"MaasMachine", r.Name}, 0)
		}
	}
	return err
}

func (p *pace) count(in map[job]int, j job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	in[j]++
}

// changed is what the inventory calls.
func (p *pace) changed(systemID string) {
	p.mu.Lock()
	name := p.names[systemID] // As the index of the cache has it.
	p.mu.Unlock()
	if name != "" {
		p.wake(job{"MaasMachine", name}, 0)
	}
}

// wake has an object reconciled in a while, if that is sooner than planned.
func (p *pace) wake(j job, after time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := time.Now().Add(after)
	if least := p.ran[j].Add(leastPause); at.Before(least) {
		at = least
	}
	if planned, is := p.due[j]; is && !at.Before(planned) {
		return
	}
	p.due[j] = at
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// next returns what is due first.
func (p *pace) next() (first job, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for j, due := range p.due {
		if at.IsZero() || due.Before(at) || due.Equal(at) && j.name < first.name {
			first, at = j, due
		}
	}
	return first, at
}

// run lets time pass, until done reports true.
func (p *pace) run(d time.Duration, done func() bool) {
	p.Helper()
	for ends := time.Now().Add(d); ; {
		j, at := p.next()
		if at.IsZero() || at.After(ends) {
			at, j = ends, job{}
		}
		select {
		case <-p.woken:
			continue
		case <-time.After(time.Until(at)):
		}
		if j == (job{}) {
			return
		}
		p.reconcile(j)
		if done != nil && done() {
			return
		}
	}
}

func (p *pace) reconcile(j job) {
	p.mu.Lock()
	delete(p.due, j)
	p.ran[j] = time.Now()
	p.looks[j]++
	p.mu.Unlock()
	var r reconcile.Reconciler = p.machines
	if j.kind == "MaasCluster" {
		r = p.clusters
	}
	ctx := ctrl.LoggerInto(p.Context(), testr.New(p.T))
	result, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: j.name}})
	switch {
	case err != nil:
		p.failed[j]++
		p.wake(j, min(firstRetry<<min(p.failed[j]-1, 20), lastRetry))
	case result.RequeueAfter > 0:
		p.failed[j] = 0
		p.wake(j, result.RequeueAfter)
	default:
		p.failed[j] = 0
	}
}

// add makes a Machine with bootstrap data, and its MaasMachine.
func (p *pace) add(name string, spec infrav1.MaasMachineSpec) {
	p.Helper()
	spec.Image = cmp.Or(spec.Image, "ubuntu/jammy")
	labels := map[string]string{clusterv1.ClusterNameLabel: "c"}
	machine := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID("machine-" + name), Labels: labels, OwnerReferences: ownedBy("Cluster", "c", "cluster")},
		Spec: clusterv1.MachineSpec{
			ClusterName: "c", Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To(name)},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "MaasMachine", Name: name},
		},
	}
	maasMachine := &infrav1.MaasMachine{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, UID: types.UID("maasmachine-" + name), Labels: labels, OwnerReferences: ownedBy("Machine", name, machine.UID),
		},
		Spec: spec,
	}
	data := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Data: map[string][]byte{"value": []byte("#cloud-config")}}
	for _, o := range []client.Object{data, machine, maasMachine} {
		p.must(p.client.Create(p.Context(), o))
	}
	p.wake(job{"MaasMachine", name}, 0)
}

func (p *pace) get(name string) *infrav1.MaasMachine {
	p.Helper()
	m := &infrav1.MaasMachine{}
	if err := p.client.Get(p.Context(), client.ObjectKey{Namespace: namespace, Name: name}, m); client.IgnoreNotFound(err) != nil {
		p.Fatal(err)
	}
	return m
}

// obstacle is what keeps a machine from getting on.
type obstacle struct {
	spec   infrav1.MaasMachineSpec
	fault  simulator.Fault
	delete bool   // the fault comes when the machine runs, and is deleted
	host   bool   // the machine becomes a VM host
	reason string // of Ready
	shows  int    // how often the object changes in a try, besides twice; only what happens in between is news
	from   string // the reason whose section of the documents tells the pace; default: reason
	call   simulator.CallKey
}

var (
	aVM    = infrav1.MaasMachineSpec{ProvisioningMode: infrav1.ProvisioningModeLXD}
	bonded = infrav1.MaasMachineSpec{Interfaces: []infrav1.MachineInterface{
		{Name: "bond0", Type: infrav1.InterfaceTypeBond, Parents: []string{"enp1s0"}, Subnet: "10.77.0.0/24"},
	}}
	striped = infrav1.MaasMachineSpec{Storage: &infrav1.MachineStorage{Layout: "lvm"}}
)

func onMachine(op string) simulator.CallKey {
	return simulator.CallKey{Method: http.MethodPost, Endpoint: "machines/{id}/", Op: op}
}

var (
	allocating = simulator.CallKey{Method: http.MethodPost, Endpoint: "machines/", Op: "allocate"}
	linking    = simulator.CallKey{Method: http.MethodPost, Endpoint: "nodes/{id}/interfaces/{iface}/", Op: "link_subnet"}
	composing  = simulator.CallKey{Method: http.MethodPost, Endpoint: "vm-hosts/{id}/", Op: "compose"}
	deleting   = simulator.CallKey{Method: http.MethodDelete, Endpoint: "machines/{id}/"}
	bonding    = simulator.CallKey{Method: http.MethodPost, Endpoint: "nodes/{id}/interfaces/", Op: "create_bond"}
	bridging   = simulator.CallKey{Method: http.MethodPost, Endpoint: "nodes/{id}/interfaces/", Op: "create_bridge"}
	layout     = simulator.CallKey{Method: http.MethodPost, Endpoint: "machines/{id}/", Op: "set_storage_layout"}
	inUse      = simulator.CallKey{Method: http.MethodGet, Endpoint: "subnets/{subnet}/", Op: "ip_addresses"}
	imageList  = simulator.CallKey{Method: http.MethodGet, Endpoint: "boot-resources/"}
)

// answers are what MAAS may say to a call that changes something, and the reason that it leads to.
var answers = map[string]struct {
	fault  simulator.Fault
	reason string
}{
	"400":                          {simulator.Fault{Status: 400, Body: "no"}, infrav1.MAASRefusedReason},
	"403":                          {simulator.Fault{Status: 403, Body: "no"}, infrav1.MAASRefusedReason},
	"404":                          {simulator.Fault{Status: 404, Body: "no"}, infrav1.MAASRefusedReason},
	"409":                          {simulator.Fault{Status: 409, Body: "no"}, infrav1.MAASRefusedReason},
	"500":                          {simulator.Fault{Status: 500, Body: "no"}, infrav1.MAASUnavailableReason},
	"503 without an address":       {simulator.Fault{Status: 503, Body: "No more IPs available in subnet: 10.77.0.0/24."}, infrav1.MAASRefusedReason},
	"500 without a way to the BMC": {simulator.Fault{Status: 500, Body: "Error determining BMC task queue for machine abc"}, infrav1.MAASRefusedReason},
	"no answer":                    {simulator.Fault{DropBefore: true}, infrav1.MAASUnavailableReason},
}

// refusing returns an obstacle for each of these answers to a call.
func refusing(into map[string]obstacle, name string, o obstacle, said ...string) {
	for _, what := range said {
		o := o
		o.fault, o.from = answers[what].fault, answers[what].reason
		o.fault.Method, o.fault.Endpoint, o.fault.Op = o.call.Method, o.call.Endpoint, o.call.Op
		if o.reason == "" {
			o.reason = o.from
		}
		into[name+": "+what] = o
	}
}

func obstacles() map[string]obstacle {
	taken := simulator.Fault{Method: linking.Method, Endpoint: linking.Endpoint, Op: linking.Op, Status: 404, Body: "IP address is already in use."}
	all := map[string]obstacle{
		"no machine fits":      {spec: infrav1.MaasMachineSpec{MinCPU: 64}, reason: infrav1.NoMachineAvailableReason, call: allocating},
		"no such image":        {spec: infrav1.MaasMachineSpec{Image: "custom/none"}, reason: infrav1.ImageNotFoundReason, call: imageList},
		"static address taken": {spec: infrav1.MaasMachineSpec{StaticIP: "10.77.0.2"}, reason: infrav1.StaticIPInUseReason, call: inUse},
		"a VM's address taken": {spec: withAddress(aVM, "10.77.0.2"), reason: infrav1.StaticIPInUseReason, call: inUse},
		"taken meanwhile":      {spec: withAddress(infrav1.MaasMachineSpec{}, "10.77.0.50"), fault: taken, reason: infrav1.StaticIPInUseReason, call: linking},
		"a VM's, meanwhile":    {spec: withAddress(aVM, "10.77.0.50"), fault: taken, reason: infrav1.StaticIPInUseReason, call: linking},
	}
	few := []string{"400", "403", "409", "no answer"}
	refusing(all, "deploy", obstacle{call: onMachine("deploy")}, slices.Collect(maps.Keys(answers))...)
	refusing(all, "deploy of a VM", obstacle{spec: aVM, call: onMachine("deploy")}, few...)
	refusing(all, "annotations", obstacle{call: onMachine("set_workload_annotations")}, few...)
	refusing(all, "annotations of a VM", obstacle{spec: aVM, call: onMachine("set_workload_annotations")}, "400", "no answer")
	refusing(all, "allocate", obstacle{call: allocating}, "400", "403", "500", "no answer")
	refusing(all, "link_subnet", obstacle{spec: withAddress(infrav1.MaasMachineSpec{}, "10.77.0.50"), call: linking}, "500", "503 without an address", "no answer")
	refusing(all, "link_subnet of a VM", obstacle{spec: withAddress(aVM, "10.77.0.50"), call: linking}, "500", "no answer")
	refusing(all, "compose", obstacle{spec: aVM, call: composing, shows: 3}, "no answer")
	refusing(all, "release", obstacle{delete: true, reason: infrav1.DeletingReason, call: onMachine("release")}, few...)
	refusing(all, "deletion of a VM", obstacle{spec: aVM, delete: true, reason: infrav1.DeletingReason, call: deleting}, "400", "403", "404", "409", "no answer")
	refusing(all, "a bond", obstacle{spec: bonded, call: bonding}, "500", "no answer")
	refusing(all, "a layout", obstacle{spec: striped, call: layout}, "500", "no answer")
	return all
}

func withAddress(spec infrav1.MaasMachineSpec, address string) infrav1.MaasMachineSpec {
	spec.StaticIP = address
	return spec
}

// paces are the words of the documents for how often something is tried again, and how often an hour that is.
var paces = []struct {
	words string
	most  int
}{
	{"before the settle time", int(time.Hour / productionSettle)},
	{"every 30 seconds", int(time.Hour / report.CapacityRetry)},
	{"once a minute", int(time.Hour / report.MendRetry)},
}

// documented returns how often an hour the documents say that what has a reason is tried.
func documented(t *testing.T, reason string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "reasons.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n### "+reason+"\n")
	section, _, _ = strings.Cut(section, "\n### ")
	_, section, _ = strings.Cut(section, "**Provider**")
	provider, _, _ := strings.Cut(section, "**You**")
	for _, pace := range paces {
		if found && strings.Contains(strings.Join(strings.Fields(provider), " "), pace.words) {
			return pace.most
		}
	}
	t.Fatalf("docs/reasons.md does not tell how often what has the reason %s is tried", reason)
	return 0
}

// What MAAS refuses is asked for as often as the documents say, whatever wakes the object, and is told to watchers once.
func TestThePaceOfRetriesIsAsDocumented(t *testing.T) {
	for name, tc := range obstacles() {
		t.Run(name, func(t *testing.T) {
			most := documented(t, cmp.Or(tc.from, tc.reason))
			synctest.Test(t, func(t *testing.T) {
				p := newPace(t, "")
				p.meets(tc)
				const watched = time.Hour / 5 // Then the machine is given back for a while.
				most := most / 5
				p.run(3*time.Minute, nil)
				m := job{"MaasMachine", "m"}
				sent, shown, looked := p.sent(tc.call), p.shown[m], p.looks[m]
				p.run(watched, nil)
				now := p.get(m.name)
				if got := conditions.GetReason(now, infrav1.ReadyCondition); got != tc.reason {
					t.Fatalf("the reason is %s, want %s: %s", got, tc.reason, conditions.GetMessage(now, infrav1.ReadyCondition))
				}
				if n := p.sent(tc.call) - sent; n > most || n < most/3 {
					t.Errorf("MAAS got the call %d times in 12 minutes, and the documents say %d", n, most)
				}
				if n := p.shown[m] - shown; n > 2+tc.shows*most {
					t.Errorf("the object changed %d times in 12 minutes, though nothing new is to be said: %s", n, conditions.GetMessage(now, infrav1.ReadyCondition))
				}
				if n := p.looks[m] - looked; n > 2*int(watched/report.CapacityRetry) {
					t.Errorf("it was reconciled %d times in 12 minutes", n)
				}
			})
		})
	}
}

// waits are what MAAS refuses between acquiring and deploying bare metal until a person corrects something.
func waits() map[string]obstacle {
	const noAddress, noBMC = "503 without an address", "500 without a way to the BMC"
	all := map[string]obstacle{}
	refusing(all, "deploy", obstacle{call: onMachine("deploy")}, "400", "403", noAddress, noBMC)
	static := withAddress(infrav1.MaasMachineSpec{}, "10.77.0.50")
	for what, o := range map[string]obstacle{
		"an address": {spec: static}, "a bond": {spec: bonded},
		"a bond with an address": {spec: withAddress(bonded, "10.77.0.50")}, "a bridge": {host: true},
		"a layout": {spec: striped}, "a layout and a bond": {spec: infrav1.MaasMachineSpec{Storage: striped.Storage, Interfaces: bonded.Interfaces}},
	} {
		o.call = onMachine("deploy")
		refusing(all, "deploy with "+what, o, "400")
	}
	refusing(all, "link_subnet", obstacle{spec: static, call: linking}, "400", "403", "404", "409", noAddress)
	refusing(all, "a bond", obstacle{spec: bonded, call: bonding}, "400", "403", noAddress)
	refusing(all, "a bridge", obstacle{host: true, call: bridging}, "400", "403", noAddress)
	return all
}

// Whatever a server waits for that a person must do, it is held for a while at a time, and is as long in the pool, as it was
// before. In the end it is deployed.
func TestNoServerIsHeldForWhatAPersonMustDo(t *testing.T) {
	for name, tc := range waits() {
		t.Run(name, func(t *testing.T) {
			most := documented(t, tc.from)
			synctest.Test(t, func(t *testing.T) {
				p := newPace(t, strings.Split(pacedRegion, "vm_hosts:")[0])
				p.meets(tc)
				held, times := p.heldInVain()
				if times < rounds {
					t.Errorf("it was given back %d times in %s: %s", times, rounds*time.Hour, conditions.GetMessage(p.get("m"), infrav1.ReadyCondition))
				}
				if n := p.sent(tc.call); n == 0 || n > times+int(held*time.Duration(most)/time.Hour) {
					t.Errorf("MAAS got the call %d times while the server was held for %s", n, held)
				}
				p.MAAS.ClearFaults()
				p.run(time.Hour, func() bool { return p.get("m").Status.Ready })
				if now := p.get("m"); !now.Status.Ready {
					t.Errorf("it is not deployed in the end: %s", conditions.GetMessage(now, infrav1.ReadyCondition))
				}
			})
		})
	}
}

// rounds is how often heldInVain lets a server be given back: the last time, it was given back before.
const rounds = 2

// heldInVain lets time pass until the only server was given back for rounds, and is held again. It returns for how long
// it was held, and how often it was given back. Each round takes less than an hour.
func (p *pace) heldInVain() (held time.Duration, times int) {
	p.Helper()
	const step = 30 * time.Second
	since, was, now := time.Now(), "", p.MAAS.Machines()[0]
	first, ends := now, time.Now().Add(rounds*time.Hour)
	for ; time.Now().Before(ends) && (times < rounds || was != "Allocated"); p.run(step, nil) {
		pooled := now
		now = p.MAAS.Machines()[0]
		is := now.Status
		if is == "Allocated" {
			held += step
		}
		lasted := time.Since(since)
		switch {
		case is == "Allocated" && was == is && lasted > metal.HoldAtMost+2*report.MendRetry:
			p.Fatalf("it is held for %s: %s", lasted, conditions.GetMessage(p.get("m"), infrav1.ReadyCondition))
		case is == was:
			continue
		case is == "Ready" && held > 0:
			times++
		case was == "Ready" && times > 0 && lasted < metal.BackAtLeast-step:
			p.Errorf("it was in the pool for %s", lasted)
		case was == "Ready" && times > 0 && !isAsBefore(first, pooled):
			p.Errorf("in the pool it is %+v, and it was %+v", pooled, first)
		}
		since, was = time.Now(), is
	}
	return held, times
}

// isAsBefore reports whether what others get of a server in the pool is as it was.
func isAsBefore(was, now simulator.MachineSnapshot) bool {
	return equality.Semantic.DeepEqual(was.Storage, now.Storage) && equality.Semantic.DeepEqual(was.Tags, now.Tags) &&
		fmt.Sprint(was.Interfaces) == fmt.Sprint(now.Interfaces)
}

// What MAAS has begun to install may have written user data to a server's disks: others get it erased as the spec says.
func TestAServerWhoseDeploymentBeganIsErasedBeforeOthersGetIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(t, strings.Split(pacedRegion, "vm_hosts:")[0])
		p.meets(obstacle{spec: infrav1.MaasMachineSpec{Release: infrav1.MachineRelease{Erase: infrav1.EraseQuick}}})
		server := func() simulator.MachineSnapshot { return p.MAAS.Machines()[0] }
		p.run(time.Hour, func() bool { return server().Status == "Deploying" })
		p.run(2*productionActive, nil) // The object has seen that.
		if _, err := p.MAAS.AddFault(simulator.Fault{Method: http.MethodPost, Op: "deploy", Status: http.StatusBadRequest, Body: "no"}); err != nil {
			t.Fatal(err)
		}
		client := p.scopes.Regions()[0].Inventory.Client()
		if _, err := client.AbortMachine(t.Context(), record.ChangeVM.Permit(), server().SystemID, ""); err != nil {
			t.Fatal(err)
		}
		p.run(time.Hour, func() bool { return server().Status == "Ready" })
		if now := server(); now.Status != "Ready" || now.Erased != "quick" {
			t.Errorf("it is %s, and its disks were erased: %q", now.Status, now.Erased)
		}
	})
}

// A server that another user deploys while it is given back is theirs, until a person says otherwise.
func TestAServerThatIsDeployedWhileItIsGivenBackIsNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(t, strings.Split(pacedRegion, "vm_hosts:")[0])
		p.meets(obstacle{spec: bonded, call: onMachine("deploy"), fault: simulator.Fault{Method: http.MethodPost, Op: "deploy", Status: http.StatusBadRequest, Body: "no"}})
		unlinking := simulator.Fault{Method: http.MethodDelete, Endpoint: "nodes/{id}/interfaces/{iface}/", Status: http.StatusForbidden, Body: "no"}
		if _, err := p.MAAS.AddFault(unlinking); err != nil {
			t.Fatal(err)
		}
		p.run(time.Hour, func() bool { return isGivenBackIn(p.get("m")) })
		p.MAAS.ClearFaults()
		server := p.MAAS.Machines()[0]
		client := p.scopes.Regions()[0].Inventory.Client()
		if _, err := client.DeployMachine(t.Context(), record.ChangeVM.Permit(), server.SystemID, maas.DeployParams{AgentName: server.AgentName}); err != nil {
			t.Fatal(err)
		}
		released := p.sent(onMachine("release"))
		p.run(2*time.Hour, nil)
		now := p.get("m")
		if is := p.MAAS.Machines()[0]; is.Status != "Deployed" || isGivenBackIn(now) || p.sent(onMachine("release")) > released {
			t.Errorf("it is %s: %s", is.Status, conditions.GetMessage(now, infrav1.ReadyCondition))
		}
	})
}

func isGivenBackIn(m *infrav1.MaasMachine) bool {
	recorded, err := record.OfMachine(m)
	return err == nil && recorded.GivenBack != nil && recorded.In(life.Undoing)
}

// Without its user data, nothing can be deployed either.
func TestNoServerIsHeldForASecretThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(t, strings.Split(pacedRegion, "vm_hosts:")[0])
		p.meets(obstacle{fault: simulator.Fault{Method: http.MethodPost, Op: "deploy", Status: http.StatusBadRequest, Body: "no"}})
		p.run(3*time.Minute, nil)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: namespace}}
		p.must(p.client.Delete(p.Context(), secret))
		sent := p.sent(onMachine("deploy"))
		p.run(metal.HoldAtMost, nil)
		if now := p.MAAS.Machines()[0].Status; now != "Ready" || p.sent(onMachine("deploy")) > sent {
			t.Errorf("it is %s, and was deployed %d times more", now, p.sent(onMachine("deploy"))-sent)
		}
		if got := conditions.GetReason(p.get("m"), infrav1.ReadyCondition); got != infrav1.WaitingForBootstrapDataReason {
			t.Errorf("the reason is %s", got)
		}
	})
}

// Whatever wakes an object before its retry, MAAS is not asked for a proof of what is not to be sent.
func TestWhoeverIsWokenBeforeItsRetryAsksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(t, "")
		p.meets(obstacle{fault: simulator.Fault{Method: http.MethodPost, Op: "deploy", Status: http.StatusBadRequest, Body: "no"}})
		p.run(3*time.Minute, nil)
		p.MAAS.ResetCalls()
		for range 60 {
			p.wake(job{"MaasMachine", "m"}, 0)
			p.run(2*leastPause, nil)
		}
		if sent := p.sent(onMachine("deploy")); sent == 0 || p.proofs() > sent {
			t.Errorf("MAAS was asked for %d proofs, and to deploy %d times", p.proofs(), sent)
		}
	})
}

// While others have all turns, a machine says what MAAS refused, and not that it waits.
func TestARefusedMachineThatGetsNoTurnSaysWhatWasRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(t, "")
		p.meets(obstacle{fault: simulator.Fault{Method: http.MethodPost, Op: "deploy", Status: http.StatusBadRequest, Body: "no"}})
		p.run(3*time.Minute, nil)
		for range 2 {
			done, err := p.scopes.Regions()[0].Turn(t.Context(), turns.Machines, turns.Deploy)
			if err != nil {
				t.Fatal(err)
			}
			defer done()
		}
		sent, looked := p.sent(onMachine("deploy")), p.looks[job{"MaasMachine", "m"}]
		p.run(5*time.Minute, nil)
		if p.sent(onMachine("deploy")) != sent || p.looks[job{"MaasMachine", "m"}] == looked {
			t.Error("it got a turn, or was not reconciled")
		}
		if got := conditions.GetReason(p.get("m"), infrav1.ReadyCondition); got != infrav1.MAASRefusedReason {
			t.Errorf("the reason is %s: %s", got, conditions.GetMessage(p.get("m"), infrav1.ReadyCondition))
		}
	})
}

// Who runs a workload cluster runs its API server, too. One that responds, and never lists its Nodes, holds up no machine
// of other clusters: nobody waits for it in a turn.
func TestNoTurnIsHeldWhileAWorkloadClusterIsAsked(t *testing.T) {
	for name, spec := range map[string]infrav1.MaasMachineSpec{"bare metal": {}, "VM": aVM} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, asked := newPace(t, ""), 0
				silent := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{Get: func(
					context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption,
				) error {
					asked++
					p.hasAllTurns()
					return apierrors.NewTimeoutError("no list", 0)
				}})
				p.machines.ClusterCache = clustercache.NewFakeClusterCache(silent, client.ObjectKey{Namespace: namespace, Name: "c"}, life.NodeWatch)
				p.meets(obstacle{spec: spec})
				p.run(time.Hour, func() bool { return asked > 0 && p.sent(onMachine("deploy")) > 0 })
				if sent := p.sent(onMachine("deploy")); asked == 0 || sent != 1 {
					t.Errorf("it was asked %d times, and MAAS to deploy %d times", asked, sent)
				}
			})
		})
	}
}

// hasAllTurns checks that nobody has one.
func (p *pace) hasAllTurns() {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), time.Second)
	defer cancel()
	region := p.scopes.Regions()[0]
	hosts, err := region.Machines.LXD().GetAvailableLXDHosts(ctx, lxd.VMSpec{})
	if err != nil {
		p.Error(err)
	}
	lines := []turns.Line{turns.Machines, turns.Machines}
	for _, host := range hosts {
		lines = append(lines, turns.OnHost(guard.Key(host.Key()), host.Name))
	}
	for _, line := range lines {
		done, err := region.Turn(ctx, line, turns.Deploy)
		if err != nil {
			p.Errorf("a turn is held: %v", err)
			continue
		}
		defer done()
	}
}

// meets makes a machine that meets an obstacle.
func (p *pace) meets(o obstacle) {
	p.Helper()
	if o.host {
		cluster := &infrav1.MaasCluster{}
		p.must(p.client.Get(p.Context(), client.ObjectKey{Namespace: namespace, Name: "c"}, cluster))
		cluster.Spec.LXDControlPlaneCluster = true
		p.must(p.client.Update(p.Context(), cluster))
	}
	p.wake(job{"MaasCluster", "c"}, 0)
	p.add("m", o.spec)
	if o.delete {
		p.run(time.Hour, func() bool { return p.get("m").Status.Ready })
		p.must(p.client.Delete(p.Context(), p.get("m")))
		p.wake(job{"MaasMachine", "m"}, 0)
	}
	if o.fault.Method != "" {
		if _, err := p.MAAS.AddFault(o.fault); err != nil {
			p.Fatal(err)
		}
	}
}

// sent returns how many calls of an operation MAAS got, whatever it answered.
func (p *pace) sent(wanted simulator.CallKey) (n int) {
	for key, count := range p.MAAS.Calls().ByKey {
		if key.Status = wanted.Status; key == wanted {
			n += count
		}
	}
	return n
}

// proofs returns how often MAAS was asked who acquired a machine.
func (p *pace) proofs() (n int) {
	for _, call := range p.MAAS.Calls().Log {
		if strings.Contains(call.Query, "agent_name=") {
			n++
		}
	}
	return n
}

// While nothing happens, MAAS is asked for one list a minute, and for little else.
func TestIdleCostsOneListAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(t, strings.Split(pacedRegion, "vm_hosts:")[0])
		p.meets(obstacle{})
		ctx, cancel := context.WithCancel(t.Context())
		keeper := &quarantine.Keeper{Scopes: p.scopes, Interval: quarantine.Interval, Quarantined: quarantine.NewMetric()}
		mirror := &lxdhost.Mirror{
			Base: reconciler.Base{
				Client:   p.client,
				Scopes:   p.scopes,
				Recorder: events.NewFakeRecorder(100),
				Clock:    clock.RealClock{},
			},
			Interval:  productionMirror,
			Namespace: namespace,
		}
		var group sync.WaitGroup
		group.Go(func() { _ = keeper.Start(ctx) })
		group.Go(func() { _ = mirror.Start(ctx) })
		defer group.Wait()
		defer cancel()
		p.run(time.Hour, func() bool { return p.get("m").Status.Ready })
		p.run(time.Hour, nil)
		p.MAAS.ResetCalls()
		p.run(time.Hour, nil)
		calls := p.MAAS.Calls()
		lists := p.sent(simulator.CallKey{Method: http.MethodGet, Endpoint: "machines/"})
		t.Logf("the calls of an idle hour: %v", calls.ByKey)
		figures.Check(t, "idle hour", "lists of machines", lists)
		figures.Check(t, "idle hour", "calls", calls.Total)
		for key := range calls.ByKey {
			if key.Status != http.StatusOK {
				t.Errorf("a call failed: %v", key)
			}
		}
	})
}

// A cache that still has a machine which was given back does not make MAAS be asked for it anew: it may be another user's.
func TestAMachineThatTheCacheStillHasIsNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(t, "")
		p.meets(obstacle{})
		p.run(time.Hour, func() bool { return p.get("m").Status.Ready })
		p.shownAsBefore("m")
		p.must(p.client.Delete(t.Context(), p.get("m")))
		p.run(time.Hour, func() bool { return p.get("m").Name == "" })
		p.MAAS.ResetCalls()
		p.wake(job{"MaasMachine", "m"}, 0)
		p.run(time.Minute, nil)
		if calls := p.MAAS.Calls(); calls.Total > 0 {
			t.Errorf("MAAS was asked: %v", calls.ByKey)
		}
	})
}

// shownAsBefore makes the reconciler of MaasMachines see one as it was before it was gone.
func (p *pace) shownAsBefore(name string) {
	last := p.get(name)
	p.machines.Client = interceptor.NewClient(p.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			err := c.Get(ctx, key, o, options...)
			m, is := o.(*infrav1.MaasMachine)
			switch {
			case !is || key.Name != name:
			case err == nil:
				last = m.DeepCopy()
			case apierrors.IsNotFound(err):
				last.DeepCopyInto(m)
				return nil
			}
			return err
		},
	})
}

// A keeper that rests is woken by what its own process puts into quarantine.
func TestTheKeeperLooksAgainWhenSomethingIsPutThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(t, "")
		p.meets(obstacle{})
		p.run(time.Hour, func() bool { return p.get("m").Status.Ready })
		counted := quarantine.NewMetric()
		keeper := &quarantine.Keeper{Scopes: p.scopes, Interval: quarantine.Interval, Quarantined: counted}
		keeper.Round(t.Context())
		p.MAAS.ResetCalls()
		keeper.Round(t.Context())
		if n := p.MAAS.Calls().Total; n != 0 {
			t.Errorf("nothing is in quarantine, and %d calls were made", n)
		}
		<-time.After(time.Second) // On the fake clock.
		service := p.scopes.Regions()[0].Machines.Quarantine
		id := p.get("m").Spec.SystemID
		if _, err := service.PutByHand(t.Context(), maas.Unrecorded("a test"), id, "a test", time.Hour); err != nil {
			t.Fatal(err)
		}
		keeper.Round(t.Context())
		if n := testutil.ToFloat64(counted); n != 1 {
			t.Errorf("%v machines are in quarantine, want the one that was put there", n)
		}
	})
}

// refused is how many machines wait at once for what MAAS refuses; -args -refused=1000 is what docs/monitoring.md tells.
var refused = flag.Int("refused", 50, "machines that wait for what MAAS refuses")

// However many machines wait, each costs its own retries, and the lists are shared.
func TestManyRefusedMachinesCostTheirRetriesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(t, strings.Replace(pacedRegion, "names: [metal-a]", fmt.Sprintf("prefix: metal, count: %d", *refused), 1))
		p.wake(job{"MaasCluster", "c"}, 0)
		if _, err := p.MAAS.AddFault(simulator.Fault{Op: "deploy", Status: http.StatusBadRequest, Body: "no"}); err != nil {
			t.Fatal(err)
		}
		for i := range *refused {
			p.add(fmt.Sprintf("m%04d", i), infrav1.MaasMachineSpec{})
		}
		const settled, watched = 6 * time.Minute, 3 * time.Minute
		p.run(settled, nil)
		p.MAAS.ResetCalls()
		p.run(watched, nil)
		calls, retries, proofs := p.MAAS.Calls(), p.sent(onMachine("deploy")), p.proofs()
		minutes := int(watched / time.Minute)
		t.Logf("%d refused machines cost %d calls a minute: %d retries, %d proofs, %d others", *refused,
			calls.Total/minutes, retries/minutes, proofs/minutes, (calls.Total-retries-proofs)/minutes)
		if most := *refused * documented(t, infrav1.MAASRefusedReason) * minutes / 60; retries > most || retries < *refused {
			t.Errorf("%d retries, want one of each machine and at most %d", retries, most)
		}
		// One retry may be under way at each end.
		if shared := 2 * (*refused/200 + 1) * int(watched/productionActive); proofs > retries+1 || calls.Total-retries-proofs > shared {
			t.Errorf("%d proofs before %d retries, and of others more than %d: %v", proofs, retries, shared, calls.ByKey)
		}
	})
}
