// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
)

// member is a control plane of TestWhoIsInTheEndpoint. Its address is 10.0.0.NAME.
type member struct {
	name string
	// joined: it is a Node. draining: its Machine is being deleted, its MaasMachine not yet.
	joined, draining bool
	// stopped is for how long MAAS has been saying that it does not run; 0: it runs.
	stopped time.Duration
	// unread: MAAS can't be asked.
	unread bool
}

func (m member) objects() (*clusterv1.Machine, infrav1.MaasMachine) {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: m.name, Namespace: "ns", UID: "1"}}
	if m.joined {
		machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: m.name}
	}
	if m.draining {
		machine.Finalizers = []string{"drain"}
		machine.DeletionTimestamp = ptr.To(metav1.Now())
	}
	maasMachine := infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{
		Name: m.name, Namespace: "ns", Labels: map[string]string{clusterv1.MachineControlPlaneLabel: ""},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: m.name}},
	}}
	maasMachine.Spec.ProviderID = "maas://z/" + m.name
	maasMachine.Status.Initialization.Provisioned = ptr.To(true)
	maasMachine.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "10.0.0." + m.name}}
	deployed := metav1.Condition{Type: infrav1.MachineDeployedCondition, Status: metav1.ConditionTrue, Reason: infrav1.DeployedReason}
	switch {
	case m.stopped > 0:
		deployed.Status, deployed.Reason = metav1.ConditionFalse, infrav1.PoweredOffReason
		deployed.LastTransitionTime = metav1.NewTime(time.Now().Add(-m.stopped))
	case m.unread:
		deployed.Status, deployed.Reason = metav1.ConditionUnknown, infrav1.MAASUnavailableReason
		deployed.LastTransitionTime = metav1.NewTime(time.Now().Add(-24 * time.Hour))
	}
	conditions.Set(&maasMachine, deployed)
	return machine, maasMachine
}

func TestWhoIsInTheEndpoint(t *testing.T) {
	const blip, lasting = endpointHold / 2, 2 * endpointHold
	for name, tc := range map[string]struct {
		uninitialized bool
		members       []member
		current, want []string
	}{
		"a power blip changes nothing": {
			members: []member{{name: "1", joined: true, stopped: blip}, {name: "2", joined: true}},
			current: []string{"10.0.0.1", "10.0.0.2"}, want: []string{"10.0.0.1", "10.0.0.2"}},
		"a power blip of all changes nothing": {
			members: []member{{name: "1", joined: true, stopped: blip}, {name: "2", joined: true, stopped: blip}},
			current: []string{"10.0.0.1", "10.0.0.2"}, want: []string{"10.0.0.1", "10.0.0.2"}},
		"one that stays off leaves": {
			members: []member{{name: "1", joined: true, stopped: lasting}, {name: "2", joined: true}},
			current: []string{"10.0.0.1", "10.0.0.2"}, want: []string{"10.0.0.2"}},
		"when all stay off there is nothing to write": {
			members: []member{{name: "1", joined: true, stopped: lasting}, {name: "2", joined: true, stopped: lasting}},
			current: []string{"10.0.0.1", "10.0.0.2"}},
		"one that is off is not added": {
			members: []member{{name: "1", joined: true, stopped: blip}, {name: "2", joined: true}},
			current: []string{"10.0.0.2"}, want: []string{"10.0.0.2"}},
		"one that runs again comes back": {
			members: []member{{name: "1", joined: true}, {name: "2", joined: true}},
			current: []string{"10.0.0.2"}, want: []string{"10.0.0.1", "10.0.0.2"}},
		"while MAAS can't be read all stay": {
			members: []member{{name: "1", joined: true, unread: true}, {name: "2", joined: true, unread: true}},
			current: []string{"10.0.0.1", "10.0.0.2"}, want: []string{"10.0.0.1", "10.0.0.2"}},
		"one that is drained leaves": {
			members: []member{{name: "1", joined: true, draining: true}, {name: "2", joined: true}},
			current: []string{"10.0.0.1", "10.0.0.2"}, want: []string{"10.0.0.2"}},
		"when all are drained there is nothing to write": {
			members: []member{{name: "1", joined: true, draining: true}}, current: []string{"10.0.0.1"}},
		"one that never joined does not come in": {
			members: []member{{name: "1", joined: true, draining: true}, {name: "2"}}, current: []string{"10.0.0.1"}},
		"the first one, before the cluster is initialized": {
			uninitialized: true, members: []member{{name: "1"}}, want: []string{"10.0.0.1"}},
		"after a move others joined already": {
			uninitialized: true,
			members:       []member{{name: "1", joined: true}, {name: "2"}}, current: []string{"10.0.0.1"}, want: []string{"10.0.0.1"}},
		"the first one is replaced before the cluster is initialized": {
			uninitialized: true,
			members:       []member{{name: "1", draining: true}, {name: "2"}}, current: []string{"10.0.0.1"}, want: []string{"10.0.0.2"}},
	} {
		t.Run(name, func(t *testing.T) {
			builder := fake.NewClientBuilder().WithScheme(newScheme(t))
			var machines []infrav1.MaasMachine
			for _, m := range tc.members {
				machine, maasMachine := m.objects()
				builder, machines = builder.WithObjects(machine), append(machines, maasMachine)
			}
			cluster := &clusterv1.Cluster{}
			cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(!tc.uninitialized)
			if got := endpointAddresses(t.Context(), builder.Build(), cluster, machines, tc.current); !slices.Equal(got, tc.want) {
				t.Errorf("the record should hold %v, want %v", got, tc.want)
			}
		})
	}
}

func TestTheEndpointStaysWhileKubernetesCannotBeRead(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(newScheme(t)).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("down")
		},
	}).Build()
	_, machine := member{name: "1", joined: true}.objects()
	current := []string{"10.0.0.1", "10.0.0.2"}
	if got := endpointAddresses(t.Context(), c, &clusterv1.Cluster{}, []infrav1.MaasMachine{machine}, current); !slices.Equal(got, current) {
		t.Errorf("the record should hold %v, want %v still", got, current)
	}
}

// kubeadm on the replacement needs the endpoint to initialize the cluster.
func TestTheFirstControlPlaneIsReplacedBeforeItJoins(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]infrav1.MaasMachineSpec{"bare metal": {}, "a VM": vm} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			cluster := w.newCluster()
			w.provisioned(cluster)
			// Another machine: the record's link to a released one would lead there again when it is deployed anew.
			spec.FailureDomain = "zone-a"
			first := w.newMachine("cp-0", true, spec)
			w.eventually(first, "in DNS", func() bool { return first.Status.DNSAttached })
			address := endpointAddress(first)
			w.delete(first)
			spec.FailureDomain = "zone-b"
			second := w.newMachine("cp-1", true, spec)
			w.eventually(second, "in DNS", func() bool { return second.Status.DNSAttached })
			if endpointAddress(second) != address {
				t.Fatalf("the replacement of %s has the address %s: MAAS gives the lowest one that is free", address, endpointAddress(second))
			}
			w.await("the endpoint leads to the replacement", second, func(context.Context) bool {
				return slices.Equal(w.endpoint(cluster), []string{address})
			})
		})
	}
}

// pair makes two control planes that are in the endpoint's record.
func (w *world) pair(cluster *infrav1.MaasCluster) (first, second *infrav1.MaasMachine, both []string) {
	w.t.Helper()
	first, second = w.newMachine("cp-0", true, vm), w.newMachine("cp-1", true, vm)
	for _, m := range []*infrav1.MaasMachine{first, second} {
		w.deployed(m)
		w.join(m)
		w.eventually(m, "in DNS", func() bool { return m.Status.DNSAttached })
		both = append(both, endpointAddress(m))
	}
	slices.Sort(both)
	w.await("both are in the record", cluster, func(context.Context) bool { return slices.Equal(w.endpoint(cluster), both) })
	return first, second, both
}

// join says that a control plane became a Node, as Cluster API does.
func (w *world) join(m *infrav1.MaasMachine) {
	w.t.Helper()
	machine := &clusterv1.Machine{}
	if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(m), machine); err != nil {
		w.t.Fatal(err)
	}
	w.patchStatus(machine, func() { machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: m.Name} })
}

// recordWrites counts the calls that changed the DNS record.
func (w *world) recordWrites() (n int) {
	for _, call := range w.maas.Calls().Log {
		if call.Method != http.MethodGet && strings.HasPrefix(call.Endpoint, "dnsresources") {
			n++
		}
	}
	return n
}

// A blip of the power changes nothing; what stays off leaves the record, and comes back when it runs again.
func TestPowerOfControlPlanes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster := w.newCluster()
	w.provisioned(cluster)
	first, second, both := w.pair(cluster)
	w.maas.ResetCalls()
	for _, m := range []*infrav1.MaasMachine{first, second} {
		w.control("machines/"+m.Spec.SystemID+"/power", `{"power": "off"}`)
		w.refused(m, infrav1.MachineDeployedCondition, infrav1.PoweredOffReason)
		w.poke(cluster)
	}
	for _, m := range []*infrav1.MaasMachine{first, second} {
		w.control("machines/"+m.Spec.SystemID+"/power", `{"power": "on"}`)
		w.eventually(m, "well", func() bool { return m.Status.Ready })
	}
	if now := w.endpoint(cluster); !slices.Equal(now, both) || w.recordWrites() != 0 {
		t.Errorf("after a blip the endpoint leads to %v, with %d writes; want %v, none", now, w.recordWrites(), both)
	}
	w.control("machines/"+first.Spec.SystemID+"/power", `{"power": "off"}`)
	w.refused(first, infrav1.MachineDeployedCondition, infrav1.PoweredOffReason)
	w.offFor(first, 2*endpointHold)
	left := []string{endpointAddress(second)}
	w.await("what stays off left", cluster, func(context.Context) bool { return slices.Equal(w.endpoint(cluster), left) })
	w.control("machines/"+first.Spec.SystemID+"/power", `{"power": "on"}`)
	w.await("what runs again came back", cluster, func(context.Context) bool { return slices.Equal(w.endpoint(cluster), both) })
}

// offFor makes it so long ago that a machine went off.
func (w *world) offFor(m *infrav1.MaasMachine, passed time.Duration) {
	w.t.Helper()
	w.patchStatus(m, func() {
		for i := range m.Status.Conditions {
			if c := &m.Status.Conditions[i]; c.Type == infrav1.MachineDeployedCondition {
				c.LastTransitionTime = metav1.NewTime(time.Now().Add(-passed))
			}
		}
	})
}

// A control plane leaves the record when its drain begins, not when its machine goes.
func TestADrainedControlPlaneLeavesTheEndpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster := w.newCluster()
	w.provisioned(cluster)
	first, second, _ := w.pair(cluster)
	machine := &clusterv1.Machine{}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(first), machine); err != nil {
		t.Fatal(err)
	}
	before := machine.DeepCopy()
	machine.Finalizers = append(machine.Finalizers, "example.com/drain")
	if err := w.client.Patch(t.Context(), machine, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Delete(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	left := []string{endpointAddress(second)}
	w.await("the one that is drained left", cluster, func(context.Context) bool { return slices.Equal(w.endpoint(cluster), left) })
	if now, _ := w.maas.Machine(first.Spec.SystemID); now.Status != "Deployed" {
		t.Errorf("its machine is %s already", now.Status)
	}
}

// A machine that can't be taken out of the record is not given back: the record would lead nowhere, or to another user's machine.
func TestAControlPlaneIsKeptUntilItHasLeftTheEndpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster := w.newCluster()
	w.provisioned(cluster)
	first, second, both := w.pair(cluster)
	w.maas.SetHook(func(call simulator.Call, _ simulator.Phase) error {
		if call.Method != http.MethodGet && strings.HasPrefix(call.Endpoint, "dnsresources") {
			return errors.New("down")
		}
		return nil
	})
	w.beginDeletion(first)
	w.refused(first, infrav1.MachineDeployedCondition, infrav1.MAASUnavailableReason)
	if now, _ := w.maas.Machine(first.Spec.SystemID); now.Status != "Deployed" || !slices.Equal(w.endpoint(cluster), both) {
		t.Errorf("the machine is %s, the endpoint leads to %v", now.Status, w.endpoint(cluster))
	}
	w.maas.SetHook(nil)
	left := []string{endpointAddress(second)}
	w.await("the other is left", cluster, func(context.Context) bool { return slices.Equal(w.endpoint(cluster), left) })
	w.await("the first is gone", first, func(ctx context.Context) bool { return w.isGone(ctx, first) })
}

// No event triggers a reconcile when a control plane has been off for long enough.
func TestWhatStaysOffLeavesTheEndpointByItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster := w.newCluster()
	w.provisioned(cluster)
	first, second, both := w.pair(cluster)
	w.control("machines/"+first.Spec.SystemID+"/power", `{"power": "off"}`)
	w.refused(first, infrav1.MachineDeployedCondition, infrav1.PoweredOffReason)
	w.offFor(first, endpointHold-10*time.Second)
	if now := w.endpoint(cluster); !slices.Equal(now, both) {
		t.Errorf("the endpoint leads to %v already", now)
	}
	left := []string{endpointAddress(second)}
	w.await("what stays off left", cluster, func(context.Context) bool { return slices.Equal(w.endpoint(cluster), left) })
}

func TestEndpointRetryIsTheFirstEndOfAHold(t *testing.T) {
	var machines []infrav1.MaasMachine
	for _, m := range []member{{name: "1"}, {name: "2", stopped: time.Minute}, {name: "3", stopped: 2 * time.Minute}, {name: "4", stopped: time.Hour}} {
		_, machine := m.objects()
		machines = append(machines, machine)
	}
	if got := endpointRetry(machines); got <= endpointHold-3*time.Minute || got > endpointHold-2*time.Minute {
		t.Errorf("it is looked at again after %v", got)
	}
	if got := endpointRetry(machines[:1]); got != 0 {
		t.Errorf("with all of them running it is looked at again after %v", got)
	}
}
