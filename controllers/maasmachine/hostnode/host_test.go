// SPDX-License-Identifier: Apache-2.0

package hostnode

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testingclock "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/lifetest"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// What a host cluster refuses, with its policies and webhooks, does not hold the machine for ever: its power is cut, as
// if the cluster were gone. Nor does it wait for a node that was asked and has no power: the API server of a control
// plane that leaves hangs once, the machine is switched off, and then another one takes the request.
func TestANodeThatCannotBeAskedHoldsNoDeletion(t *testing.T) {
	t.Parallel()
	nodes := schema.GroupResource{Resource: "nodes"}
	for name, refusal := range map[string]error{
		"a policy":             apierrors.NewForbidden(nodes, "host-a", errors.New("nobody changes Nodes")),
		"a webhook that hangs": apierrors.NewInternalError(errors.New("failed calling webhook: context deadline exceeded")),
		"the Node has left":    apierrors.NewNotFound(nodes, "host-a"),
		"nobody":               nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "host-a"}, Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{{Type: infrav1.LXDHostReadyNodeCondition, Status: corev1.ConditionTrue}},
			}}
			refuse := func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return refusal
			}
			workload := fake.NewClientBuilder().WithObjects(node).WithInterceptorFuncs(interceptor.Funcs{Patch: refuse}).Build()
			r := New(&life.Steps{Base: reconciler.Base{Clock: testingclock.NewFakePassiveClock(time.Now())}}, nil)
			l := &life.Life{MAAS: &maas.Machine{SystemID: "abc", PowerState: maas.PowerOff}}
			out, err := r.retireNode(t.Context(), l, &hostNode{Node: node, workload: workload})
			if err != nil || out.Waits() {
				t.Errorf("the deletion waits: %+v, %v", out, err)
			}
		})
	}
}

// What MAAS saw last of a machine's power proves nothing: its initializer, which has not confirmed that it stopped, may run on, and
// register the machine again when it is back in the pool.
func TestAHostIsOutOfServiceOnlyIfItIsOffNow(t *testing.T) {
	t.Parallel()
	for power, waits := range map[string]bool{maas.PowerOff: false, maas.PowerUnknown: true, maas.PowerError: true, "": true} {
		t.Run("power "+power, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("op") == "query_power_state" && power == "" {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprintf(w, `{"state": %q}`, power)
			}))
			t.Cleanup(server.Close)
			config := maas.Config{Endpoint: server.URL + "/MAAS", APIKey: "a:b:c"}
			registry := inventory.NewRegistry(inventory.Options{
				ActiveInterval: time.Hour, IdleInterval: time.Hour, Logger: logr.Discard(), Notify: func(string) {},
			})
			go func() { _ = registry.Start(t.Context()) }() // It ends with the context.
			region, err := (&scope.Factory{Registry: registry, Manager: scope.ManagerCredentials{Given: &config}}).Own()
			if err != nil {
				t.Fatal(err)
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "host-a"}, Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{{Type: infrav1.LXDHostReadyNodeCondition, Status: corev1.ConditionTrue}},
			}}
			workload := fake.NewClientBuilder().WithObjects(node).Build()
			r := New(&life.Steps{Base: reconciler.Base{Clock: testingclock.NewFakePassiveClock(time.Now())}}, nil)
			l := &life.Life{Machine: &scope.Machine{Cluster: &scope.Cluster{Region: region}}, MAAS: &maas.Machine{SystemID: "abc", PowerState: maas.PowerOff}}
			for name, node := range map[string]*hostNode{"the Node": {Node: node, workload: workload}, "a Node that somebody has deleted": {joined: true}} {
				out, err := r.retire(t.Context(), l, node)
				if err == nil && out.Waits() != waits || err != nil && power != "" {
					t.Errorf("%s: it waits: %v, want %v: %v", name, out.Waits(), waits, err)
				}
			}
			if out, err := r.retire(t.Context(), l, &hostNode{}); err != nil || out.Waits() {
				t.Errorf("it waits for a Node that never was: %+v, %v", out, err)
			}
		})
	}
}

// That the Node of the machine's former life has retired says nothing of the initializer of this deployment, though it has
// the machine's name and provider ID.
func TestTheNodeOfAFormerLifeIsNotAHosts(t *testing.T) {
	t.Parallel()
	deployed := metav1.Now()
	former := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "host-a", CreationTimestamp: metav1.NewTime(deployed.Add(-time.Hour))}}
	former.Spec.ProviderID, former.Status.NodeInfo.BootID = "maas://z/abc", "a"
	taken, joined, other := *former.DeepCopy(), *former.DeepCopy(), *former.DeepCopy()
	taken.Status.NodeInfo.BootID = "b"
	joined.Name, joined.Spec.ProviderID, joined.CreationTimestamp = "host-a.maas.sim", "", deployed
	other.Name, other.Spec.ProviderID, other.CreationTimestamp = "host-b", "maas://z/def", deployed
	going := *taken.DeepCopy()
	going.DeletionTimestamp = &deployed
	for name, tc := range map[string]struct {
		nodes []corev1.Node
		want  *corev1.Node
	}{
		"it is all there is":               {nodes: []corev1.Node{former, other}},
		"the machine's has joined besides": {nodes: []corev1.Node{former, joined}, want: &joined},
		"the machine has taken it":         {nodes: []corev1.Node{taken}, want: &taken},
		"the machine's goes":               {nodes: []corev1.Node{going}, want: &going},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := lifetest.Of(t, &infrav1.MaasMachine{Spec: infrav1.MaasMachineSpec{ProviderID: former.Spec.ProviderID}})
			l.Machine.Machine = &clusterv1.Machine{}
			l.MAAS = &maas.Machine{SystemID: "abc", Hostname: "host-a", FQDN: "host-a.maas.sim"}
			l.Record.DeployedSince, l.Record.FormerBoot = &deployed, "a"
			if diff := cmp.Diff(tc.want, ownNode(l, tc.nodes)); diff != "" {
				t.Errorf("the Node differs (-want +got):\n%s", diff)
			}
		})
	}
}

// An initializer that begins between the read of the Node and the request to retire does not know of that request.
func TestAnInitializerThatBeginsAsItIsAskedToRetireIsAwaited(t *testing.T) {
	t.Parallel()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "host-a"}}
	begin := func(_ context.Context, _ client.WithWatch, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
		object.(*corev1.Node).Status.Conditions = []corev1.NodeCondition{
			{Type: infrav1.LXDHostReadyNodeCondition, Status: corev1.ConditionFalse, Reason: "Preparing"},
		}
		return nil
	}
	workload := fake.NewClientBuilder().WithObjects(node).WithInterceptorFuncs(interceptor.Funcs{Patch: begin}).Build()
	r := New(&life.Steps{Base: reconciler.Base{Clock: testingclock.NewFakePassiveClock(time.Now())}}, nil)
	l := &life.Life{MAAS: &maas.Machine{SystemID: "abc", PowerState: maas.PowerOn}}
	out, err := r.retireNode(t.Context(), l, &hostNode{Node: node, workload: workload})
	if err != nil || !out.Waits() {
		t.Errorf("the machine is released: %+v, %v", out, err)
	}
}

// A server that answers for Nodes, and not for Secrets, is one that can't be asked whose VM hosts are the Node's. Nor is
// one gone that did not answer once: a manager that has just started is not connected yet.
func TestAHostClusterIsGoneOnlyAfterAWhile(t *testing.T) {
	t.Parallel()
	refusal := apierrors.NewInternalError(errors.New("the key service is down"))
	for name, refused := range map[string]interceptor.Funcs{
		"Secrets": {Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return refusal
		}},
		"Nodes": {List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return refusal
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "host-a"}}
			workload := fake.NewClientBuilder().WithObjects(node).WithInterceptorFuncs(refused).Build()
			clock := testingclock.NewFakePassiveClock(time.Now())
			l := lifetest.Of(t, &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "host-a", UID: "uid"}})
			l.MAAS = &maas.Machine{SystemID: "abc", PowerState: maas.PowerOff}
			l.Machine.Cluster = &scope.Cluster{Cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "hosts"}}}
			l.Machine.Machine = &clusterv1.Machine{Status: clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: node.Name}}}
			r := New(&life.Steps{
				Base:         reconciler.Base{Clock: clock, Client: fake.NewClientBuilder().WithScheme(allkinds.Scheme()).Build()},
				ClusterCache: clustercache.NewFakeClusterCache(workload, client.ObjectKey{Namespace: "ns", Name: "hosts"}),
			}, &Silence{})
			for _, step := range []struct {
				after time.Duration
				waits bool
			}{{0, true}, {silenceLimit - time.Second, true}, {2 * time.Second, false}} {
				clock.SetTime(clock.Now().Add(step.after))
				found, err := r.hostNode(t.Context(), l)
				if err != nil {
					t.Fatal(err)
				}
				if out, err := r.retireNode(t.Context(), l, found); err != nil || out.Waits() != step.waits {
					t.Errorf("it waits: %v, want %v; %v", out.Waits(), step.waits, err)
				}
			}
		})
	}
}

// A moved or restored cluster has no status: other control planes of it wait for the machine nevertheless.
func TestAHostThatRanIsAwaitedUntilItIsOutOfService(t *testing.T) {
	t.Parallel()
	m := &infrav1.MaasMachine{
		ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}, Spec: infrav1.MaasMachineSpec{ProviderID: "maas://z/abc"},
	}
	if !isRetiring(m) {
		t.Error("nobody waits for it")
	}
}

// MAAS may have mixed up the addresses of machines, and then nothing but the record shows that VMs may run on one.
func TestWhatWasSeenAsAVMHostIsOneUntilItsNodeRetires(t *testing.T) {
	t.Parallel()
	says := func(label string, status corev1.ConditionStatus, reason string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "host-a", Labels: map[string]string{infrav1.LXDHostLabel: label}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
				{Type: infrav1.LXDHostReadyNodeCondition, Status: status, Reason: reason},
			}},
		}
	}
	for name, c := range map[string]struct {
		node  *corev1.Node
		phase string
		on    []maas.VMHost
		want  bool
	}{
		"never seen":                       {},
		"seen, and the Node can't be read": {phase: hosting, want: true},
		"seen, and MAAS shows it":          {phase: hosting, on: []maas.VMHost{{ID: 1}}},
		"seen, and out of service":         {phase: retired},
		"seen, and the Node has retired":   {phase: hosting, node: says("", corev1.ConditionFalse, infrav1.LXDHostRetiredReason)},
		"seen, and retiring":               {phase: hosting, node: says("", corev1.ConditionFalse, infrav1.RetiringReason), want: true},
		"the Node says so":                 {node: says("", corev1.ConditionTrue, "Registered"), want: true},
		"the Node said so":                 {node: says("true", corev1.ConditionFalse, "LXDNotReady"), want: true},
		"the Node never said so":           {node: says("", corev1.ConditionFalse, "LXDNotReady")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := lifetest.Of(t, &infrav1.MaasMachine{})
			l.MAAS = &maas.Machine{SystemID: "abc", Hostname: "host-a"}
			l.Record.Enter(c.phase, time.Now())
			node := &hostNode{Node: c.node}
			if got := node.unclear(l, c.on, nil, time.Now()); (got != "") != c.want {
				t.Errorf("unclear: %q, want it to be so: %v", got, c.want)
			}
		})
	}
}
