// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"context"
	"encoding/json"
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
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	kcp "sigs.k8s.io/cluster-api/controlplane/kubeadm/pkg"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinedeployment"
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

// clusterAPI are Cluster API's own reconcilers. They read from a fake, and what they delete goes to a server that writes
// down the names.
type clusterAPI struct {
	manager ctrl.Manager

	mu      sync.Mutex
	deleted []string
}

func newClusterAPI(t *testing.T) *clusterAPI {
	t.Helper()
	m := &clusterAPI{}
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

// surroundings are what the reconcilers read beside Machines and what makes them.
func surroundings() []client.Object {
	all := []client.Object{
		&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default"}},
		&infrav1.MaasMachineTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t", Namespace: "default"}},
	}
	for _, name := range []string{"maasmachines", "maasmachinetemplates"} {
		all = append(all, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
			Name: name + "." + infrav1.GroupVersion.Group, Labels: map[string]string{clusterv1.GroupVersion.String(): infrav1.GroupVersion.Version},
		}})
	}
	return all
}

var template = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "MaasMachineTemplate", Name: "t"}

var notPaused = metav1.Condition{Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotPausedReason}

// order returns the names of Machines in the order in which Cluster API deletes them. Those that are being deleted are
// not among them.
func (m *clusterAPI) order(t *testing.T, order string, machines []*clusterv1.Machine) []string {
	t.Helper()
	set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "ms", Namespace: "default", UID: "ms", Finalizers: []string{clusterv1.MachineSetFinalizer}}}
	set.Spec.ClusterName, set.Spec.Replicas, set.Spec.Deletion.Order = "c", new(int32), clusterv1.MachineSetDeletionOrder(order)
	set.Spec.Template.Spec.InfrastructureRef = template
	set.Spec.Selector.MatchLabels = map[string]string{clusterv1.ClusterNameLabel: "c"}
	conditions.Set(set, notPaused)
	objects := append(surroundings(), set)
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
	capi, now := newClusterAPI(t), time.Now()
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

// rollout is a MachineDeployment whose new MachineSet has all machines that it may have: made are available, and the rest
// waits. Each old MachineSet has a number of machines that are available, and of others.
type rollout struct {
	replicas, surge, unavailable int
	old                          [][2]int
	made, waits                  int
}

func randomRollout(r *rand.Rand) rollout {
	o := rollout{replicas: 1 + r.IntN(5), surge: r.IntN(3), unavailable: r.IntN(3)}
	if o.surge+o.unavailable == 0 {
		o.surge = 1 // Cluster API refuses both to be 0.
	}
	there := 0
	for range 1 + r.IntN(3) {
		set := [2]int{r.IntN(3), r.IntN(2) * r.IntN(3)}
		if size := set[0] + set[1]; size > 0 && there+size <= o.replicas+o.surge {
			o.old, there = append(o.old, set), there+size
		}
	}
	if there == 0 {
		o.old, there = [][2]int{{1, 0}}, 1
	}
	now := min(o.replicas, o.replicas+o.surge-there)
	o.made = r.IntN(now + 1)
	o.waits = now - o.made
	return o
}

// scaledDown returns which old MachineSets Cluster API makes smaller.
func (m *clusterAPI) scaledDown(t *testing.T, o rollout) (sets []int) {
	t.Helper()
	number := func(n int) *int32 { return new(int32(n)) }
	md := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "md", Namespace: "default", UID: "md", Finalizers: []string{clusterv1.MachineDeploymentFinalizer}}}
	surge, unavailable := intstr.FromInt(o.surge), intstr.FromInt(o.unavailable)
	md.Spec.ClusterName, md.Spec.Replicas = "c", number(o.replicas)
	md.Spec.Rollout.Strategy = clusterv1.MachineDeploymentRolloutStrategy{Type: clusterv1.RollingUpdateMachineDeploymentStrategyType}
	md.Spec.Rollout.Strategy.RollingUpdate.MaxSurge, md.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable = &surge, &unavailable
	md.Spec.Selector.MatchLabels = map[string]string{"of": "md"}
	md.Spec.Template.Labels = md.Spec.Selector.MatchLabels
	md.Spec.Template.Spec = clusterv1.MachineSpec{ClusterName: "c", Version: "v2", InfrastructureRef: template, Bootstrap: clusterv1.Bootstrap{DataSecretName: new("none")}}
	conditions.Set(md, notPaused)
	objects := append(surroundings(), md)
	add := func(name, version string, available, others int) {
		ms := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "default", Labels: map[string]string{"of": "md", clusterv1.MachineDeploymentNameLabel: "md", clusterv1.MachineDeploymentUniqueLabel: name},
			OwnerReferences:   []metav1.OwnerReference{*metav1.NewControllerRef(md, clusterv1.GroupVersion.WithKind("MachineDeployment"))},
			CreationTimestamp: metav1.NewTime(time.Unix(int64(len(objects))*1000, 0)),
		}}
		ms.Spec.ClusterName, ms.Spec.Replicas, ms.Spec.Selector.MatchLabels = "c", number(available+others), ms.Labels
		ms.Spec.Template = *md.Spec.Template.DeepCopy()
		ms.Spec.Template.Spec.Version = version
		ms.Status.Replicas, ms.Status.AvailableReplicas, ms.Status.UpToDateReplicas = number(available+others), number(available), number(available+others)
		objects = append(objects, ms)
	}
	for i, set := range o.old {
		add(fmt.Sprint("old-", i), "v1", set[0], set[1])
	}
	add("new", "v2", o.made, o.waits)
	c := fake.NewClientBuilder().WithScheme(m.manager.GetScheme()).WithObjects(objects...).WithStatusSubresource(md).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, into, opts...)
			if sets, ok := into.(*clusterv1.MachineSetList); ok {
				for i := range sets.Items { // Without any, Cluster API would first set some.
					sets.Items[i].ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "capi-machinedeployment", Operation: metav1.ManagedFieldsOperationApply}}
				}
			}
			return err
		},
		Apply: func(_ context.Context, _ client.WithWatch, applied runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
			sent, err := json.Marshal(applied)
			ms := &clusterv1.MachineSet{}
			if err == nil {
				err = json.Unmarshal(sent, ms)
			}
			if at := 0; err == nil {
				if n, _ := fmt.Sscanf(ms.Name, "old-%d", &at); n == 1 && int(*ms.Spec.Replicas) < o.old[at][0]+o.old[at][1] {
					sets = append(sets, at)
				}
			}
			return err
		},
	}).Build()
	r, skip := &machinedeployment.Reconciler{Client: c, APIReader: c}, true
	if err := r.SetupWithManager(t.Context(), m.manager, controller.Options{SkipNameValidation: &skip}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(md)}); err != nil {
		t.Fatal(err)
	}
	return sets
}

// TestARolloutStopsWhereClusterAPIs compares whether an old machine may go, and of which MachineSet, with Cluster API's
// own reconciler of MachineDeployments: a rollout that is planned to fit does not wait for ever.
func TestARolloutStopsWhereClusterAPIs(t *testing.T) {
	capi, stopped := newClusterAPI(t), 0
	for seed := range uint64(300) {
		o := randomRollout(rand.New(rand.NewPCG(seed, 7)))
		var known []plan.Machine
		add := func(set, n int, down bool) {
			for range n {
				known = append(known, plan.Machine{
					Name: fmt.Sprintf("old-%d-%d", set, len(known)), Cluster: "c", Owner: "o", Set: set, Health: plan.Health{Sick: down, Unavailable: down},
				})
			}
		}
		for i, set := range o.old {
			add(i, set[0], false)
			add(i, set[1], true)
		}
		group := &plan.Group{Cluster: "c", Owner: "o", Replicas: o.replicas, MaxUnavailable: o.unavailable}
		goes, may := group.Next(known, o.made, o.waits > 0)
		sets := capi.scaledDown(t, o)
		switch {
		case may != (len(sets) > 0):
			t.Fatalf("seed %d: %+v: by the plan an old machine goes: %t, and Cluster API makes the sets %v smaller", seed, o, may, sets)
		case may && !slices.Contains(sets, goes.Set):
			t.Fatalf("seed %d: %+v: by the plan one of set %d goes, and Cluster API makes the sets %v smaller", seed, o, goes.Set, sets)
		case !may:
			stopped++
		}
	}
	if stopped < 30 {
		t.Errorf("only %d rollouts stop", stopped)
	}
}
