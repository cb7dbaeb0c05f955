// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/audit"
	"github.com/capmaas/cluster-api-provider-maas/test/chaos"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
	"github.com/capmaas/cluster-api-provider-maas/test/stale"
)

// lieLasts is longer than the settle time.
const lieLasts = 1200 * time.Millisecond

// flow is a kind of life that managers lead with a view that lies.
type flow struct {
	name  string
	world []func(*world)
	// lead leads the life until nothing is left. steady audits it in the middle.
	lead func(w *world, steady func())
}

var flows = []flow{
	{name: "bare metal", lead: leads(infrav1.MaasMachineSpec{}, false)},
	{name: "VM", lead: leads(vm, true)},
	{name: "keep", world: []func(*world){func(w *world) { w.region = contested }}, lead: keeps},
	{name: "remediation", lead: remedies},
	{name: "evacuation", world: []func(*world){withEvacuation}, lead: evacuates},
	{name: "VM from an image", world: []func(*world){withLXDHosts}, lead: func(w *world, steady func()) {
		w.addLXDHost(directhost.Start(w.t), "host-a", "zone-a")
		leads(vm, true)(w, steady)
	}},
}

// leads is the life of one machine.
func leads(spec infrav1.MaasMachineSpec, controlPlane bool) func(*world, func()) {
	return func(w *world, steady func()) {
		cluster := w.provisionedCluster()
		m := w.deployedMachine("m-0", controlPlane, spec)
		if controlPlane {
			w.eventually(m, "in DNS", func() bool { return m.Status.DNSAttached })
		}
		steady()
		w.delete(m)
		w.deleteCluster(cluster)
	}
}

// keeps is the life of a machine that goes from one Machine to the next.
func keeps(w *world, steady func()) {
	cluster := w.provisionedCluster()
	md, id := w.keepsServer(infrav1.MaasMachineSpec{})
	steady()
	m := w.deployedMachine("second", false, withKeep(infrav1.MaasMachineSpec{}), of(md))
	if m.Spec.SystemID != id {
		w.t.Errorf("the next Machine has %s, want %s", m.Spec.SystemID, id)
	}
	w.eventually(cluster, "without machines that are kept", func() bool { return w.keptIn(cluster) == 0 })
	steady()
	w.scale(md, 0)
	w.delete(m)
	w.deleteCluster(cluster)
}

// remedies is the life of a machine that is switched off and on, once.
func remedies(w *world, steady func()) {
	cluster := w.provisionedCluster()
	m := w.node("md-0", false, infrav1.MaasMachineSpec{})
	remediation := w.remedy("md-0")
	w.isAt(remediation, infrav1.RemediationRecover)
	steady()
	w.switched(m, 1, 1)
	w.ends(remediation)
	w.delete(m)
	w.deleteCluster(cluster)
}

// evacuates is the life of a control plane two of whose hosts are emptied at once.
func evacuates(w *world, steady func()) {
	cluster := w.provisionedCluster()
	p := w.newPlane(3, "zone-a", "zone-b", "zone-c")
	p.zone = "zone-c"
	w.domains("zone-c")
	hosts := []*infrav1.LXDHost{w.lxdHost(w.hostName("lxd-a")), w.lxdHost(w.hostName("lxd-b"))}
	for _, host := range hosts {
		w.change(host, func(s *infrav1.LXDHostSpec) { s.Evacuate = true })
	}
	for _, host := range hosts {
		w.await(host.Name+" is empty", host, func(ctx context.Context) bool {
			p.step(ctx)
			return w.sees(ctx, host) == nil && conditions.IsTrue(host, infrav1.EvacuatedCondition)
		})
	}
	w.await("the control plane is whole", p.object, func(ctx context.Context) bool { return p.step(ctx) == p.replicas })
	if p.most != 1 || p.fewest != 2 || p.made != 5 {
		w.t.Errorf("at most %d Machines were being deleted at once, at least %d were healthy, %d were made", p.most, p.fewest, p.made)
	}
	steady()
	left := &infrav1.MaasMachineList{}
	w.must(w.client.List(w.t.Context(), left, client.InNamespace(w.namespace)))
	for i := range left.Items {
		w.delete(&left.Items[i])
	}
	w.deleteCluster(cluster)
}

// What managers see of one kind of object is old, has gaps, or does not say what became of a write, at each event of that
// kind in a life. Nothing is left, nothing is there twice, nothing of others is changed, and the life ends as it should.
// Each kind of life runs undisturbed first, to count its events.
func TestAViewThatLies(t *testing.T) {
	t.Parallel()
	for i, f := range flows {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			var counts map[string]stale.Count
			t.Run("undisturbed", func(t *testing.T) { counts = f.live(t, stale.Lie{}).Counts() })
			t.Logf("undisturbed: %+v", counts)
			points := pointsOf(i, counts)
			sum := &tally{}
			t.Run("at", func(t *testing.T) {
				for _, lie := range points {
					t.Run(lie.String(), func(t *testing.T) {
						t.Parallel()
						sum.add(lie, f.live(t, lie).Told())
					})
				}
			})
			t.Log(sum)
		})
	}
}

// The API server tells a new manager the lie, also of a kind that is not JSON.
func TestANewManagerSeesWhatWasBefore(t *testing.T) {
	t.Parallel()
	w := &world{t: t, namespace: fmt.Sprintf("test-%d", namespaces.Add(1))}
	var err error
	w.client, err = client.New(apiConfig, client.Options{Scheme: scheme})
	w.must(err)
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "a"}, StringData: map[string]string{"is": "old"}}
	view := stale.New(stale.Lie{Class: stale.Before, Kind: "secrets", N: 2}, time.Hour)
	watches := func() cache.Cache {
		config := rest.CopyConfig(apiConfig)
		config.Wrap(view.Connect().Wrap)
		c, err := cache.New(config, cache.Options{Scheme: scheme, Mapper: mapper, DefaultNamespaces: map[string]cache.Config{w.namespace: {}}})
		w.must(err)
		_, err = c.GetInformer(t.Context(), secret)
		w.must(err)
		go func() { _ = c.Start(t.Context()) }()
		if !c.WaitForCacheSync(t.Context()) {
			t.Fatal("the cache does not start")
		}
		return c
	}
	watches()
	w.create(secret)
	w.patch(secret, func() { secret.Data["is"] = []byte("new") })
	<-view.Due()
	seen := &corev1.Secret{}
	w.must(watches().Get(t.Context(), client.ObjectKeyFromObject(secret), seen))
	if got := string(seen.Data["is"]); got != "old" || !view.Told() {
		t.Errorf("it sees what is %s; the lie was told: %v", got, view.Told())
	}
}

// fewEvents are too few of a kind for its points to be in each run.
const fewEvents = 4

// pointsOf are the points of the n-th life at which the view lies: all, or of every second class one in the middle, of
// another kind of object in each life.
func pointsOf(nth int, counts map[string]stale.Count) (points []stale.Lie) {
	kinds := slices.Sorted(maps.Keys(counts))
	if !chaos.Full() {
		kinds = slices.DeleteFunc(kinds, func(kind string) bool { return counts[kind].Events < fewEvents })
	}
	for i, class := range stale.Classes {
		if chaos.Full() {
			for _, kind := range kinds {
				points = append(points, counts[kind].Points(class, kind)...)
			}
			continue
		}
		of := slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return len(counts[kind].Points(class, kind)) == 0 })
		if (nth+i)%2 == 0 && len(of) > 0 {
			kind := of[(nth+i)/2%len(of)]
			all := counts[kind].Points(class, kind)
			points = append(points, all[len(all)/2])
		}
	}
	return points
}

// live leads one life, with one lie.
func (f flow) live(t *testing.T, lie stale.Lie) *stale.View {
	t.Helper()
	view := stale.New(lie, lieLasts)
	w := newWorld(t, append(slices.Clone(f.world), func(w *world) { w.between = view.Connect().Wrap })...)
	w.meanwhile = func() { w.lied(view) }
	auditor, err := audit.Open(w.maas, w.client, audit.Options{In: func(namespace string) bool { return namespace == w.namespace }})
	w.must(err)
	t.Cleanup(auditor.Close)
	before := w.maas.State()
	f.lead(w, func() {
		w.overWith(view)
		w.clean(auditor.Steady)
	})
	w.overWith(view)
	w.clean(auditor.Gone)
	w.stopManager()
	w.unchanged(before)
	return view
}

// lied does what belongs to a lie, now and then while it lasts: it starts the new manager when it is time for that, and
// wakes reconcilers, which see nothing new of what the lie is about.
func (w *world) lied(view *stale.View) {
	w.t.Helper()
	if isClosed(view.Due()) {
		wakes := func() { w.wakes(view) }
		former := w.stopManager
		w.between = view.Connect().Wrap
		if view.Lie().Class != stale.Both {
			former()
			w.startManager()
			w.meanwhile = wakes
			return
		}
		w.startManager()
		w.meanwhile = func() {
			wakes()
			if isClosed(view.Over()) { // It was cut off.
				w.meanwhile = nil
				former()
			}
		}
		return
	}
	w.wakes(view)
}

// wakes changes the Machines and MaasClusters while a view lies, unless it is about them.
func (w *world) wakes(view *stale.View) {
	if !view.Begun() || isClosed(view.Over()) {
		return
	}
	woken := []byte(`{"metadata":{"annotations":{"woken":"` + time.Now().String() + `"}}}`)
	for kind, list := range map[string]client.ObjectList{"machines": &clusterv1.MachineList{}, "maasclusters": &infrav1.MaasClusterList{}} {
		if kind == view.Lie().Kind || w.client.List(w.t.Context(), list, client.InNamespace(w.namespace)) != nil {
			continue
		}
		_ = meta.EachListItem(list, func(item runtime.Object) error {
			object := item.(client.Object)
			_ = w.client.Patch(w.t.Context(), object, client.RawPatch(types.MergePatchType, woken)) // It may be gone by now.
			return nil
		})
	}
}

// overWith waits until the view is true again, if it has begun to lie.
func (w *world) overWith(view *stale.View) {
	w.t.Helper()
	w.await("the view is true again", nil, func(context.Context) bool {
		return !view.Begun() || isClosed(view.Over())
	})
}

// clean waits until an audit finds nothing.
func (w *world) clean(check func(context.Context, audit.Who) ([]audit.Finding, error)) {
	w.t.Helper()
	var findings []audit.Finding
	defer func() {
		for _, finding := range findings {
			w.t.Error(finding)
		}
	}()
	w.await("the audit finds nothing", nil, func(ctx context.Context) bool {
		var err error
		findings, err = check(ctx, audit.Who{Namespace: w.namespace})
		return err == nil && len(findings) == 0
	})
}

// tally counts the points at which the view lied.
type tally struct {
	mutex  sync.Mutex
	told   map[stale.Class]int
	all    map[stale.Class]int
	missed []string
}

func (s *tally) add(lie stale.Lie, told bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.all == nil {
		s.told, s.all = map[stale.Class]int{}, map[stale.Class]int{}
	}
	s.all[lie.Class]++
	if told {
		s.told[lie.Class]++
		return
	}
	s.missed = append(s.missed, lie.String())
}

func (s *tally) String() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var lines []string
	for _, class := range stale.Classes {
		if s.all[class] > 0 {
			lines = append(lines, fmt.Sprintf("%s: %d of %d points", class, s.told[class], s.all[class]))
		}
	}
	if len(s.missed) > 0 {
		slices.Sort(s.missed)
		lines = append(lines, "not reached: "+strings.Join(s.missed, ", "))
	}
	return strings.Join(lines, "; ")
}
