// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/orphanaudit"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

const thisManagementCluster, anotherManagementCluster = "uid-here", "uid-elsewhere"

// auditBed is a world with more machines, and an auditor whose audits the test calls one by one.
type auditBed struct {
	*world
	*orphanaudit.Auditor
	events  *events.FakeRecorder
	metrics *prometheus.Registry

	mu  sync.Mutex
	log []string
}

func newAuditBed(t *testing.T) *auditBed {
	t.Helper()
	w := newWorld(t, func(w *world) {
		w.region = strings.Replace(w.region, "names: [metal-a]", "names: [metal-a, metal-c, metal-d, metal-e]", 1)
	})
	registry := startRegistry(t)
	b := &auditBed{world: w, events: events.NewFakeRecorder(100), metrics: prometheus.NewRegistry()}
	b.Auditor = &orphanaudit.Auditor{
		Base: reconciler.Base{
			Client:   w.client,
			Recorder: b.events,
			Clock:    clock.RealClock{},
			Scopes: &scope.Factory{
				Client: w.client, Registry: registry, Manager: scope.ManagerCredentials{Dir: t.TempDir()},
			},
		},
		Namespace:    w.namespace,
		Orphans:      orphanaudit.NewMetric(),
		Interval:     10 * time.Millisecond,
		ManagementID: thisManagementCluster,
	}
	b.metrics.MustRegister(b.Orphans)
	return b
}

// audit runs one audit, and returns its lists of machines in MAAS.
func (b *auditBed) audit() []string {
	b.t.Helper()
	before := b.maas.Calls()
	last := 0
	if len(before.Log) > 0 {
		last = before.Log[len(before.Log)-1].Number
	}
	b.Audit(logr.NewContext(b.t.Context(), funcr.New(func(_, args string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.log = append(b.log, args)
	}, funcr.Options{})))
	var lists []string
	for _, call := range b.maas.Calls().Log {
		// The world's manager lists machines by id, hostname or agent name.
		if call.Number > last && call.Endpoint == "machines/" && call.Method == http.MethodGet && call.Query == "" {
			lists = append(lists, call.Endpoint)
		}
	}
	return lists
}

// newEvents returns the events since the last call.
func (b *auditBed) newEvents() []string {
	var list []string
	for {
		select {
		case event := <-b.events.Events:
			list = append(list, event)
		default:
			return list
		}
	}
}

// orphaned returns the metric, by kind and doubt.
func (b *auditBed) orphaned() map[string]float64 {
	b.t.Helper()
	families, err := b.metrics.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	values := map[string]float64{}
	for _, metric := range families[0].GetMetric() {
		labels := map[string]string{}
		for _, pair := range metric.GetLabel() {
			labels[pair.GetName()] = pair.GetValue()
		}
		values[labels["kind"]+" "+labels["doubt"]] = metric.GetGauge().GetValue()
	}
	return values
}

func (b *auditBed) region() *maas.Client {
	b.t.Helper()
	return simtest.Client(b.t, b.ofPeople(), "admin:token:secret")
}

// lose removes MaasMachines while their cluster is paused, so that their machines stay behind in MAAS.
func (b *auditBed) lose(machines ...*infrav1.MaasMachine) {
	b.t.Helper()
	b.pause(true)
	for _, m := range machines {
		b.change(m, func() { m.Finalizers = nil })
		b.delete(m)
	}
	b.pause(false)
}

func (b *auditBed) pause(paused bool) {
	b.t.Helper()
	b.change(b.cluster, func() { b.cluster.Spec.Paused = ptr.To(paused) })
	list := &infrav1.MaasMachineList{}
	b.must(b.client.List(b.t.Context(), list, client.InNamespace(b.namespace)))
	for i := range list.Items {
		m := &list.Items[i]
		b.eventually(m, "aware of the pause", func() bool {
			return slices.ContainsFunc(m.Status.Conditions, func(c metav1.Condition) bool {
				return c.Type == clusterv1.PausedCondition && (c.Status == "True") == paused
			})
		})
	}
}

func (b *auditBed) change(object client.Object, change func()) {
	b.t.Helper()
	before := object.DeepCopyObject().(client.Object)
	change()
	b.must(b.client.Patch(b.t.Context(), object, client.MergeFrom(before)))
}

// foreign acquires a machine as another client does, with these annotations.
func (b *auditBed) foreign(annotations map[string]string) *maas.Machine {
	b.t.Helper()
	c := b.region()
	m, err := c.AllocateMachine(b.t.Context(), maas.Unrecorded("a test"), maas.AllocateParams{
		AgentName:    "capmaas/" + annotations[ownership.AnnotationOwner] + "/" + "gone",
		NotOnVMHosts: []string{"lxd-a", "lxd-b", "lxd-c"},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	if len(annotations) > 0 {
		if m, err = c.SetWorkloadAnnotations(b.t.Context(), maas.Unrecorded("a test"), m.SystemID, annotations); err != nil {
			b.t.Fatal(err)
		}
	}
	return m
}

func marks(owner, object, management string) map[string]string {
	return map[string]string{ownership.AnnotationOwner: owner, ownership.AnnotationMachine: object, ownership.AnnotationManagement: management}
}

func TestTheAuditReportsOrphansOnceAndNothingElse(t *testing.T) {
	t.Parallel()
	b := newAuditBed(t)
	cluster := b.newCluster()
	b.provisioned(cluster)
	metal, lxd := b.newMachine("md-0", false, infrav1.MaasMachineSpec{}), b.newMachine("cp-0", true, vm)
	lostMetal, lostVM := b.newMachine("md-1", false, infrav1.MaasMachineSpec{}), b.newMachine("cp-1", true, vm)
	for _, m := range []*infrav1.MaasMachine{metal, lxd, lostMetal, lostVM} {
		b.deployed(m)
	}
	b.foreign(nil)
	b.foreign(marks("someotherone", b.namespace+".gone", anotherManagementCluster))

	if lists := b.audit(); len(lists) != 1 {
		t.Errorf("an audit with nothing to find asks for all machines %d times, want once", len(lists))
	}
	b.lose(lostMetal, lostVM)
	if lists := b.audit(); len(lists) != 1 {
		t.Errorf("the first audit that finds something asks for all machines %d times, want once", len(lists))
	}
	if emitted := b.newEvents(); len(emitted) > 0 {
		t.Errorf("reported when seen for the first time: %q", emitted)
	}

	b.audit()
	emitted := b.newEvents()
	for _, m := range []*infrav1.MaasMachine{lostMetal, lostVM} {
		if !slices.ContainsFunc(emitted, func(event string) bool { return strings.Contains(event, m.Spec.SystemID) }) {
			t.Errorf("%s was lost, and is not reported: %q", m.Spec.SystemID, emitted)
		}
	}
	if len(emitted) != 2 || !strings.HasPrefix(emitted[0], "Warning "+"MachineOrphaned") {
		t.Errorf("want one warning for each of two orphans, got %q", emitted)
	}
	want := map[string]float64{"bare-metal no": 1, "lxd no": 1, "bare-metal yes": 0, "lxd yes": 0}
	if diff := cmp.Diff(want, b.orphaned()); diff != "" {
		t.Errorf("the metric differs (-want +got):\n%s", diff)
	}

	if b.audit(); len(b.newEvents()) > 0 {
		t.Error("it is reported again though nothing changed")
	}
	if _, err := b.region().ReleaseMachine(t.Context(), maas.UnrecordedRelease("a test"), lostMetal.Spec.SystemID, maas.ReleaseParams{}); err != nil {
		t.Fatal(err)
	}
	b.audit()
	want["bare-metal no"] = 0
	if diff := cmp.Diff(want, b.orphaned()); diff != "" {
		t.Errorf("once a machine is released the metric differs (-want +got):\n%s", diff)
	}
	if len(b.log) > 0 {
		t.Errorf("what has an event needs no line in the log: %q", b.log)
	}
	for _, m := range []*infrav1.MaasMachine{metal, lxd, lostVM} {
		if seen, ok := b.maas.Machine(m.Spec.SystemID); !ok || seen.Status != "Deployed" {
			t.Errorf("the audit touched machine %s: %+v", m.Spec.SystemID, seen)
		}
	}
}

// It may be ours, which no event on a MaasCluster can say.
func TestTheAuditTellsOfAMachineThatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := newAuditBed(t)
	b.provisioned(b.newCluster())
	b.maas.ChooseFaults(func(call simulator.Call) *simulator.Fault {
		if call.Method != http.MethodGet || call.Endpoint != "machines/" || call.Query != "" {
			return nil
		}
		return &simulator.Fault{Status: http.StatusOK, Body: `[{"system_id": "whole"}, {"system_id": "odd", "cpu_count": "many"}]`}
	})
	for range 4 {
		b.audit()
	}
	want := map[string]float64{"bare-metal no": 0, "lxd no": 0, "bare-metal yes": 1, "lxd yes": 0}
	if diff := cmp.Diff(want, b.orphaned()); diff != "" {
		t.Errorf("the metric differs (-want +got):\n%s", diff)
	}
	if emitted := b.newEvents(); len(b.log) != 1 || !strings.Contains(b.log[0], "odd") || len(emitted) > 0 {
		t.Errorf("the log says %q, want it once; events: %q", b.log, emitted)
	}
}

func TestTheAuditKnowsAMachineOfAGoneMaasClusterByTheManagementCluster(t *testing.T) {
	t.Parallel()
	b := newAuditBed(t)
	b.provisioned(b.newCluster())
	left := b.foreign(marks("goneowner", b.namespace+".gone", thisManagementCluster))
	b.foreign(marks("goneowner", "othernamespace.gone", thisManagementCluster))
	for range 3 {
		b.audit()
	}
	if emitted := b.newEvents(); len(emitted) > 0 {
		t.Errorf("there is no object for these events: %q", emitted)
	}
	if len(b.log) != 1 || !strings.Contains(b.log[0], left.SystemID) || !strings.Contains(b.log[0], left.Hostname) {
		t.Errorf("want one line about %s (%s), got %q", left.Hostname, left.SystemID, b.log)
	}
	want := map[string]float64{"bare-metal no": 0, "lxd no": 0, "bare-metal yes": 1, "lxd yes": 0}
	if diff := cmp.Diff(want, b.orphaned()); diff != "" {
		t.Errorf("the metric differs (-want +got):\n%s", diff)
	}
}

// The auditor runs until it is stopped.
func TestAPausedClusterHasNoOrphans(t *testing.T) {
	t.Parallel()
	b := newAuditBed(t)
	cluster := b.newCluster()
	b.provisioned(cluster)
	m := b.newMachine("md-0", false, infrav1.MaasMachineSpec{})
	b.deployed(m)
	b.lose(m)
	b.pause(true)
	for range 3 {
		b.audit()
	}
	if emitted := b.newEvents(); len(emitted) > 0 {
		t.Errorf("reported while the cluster is paused, as it is while it is moved: %q", emitted)
	}
	b.pause(false)
	if !b.NeedLeaderElection() {
		t.Error("every manager would audit, not only the leader")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Start(ctx) }()
	b.await("the orphan is reported", m, func(context.Context) bool { return len(b.newEvents()) > 0 })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestOrphansStayReportedWhileMAASCannotBeRead(t *testing.T) {
	t.Parallel()
	b := newAuditBed(t)
	b.provisioned(b.newCluster())
	b.foreign(marks("goneowner", b.namespace+".gone", thisManagementCluster))
	b.audit()
	b.audit()
	b.fault(simulator.Fault{Method: http.MethodGet, Endpoint: "machines/", Status: http.StatusServiceUnavailable})
	for range 3 {
		b.audit()
	}
	if n := b.orphaned()["bare-metal yes"]; n != 1 {
		t.Errorf("the metric counts %v while MAAS can't be read, want what it was before", n)
	}
	if len(b.log) != 2 {
		t.Errorf("want one line about the orphan and one about MAAS, got %q", b.log)
	}
}

func TestAMachineThatAnotherManagementClusterMarkedIsMarkedAnew(t *testing.T) {
	t.Parallel()
	b := newAuditBed(t)
	b.provisioned(b.newCluster())
	m := b.newMachine("md-0", false, infrav1.MaasMachineSpec{})
	b.deployed(m)
	marked := func(context.Context) bool {
		seen, _ := b.maas.Machine(m.Spec.SystemID)
		return seen.Annotations[ownership.AnnotationManagement] == thisManagementCluster
	}
	b.await("it is marked", m, marked)
	_, err := b.region().SetWorkloadAnnotations(t.Context(), maas.Unrecorded("a test"), m.Spec.SystemID, map[string]string{ownership.AnnotationManagement: anotherManagementCluster})
	if err != nil {
		t.Fatal(err)
	}
	b.await("it is marked anew", m, marked)
}

// startRegistry runs inventories that do not poll on their own.
func startRegistry(t *testing.T) *inventory.Registry {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	registry := inventory.NewRegistry(inventory.Options{
		ActiveInterval: time.Hour, IdleInterval: time.Hour, Logger: logr.Discard(), Notify: func(string) {},
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = registry.Start(ctx) // It ends with the context.
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return registry
}
