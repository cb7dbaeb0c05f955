// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	kcp "sigs.k8s.io/cluster-api/controlplane/kubeadm/pkg"
	"sigs.k8s.io/cluster-api/core/reconcilers/machineset"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/plan"
)

// machineSets is Cluster API's own reconciler of MachineSets. It reads from a fake, and what it deletes goes to a server
// that writes down the names.
type machineSets struct {
	manager ctrl.Manager

	mu      sync.Mutex
	deleted []string
}

func newMachineSets(t *testing.T) *machineSets {
	t.Helper()
	m := &machineSets{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete { // The rest are events.
			m.mu.Lock()
			defer m.mu.Unlock()
			m.deleted = append(m.deleted, path.Base(r.URL.Path))
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Success"}`)
	}))
	t.Cleanup(server.Close)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, infrav1.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{clusterv1.GroupVersion})
	for kind := range scheme.KnownTypes(clusterv1.GroupVersion) {
		mapper.Add(clusterv1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	var err error
	m.manager, err = ctrl.NewManager(&rest.Config{Host: server.URL}, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var errStays = errors.New("the Machines stay as they are")

// order returns the names of Machines in the order in which Cluster API deletes them. Those that are being deleted are
// not among them.
func (m *machineSets) order(t *testing.T, order string, machines []*clusterv1.Machine) []string {
	t.Helper()
	set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "ms", Namespace: "default", UID: "ms", Finalizers: []string{clusterv1.MachineSetFinalizer}}}
	set.Spec.ClusterName, set.Spec.Replicas, set.Spec.Deletion.Order = "c", new(int32), clusterv1.MachineSetDeletionOrder(order)
	set.Spec.Template.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: infrav1.GroupVersion.Group, Kind: "MaasMachineTemplate", Name: "t",
	}
	set.Spec.Selector.MatchLabels = map[string]string{clusterv1.ClusterNameLabel: "c"}
	conditions.Set(set, metav1.Condition{Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotPausedReason})
	objects := []client.Object{
		set, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default"}},
		&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
			Name: "maasmachines." + infrav1.GroupVersion.Group, Labels: map[string]string{clusterv1.GroupVersion.String(): infrav1.GroupVersion.Version},
		}},
	}
	for _, machine := range machines {
		machine = machine.DeepCopy()
		machine.Namespace, machine.Labels, machine.Finalizers = "default", set.Spec.Selector.MatchLabels, []string{clusterv1.MachineFinalizer}
		machine.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, clusterv1.GroupVersion.WithKind("MachineSet"))}
		objects = append(objects, machine)
	}
	scheme := m.manager.GetScheme()
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(set).WithInterceptorFuncs(interceptor.Funcs{
		// The Machines stay as they are. Cluster API goes on, and reports the errors at the end.
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if _, isMachine := o.(*clusterv1.Machine); isMachine {
				return errStays
			}
			return c.Patch(ctx, o, patch, opts...)
		},
	}).Build()
	r := &machineset.Reconciler{Client: c, APIReader: c, ClusterCache: clustercache.NewFakeEmptyClusterCache()}
	skip := true
	if err := r.SetupWithManager(t.Context(), m.manager, controller.Options{SkipNameValidation: &skip}); err != nil {
		t.Fatal(err)
	}
	_, failed := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(set)})
	m.mu.Lock()
	defer m.mu.Unlock()
	deleted := m.deleted
	m.deleted = nil
	if !errors.Is(failed, errStays) && len(deleted) > 0 {
		t.Errorf("Cluster API did not come to the Machines: %v", failed)
	}
	return deleted
}

// randomMachine returns a Machine of any age, that may be marked, sick, updated in place or being deleted.
func randomMachine(r *rand.Rand, name string, now time.Time) *clusterv1.Machine {
	oneIn := func(n int) bool { return r.IntN(n) == 0 }
	status := func() metav1.ConditionStatus {
		return []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionTrue, metav1.ConditionUnknown, metav1.ConditionFalse}[r.IntN(4)]
	}
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	// Cluster API does not tell apart what is older than about a year; younger ones have an age of their own.
	age := time.Duration(r.IntN(300*24)) * time.Hour
	if oneIn(3) {
		age = time.Duration(370+r.IntN(1000)) * 24 * time.Hour
	}
	m.CreationTimestamp = metav1.NewTime(now.Add(-age).Truncate(time.Second))
	if !oneIn(6) {
		m.Status.NodeRef.Name = name
	}
	for _, condition := range []string{clusterv1.MachineNodeHealthyCondition, clusterv1.MachineHealthCheckSucceededCondition, clusterv1.MachineOwnerRemediatedCondition} {
		if oneIn(3) {
			conditions.Set(m, metav1.Condition{Type: condition, Status: status(), Reason: "Test"})
		}
	}
	if oneIn(8) {
		m.Annotations[clusterv1.DeleteMachineAnnotation] = []string{"", "yes", "false"}[r.IntN(3)]
	}
	if oneIn(10) {
		m.Annotations[clusterv1.UpdateInProgressAnnotation] = ""
	}
	if oneIn(10) {
		m.Annotations["runtime.cluster.x-k8s.io/pending-hooks"] = []string{"UpdateMachine", "Other,UpdateMachine", "Other"}[r.IntN(3)]
	}
	if oneIn(12) {
		deleted := metav1.NewTime(now.Truncate(time.Second))
		m.DeletionTimestamp = &deleted
	}
	return m
}

// TestWorkersGoInClusterAPIsOrder compares the order of the plan with that of Cluster API's own reconciler.
func TestWorkersGoInClusterAPIsOrder(t *testing.T) {
	capi, now := newMachineSets(t), time.Now()
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 3))
		order := []string{"", "Random", "Oldest", "Newest"}[seed%4]
		group := &plan.Group{Cluster: "c", Owner: "o", DeletionOrder: plan.DeletionOrder(order)}
		var machines []*clusterv1.Machine
		var known []plan.Machine
		for _, i := range r.Perm(3 + r.IntN(8)) {
			m := randomMachine(r, fmt.Sprint("m-", i), now)
			machines = append(machines, m)
			known = append(known, plan.Machine{Name: m.Name, Cluster: "c", Owner: "o", Order: r.IntN(9), Health: healthOf(m, now)})
		}
		s := plan.New(known)
		s.Scale(group)
		var planned []string
		for _, step := range s.Steps() {
			at := slices.IndexFunc(known, func(m plan.Machine) bool { return m.Name == step.Machine })
			if !known[at].Health.Deleting { // It goes first, and Cluster API does not delete it again.
				planned = append(planned, step.Machine)
			} else if planned != nil {
				t.Errorf("seed %d: %s, which is being deleted, is not among the first", seed, step.Machine)
			}
		}
		if diff := cmp.Diff(capi.order(t, order, machines), planned); diff != "" {
			t.Fatalf("seed %d: the order %q differs (-Cluster API +plan):\n%s", seed, order, diff)
		}
	}
}

// choices returns what Cluster API chooses: of zones that are equal it takes any.
func choices(t *testing.T, choose func() (string, error)) (all []string) {
	t.Helper()
	for range 60 {
		choice, err := choose()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(all, choice) {
			all = append(all, choice)
		}
	}
	return all
}

// TestControlPlanesGoInClusterAPIsOrder compares which control plane goes first, and which zone its successor gets, with
// what Cluster API chooses.
func TestControlPlanesGoInClusterAPIsOrder(t *testing.T) {
	now, certain := time.Now(), 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 5))
		cp := &kcp.ControlPlane{KCP: &controlplanev1.KubeadmControlPlane{}, Cluster: &clusterv1.Cluster{}, Machines: collections.New()}
		group := &plan.Group{Cluster: "c", Owner: "o", ControlPlane: true, FailureDomains: []string{"a", "b", "c"}}
		group.Source.VM = &lxd.VMSpec{Resources: lxd.Resources{Cores: 1, Memory: 1, Disk: 1}}
		for i, zone := range group.FailureDomains {
			isAble := r.IntN(4) > 0
			cp.Cluster.Status.FailureDomains = append(cp.Cluster.Status.FailureDomains, clusterv1.FailureDomain{Name: zone, ControlPlane: &isAble})
			if all := (lxd.Resources{Cores: 99, Memory: 99, Disk: 99}); isAble {
				group.Source.Hosts = append(group.Source.Hosts, lxd.Host{ID: i + 1, Name: zone, Zone: zone, Reachable: true, Capacity: all, Largest: all})
			}
		}
		var known []plan.Machine
		for _, i := range r.Perm(2 + r.IntN(6)) {
			m := randomMachine(r, fmt.Sprint("m-", i), now.Add(time.Duration(i)*time.Minute))
			m.Labels, m.DeletionTimestamp = map[string]string{clusterv1.MachineControlPlaneLabel: ""}, nil
			m.Spec.FailureDomain = []string{"a", "b", "c", "gone", ""}[r.IntN(5)]
			if r.IntN(5) == 0 {
				status := []metav1.ConditionStatus{metav1.ConditionUnknown, metav1.ConditionFalse}[r.IntN(2)]
				conditions.Set(m, metav1.Condition{Type: sickComponents[r.IntN(len(sickComponents))], Status: status, Reason: "Test"})
			}
			cp.Machines.Insert(m)
			known = append(known, plan.Machine{
				Name: m.Name, Cluster: "c", Owner: "o", Zone: m.Spec.FailureDomain, NoZone: m.Spec.FailureDomain == "", Health: healthOf(m, now),
			})
		}
		for i, m := range cp.Machines.SortedByCreationTimestamp() {
			known[slices.IndexFunc(known, func(k plan.Machine) bool { return k.Name == m.Name })].Order = i
		}
		group.Replicas, cp.MachinesNotUpToDate = len(known), cp.Machines
		s := plan.New(known)
		s.Roll(group)
		first := s.Steps()[0].Machine
		names := choices(t, func() (string, error) {
			eligible := cp.Machines
			if marked := cp.MachineWithDeleteAnnotation(cp.Machines); len(marked) > 0 {
				eligible = marked
			} else if sick := cp.UnhealthyMachinesWithUnhealthyControlPlaneComponents(cp.Machines); len(sick) > 0 {
				eligible = sick
			}
			m, err := cp.MachineInFailureDomainWithMostMachines(t.Context(), eligible)
			return m.GetName(), err
		})
		if !slices.Contains(names, first) {
			t.Fatalf("seed %d: the plan deletes %s, and Cluster API one of %v", seed, first, names)
		}
		if len(names) == 1 {
			certain++
		}
		delete(cp.Machines, first)
		zones := choices(t, func() (string, error) { return cp.NextFailureDomainForScaleUp(t.Context()) })
		if next := s.Steps()[1]; next.Fits && !slices.Contains(zones, next.Zone) && !slices.Equal(zones, []string{""}) {
			t.Fatalf("seed %d: the plan makes the successor in %s, and Cluster API in one of %v", seed, next.Zone, zones)
		}
	}
	if certain < 100 {
		t.Errorf("Cluster API had no choice in %d cases only", certain)
	}
}
