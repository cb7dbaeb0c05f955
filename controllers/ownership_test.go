// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maascluster"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

const otherKey = "other:token:secret"

// withOtherUser adds a user of the same MAAS, whose key is otherKey.
func withOtherUser(admin bool) func(*world) {
	return func(w *world) {
		w.region = strings.Replace(w.region, "users: [", fmt.Sprintf("users: [{name: other, admin: %v, keys: [%q]}, ", admin, otherKey), 1)
	}
}

// as returns MAAS as the user of a key sees it.
func (w *world) as(key string) *maas.Client {
	w.t.Helper()
	return simtest.Client(w.t, w.ofPeople(), key)
}

func (w *world) named(hostname string) string {
	w.t.Helper()
	for _, m := range w.maas.Machines() {
		if m.Hostname == hostname {
			return m.SystemID
		}
	}
	w.t.Fatalf("MAAS has no machine %s:\n%s", hostname, w.machines())
	return ""
}

// holds checks that the object is held for a reason, also after a retry.
func (w *world) holds(m *infrav1.MaasMachine, reason string) {
	w.t.Helper()
	for range 3 {
		w.eventually(m, "held by "+reason, func() bool { return conditions.GetReason(m, infrav1.MachineDeployedCondition) == reason })
		w.poke(m)
	}
}

// inState waits until MAAS has a machine in a state.
func (w *world) inState(systemID, status string) {
	w.t.Helper()
	w.await(systemID+" is "+status, w.cluster, func(context.Context) bool {
		m, _ := w.maas.Machine(systemID)
		return m.Status == status
	})
}

// Another user of the same MAAS acquires our VM between two of our calls: it belongs to the user to whom MAAS gave it.
func TestAVMIsClaimedBeforeAnotherUserGetsIt(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, withOtherUser(true))
	other, once := w.as(otherKey), sync.Once{}
	var taken error
	w.maas.SetHook(func(call simulator.Call, phase simulator.Phase) error {
		if phase == simulator.Before && call.Op == "deploy" {
			once.Do(func() {
				_, taken = other.AllocateMachine(t.Context(), maas.Unrecorded("a test"), maas.AllocateParams{AgentName: "juju", SystemID: call.SystemID})
			})
		}
		return nil
	})
	m := w.deployedMachine("cp-0", true, vm)
	if taken == nil {
		t.Error("another user acquired a VM that was composed for us")
	}
	w.delete(m)
	w.noVMs()
}

// While its deployment is refused, for days if need be, no other user can acquire the VM.
func TestAVMStaysOursWhileItsDeploymentIsRefused(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, withOtherUser(true))
	fault, err := w.maas.AddFault(simulator.Fault{Op: "deploy", Status: http.StatusBadRequest, Body: `{"distro_series": ["not a valid distro_series."]}`})
	if err != nil {
		t.Fatal(err)
	}
	m := w.newMachine("md-0", false, vm)
	w.refused(m, infrav1.MachineDeployedCondition, infrav1.MAASRefusedReason)
	got, err := w.as(otherKey).AllocateMachine(t.Context(), maas.Unrecorded("a test"), maas.AllocateParams{AgentName: "juju", MinMemory: 2048})
	if err == nil && got.SystemID == m.Spec.SystemID {
		t.Fatal("another user acquired it")
	}
	w.maas.RemoveFault(fault)
	w.poke(m)
	w.deployed(m)
}

// A VM of ours that a person released, and another user acquired since, belongs to the other user: it is neither
// deployed nor deleted, and no endpoint contains its address.
func TestAVMThatAnotherUserAcquiredIsTheirs(t *testing.T) {
	t.Parallel()
	for name, deploy := range map[string]bool{"allocated": false, "deployed": true} {
		t.Run(name, func(t *testing.T) {
			w, _ := clusterWorld(t, withOtherUser(true))
			// A VM that was not commissioned is New when it was released, and can't be acquired.
			m := w.deployedMachine("cp-0", true, withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.LXDConfig = &infrav1.LXDMachineConfig{Commission: true} }))
			w.eventually(m, "in the endpoint", func() bool { return m.Status.DNSAttached })
			id := m.Spec.SystemID
			w.maasCall(http.MethodPost, "machines/"+id+"/?op=release", nil)
			w.inState(id, "Ready")
			other := w.as(otherKey)
			if _, err := other.AllocateMachine(t.Context(), maas.Unrecorded("a test"), maas.AllocateParams{AgentName: "juju", SystemID: id}); err != nil {
				t.Fatal(err)
			}
			if deploy {
				if _, err := other.DeployMachine(t.Context(), maas.Unrecorded("a test"), id, maas.DeployParams{DistroSeries: "ubuntu/jammy"}); err != nil {
					t.Fatal(err)
				}
			}
			w.eventually(m, "seen to be another user's", func() bool {
				return !conditions.IsTrue(m, infrav1.MachineDeployedCondition) && len(m.Status.Addresses) == 0
			})
			w.delete(m)
			if left, _ := w.maas.Machine(id); left.AgentName != "juju" || len(w.vmsOnHosts()) != 1 {
				t.Errorf("MAAS has %+v, and the hosts have %v; want the other user's VM", left, w.vmsOnHosts())
			}
		})
	}
}

// A machine that was deployed by a user of MAAS whose key we no longer use can't be annotated, and is proven each time.
func TestAMachineOfAnotherMAASUserIsProvenEachTime(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, withOtherUser(true))
	m := w.deployedMachine("md-0", false, infrav1.MaasMachineSpec{})
	id := m.Spec.SystemID
	w.setKey(otherKey)
	w.await("it can't be annotated with the new key", m, func(context.Context) bool {
		// With the old key it is annotated as it should be.
		w.maasCall(http.MethodPost, "machines/"+id+"/?op=set_workload_annotations", url.Values{"capmaas-management": {"another"}})
		return slices.ContainsFunc(w.maas.Calls().Log, func(call simulator.Call) bool {
			return call.Op == "set_workload_annotations" && call.User == "other"
		})
	})
	w.eventually(m, "deployed all the same", func() bool { return conditions.IsTrue(m, infrav1.MachineDeployedCondition) })
	w.maasCall(http.MethodPost, "machines/"+id+"/?op=release", nil)
	w.inState(id, "Ready")
	w.allocateAs("something-else", id)
	w.maasCall(http.MethodPost, "machines/"+id+"/?op=deploy", url.Values{"distro_series": {"ubuntu/jammy"}})
	w.inState(id, "Deployed")
	w.refused(m, infrav1.MachineDeployedCondition, infrav1.MachineNotOursReason)
}

// A MaasMachine for a VM that names another machine would delete that machine with its disks.
func TestAnLXDMachineNeverDeletesWhatWasNotComposedForIt(t *testing.T) {
	t.Parallel()
	for name, choose := range map[string]func(*world) string{
		"bare metal": func(w *world) string { return w.named("metal-a") },
		"a person's VM": func(w *world) string {
			id, err := w.maasClient().Compose(w.t.Context(), maas.Unrecorded("a test"), w.hosts()[0].ID, maas.ComposeParams{
				Hostname: "persons-vm", Cores: 1, Memory: 2048, Storage: "root:10", SkipCommissioning: true, ZoneID: 1,
			})
			if err != nil {
				w.t.Fatal(err)
			}
			return id
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := clusterWorld(t)
			id := choose(w)
			before := w.maas.State()
			m := w.newMachine("md-0", false, withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.SystemID = id }))
			w.refused(m, infrav1.MachineDeployedCondition, infrav1.MachineNotOursReason)
			w.delete(m)
			w.unchanged(before)
		})
	}
}

// A key with fewer rights makes nothing count as gone: neither running machines nor those being deleted.
func TestAKeyThatSeesLessLosesNothing(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]infrav1.MaasMachineSpec{"bare metal": {}, "VM": vm} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, withOtherUser(false))
			before := w.maas.State()
			cluster := w.provisionedCluster()
			m := w.deployedMachine("md-0", false, spec)
			addresses := len(m.Status.Addresses)
			w.setKey(otherKey)
			w.holds(m, infrav1.CredentialsInvalidReason)
			if m.Status.FailureReason != "" || len(m.Status.Addresses) != addresses {
				t.Errorf("the machine is taken for lost: %+v", m.Status)
			}
			w.beginDeletion(m)
			w.holds(m, infrav1.CredentialsInvalidReason)
			w.setKey("admin:token:secret")
			w.goes(m)
			w.delete(cluster)
			w.unchanged(before)
		})
	}
}

// A machine that MAAS hides, because a resource pool is no longer the user's, still exists (GET machines/{id}/ is a
// 403).
func TestAHiddenMachineIsNotLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.maas.State()
	cluster := w.provisionedCluster()
	m := w.deployedMachine("md-0", false, infrav1.MaasMachineSpec{})
	var faults []string
	for _, fault := range []simulator.Fault{
		{Method: http.MethodGet, Endpoint: "machines/", NoOp: true, Status: http.StatusOK, Body: "[]"},
		{Method: http.MethodGet, Endpoint: "machines/{id}/", NoOp: true, Status: http.StatusForbidden},
	} {
		id, err := w.maas.AddFault(fault)
		if err != nil {
			t.Fatal(err)
		}
		faults = append(faults, id)
	}
	w.holds(m, infrav1.MachineHiddenReason)
	if m.Status.FailureReason != "" {
		t.Errorf("the machine is taken for lost: %s", m.Status.FailureMessage)
	}
	w.beginDeletion(m)
	w.holds(m, infrav1.MachineHiddenReason)
	for _, id := range faults {
		w.maas.RemoveFault(id)
	}
	w.goes(m)
	w.delete(cluster)
	w.unchanged(before)
}

// A list without a machine is no proof that it is gone, nor that it is another's.
func TestAnEmptyListLosesNoMachine(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]infrav1.MaasMachineSpec{"bare metal": {}, "VM": vm} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			before := w.maas.State()
			cluster := w.provisionedCluster()
			m := w.deployedMachine("md-0", false, spec)
			fault, err := w.maas.AddFault(simulator.Fault{Method: http.MethodGet, Endpoint: "machines/", NoOp: true, Status: http.StatusOK, Body: "[]"})
			if err != nil {
				t.Fatal(err)
			}
			lists := w.lists()
			w.await("some lists were empty", m, func(context.Context) bool { return w.lists() > lists+3 })
			w.beginDeletion(m)
			w.holds(m, infrav1.MAASUnavailableReason)
			if now, _ := w.maas.Machine(m.Spec.SystemID); now.Status != "Deployed" {
				t.Errorf("the machine was changed:\n%s", w.machines())
			}
			w.maas.RemoveFault(fault)
			w.goes(m)
			w.delete(cluster)
			w.unchanged(before)
		})
	}
}

// lists counts the lists of machines that MAAS received.
func (w *world) lists() (n int) {
	for _, call := range w.maas.Calls().Log {
		if call.Method == http.MethodGet && call.Endpoint == "machines/" {
			n++
		}
	}
	return n
}

// Many machines that vanish at once do not count as gone until a person confirms it.
func TestMachinesThatVanishTogetherAreHeld(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	var machines []*infrav1.MaasMachine
	for i := range 3 {
		m := w.deployedMachine(fmt.Sprintf("md-%d", i), false, vm)
		machines = append(machines, m)
	}
	w.stopManager() // They vanish one by one; and a manager that starts later must see it, too.
	for _, m := range machines {
		w.maasCall(http.MethodDelete, "machines/"+m.Spec.SystemID+"/", nil)
	}
	w.startManager()
	w.beginDeletion(machines[0])
	for _, m := range machines {
		w.holds(m, infrav1.MachinesVanishedReason)
		if m.Status.FailureReason != "" {
			t.Errorf("%s is to be replaced: %s", m.Name, m.Status.FailureMessage)
		}
	}
	w.annotate(cluster, infrav1.AcceptVanishedAnnotation, new(string))
	w.goes(machines[0])
	w.refused(machines[1], infrav1.MachineDeployedCondition, infrav1.MachineMissingReason)
}

// The owner id is made once, also by a reconciler whose cache lags behind its own write.
func TestAStaleCacheMakesNoSecondOwnerID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	namespace := w.namespace + "-other" // The manager does not reconcile it.
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	w.namespace = namespace
	w.createCredentials()
	cluster := w.newCluster()
	key := client.ObjectKeyFromObject(cluster)
	base, err := client.NewWithWatch(apiConfig, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	var stale *infrav1.MaasCluster
	lagging := interceptor.NewClient(base, interceptor.Funcs{Get: func(
		ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption,
	) error {
		into, ok := object.(*infrav1.MaasCluster)
		if !ok || stale == nil {
			return c.Get(ctx, key, object, options...)
		}
		stale.DeepCopyInto(into)
		return nil
	}})
	registry := inventory.NewRegistry(inventory.Options{ActiveInterval: time.Hour, IdleInterval: time.Hour, Notify: func(string) {}})
	go func() { _ = registry.Start(t.Context()) }()
	r := &maascluster.Reconciler{
		Base: reconciler.Base{
			Client:    lagging,
			APIReader: base,
			Scopes:    &scope.Factory{Client: lagging, Registry: registry},
			Recorder:  events.NewFakeRecorder(100),
			Records:   &record.Records{Client: lagging, SettleTime: time.Second},
			Clock:     clock.RealClock{},
		},
		ClusterCache: clustercache.NewFakeEmptyClusterCache(),
	}
	before := &infrav1.MaasCluster{}
	for cluster.Annotations[infrav1.OwnerIDAnnotation] == "" {
		w.must(base.Get(t.Context(), key, before))
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
		w.must(base.Get(t.Context(), key, cluster))
	}
	want := cluster.Annotations[infrav1.OwnerIDAnnotation]
	stale = before
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err == nil {
		t.Error("the reconcile did not notice that its cache lags")
	}
	w.must(base.Get(t.Context(), key, cluster))
	if got := cluster.Annotations[infrav1.OwnerIDAnnotation]; got != want {
		t.Errorf("the owner id was %s, and is %s", want, got)
	}
}

// An owner id that is lost (kubectl replace), changed or garbled by hand disowns nothing: everything is held until it
// is restored.
func TestALostOwnerIDHoldsEverything(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ id, reason string }{
		"lost":    {"", infrav1.OwnerIDLostReason},
		"changed": {"abcdefghijkl", infrav1.OwnerIDLostReason},
		"garbled": {"x/y", infrav1.OwnerIDInvalidReason},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			before := w.maas.State()
			cluster := w.provisionedCluster()
			m := w.deployedMachine("cp-0", true, vm)
			w.eventually(m, "in the endpoint", func() bool { return m.Status.DNSAttached })
			id := cluster.Annotations[infrav1.OwnerIDAnnotation]
			if tc.id == "" {
				w.annotate(cluster, infrav1.OwnerIDAnnotation, nil)
				w.eventually(cluster, "held", func() bool { return conditions.GetReason(cluster, infrav1.ReadyCondition) == tc.reason })
			} else {
				w.annotate(cluster, infrav1.OwnerIDAnnotation, &tc.id)
			}
			w.holds(m, tc.reason)
			w.stored(m)
			if m.Status.FailureReason != "" {
				t.Errorf("the machine is taken for lost: %s", m.Status.FailureMessage)
			}
			if tc.reason == infrav1.OwnerIDLostReason && !strings.Contains(conditions.GetMessage(m, infrav1.MachineDeployedCondition), id) {
				t.Errorf("the message %q does not contain the owner id", conditions.GetMessage(m, infrav1.MachineDeployedCondition))
			}
			w.beginDeletion(m)
			w.holds(m, tc.reason)
			w.annotate(cluster, infrav1.OwnerIDAnnotation, &id)
			w.goes(m)
			w.delete(cluster)
			w.unchanged(before)
		})
	}
}

// A tenant brings an owner id that is made to collide with another cluster's names, or the very id for a younger
// cluster.
func TestAForgedOwnerIDTakesNothing(t *testing.T) {
	t.Parallel()
	const name = "production-eu-west-control-plane-with-a-long-name-x7k2m"
	w, cluster := clusterWorld(t, func(w *world) { w.second = w.namespace + "-tenant" })
	m := w.deployedMachine(name, true, vm)
	w.eventually(m, "in the endpoint", func() bool { return m.Status.DNSAttached })
	before := w.maas.State()
	other := w.copyInto()
	forged := other.newCluster(func(c *infrav1.MaasCluster) {
		c.Annotations = map[string]string{infrav1.OwnerIDAnnotation: cluster.Annotations[infrav1.OwnerIDAnnotation] + "/" + name}
	})
	other.eventually(forged, "refused", func() bool {
		return conditions.GetReason(forged, infrav1.FailureDomainsReadyCondition) == infrav1.OwnerIDInvalidReason
	})
	other.patchStatus(other.cluster, func() { other.cluster.Status.Initialization.InfrastructureProvisioned = new(bool) })
	thief := other.newMachine(name[:54], true, vm)
	other.refused(thief, infrav1.MachineDeployedCondition, infrav1.OwnerIDInvalidReason)
	other.delete(thief)
	w.unchanged(before)
}

// A machine of choice must meet the spec: Cluster API's contract requires it to be in the Machine's failure domain.
func TestAMachineOfChoiceMustFit(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, func(w *world) { w.region = "pools: [{name: gold}]\ntags: [{name: gpu}]\n" + w.region })
	before := w.maas.State()
	for name, spec := range map[string]infrav1.MaasMachineSpec{
		"zone": {FailureDomain: "zone-b"}, "cores": {MinCPU: 64}, "memory": {MinMemory: 1 << 20}, "disk": {MinDiskSize: 5000},
		"tag": {Tags: []string{"gpu"}}, "pool": {ResourcePool: "gold"},
	} {
		spec.SystemID = w.named("metal-a")
		m := w.newMachine("md-"+name, false, spec)
		w.refused(m, infrav1.MachineDeployedCondition, infrav1.MachineDoesNotFitReason)
		w.delete(m)
	}
	w.unchanged(before)
}
