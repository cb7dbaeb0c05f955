// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
)

// holdMachine keeps a Machine that is being deleted, as Cluster API's own finalizer does.
const holdMachine = "test.capmaas.io/hold"

// plane plays the control plane of the world's cluster, and the Machines of anything else, as Cluster API does: a Machine
// that is deleted goes with its VM, then gets a successor, which is healthy once its VM runs.
type plane struct {
	w        *world
	object   *unstructured.Unstructured
	replicas int
	made     int
	zone     string // of successors
	most     int    // how many were being deleted at once
	fewest   int    // how many were healthy
}

func (w *world) newPlane(replicas int, zones ...string) *plane {
	w.t.Helper()
	w.controlPlane(infrav1.MaasMachineSpec{ProvisioningMode: infrav1.ProvisioningModeLXD})
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(controlplanev1.GroupVersion.WithKind("KubeadmControlPlane"))
	object.SetNamespace(w.namespace)
	object.SetName(clusterName)
	p := &plane{w: w, object: object, replicas: replicas, fewest: replicas}
	w.patchPlane(p, func(o map[string]any) error {
		return unstructured.SetNestedField(o, int64(replicas), "spec", "replicas")
	})
	w.patchStatus(p.object, func() {
		said := []any{map[string]any{
			"type": clusterv1.AvailableCondition, "status": "True", "reason": "Available", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z",
		}}
		w.must(unstructured.SetNestedSlice(p.object.Object, said, "status", "conditions"))
	})
	for _, zone := range zones {
		p.make(zone)
	}
	w.await("the control plane is healthy", object, func(ctx context.Context) bool { return p.step(ctx) == replicas })
	p.fewest = replicas
	return p
}

func (w *world) patchPlane(p *plane, change func(map[string]any) error) {
	w.t.Helper()
	w.must(w.client.Get(w.t.Context(), client.ObjectKeyFromObject(p.object), p.object))
	before := p.object.DeepCopy()
	w.must(change(p.object.Object))
	w.must(w.client.Patch(w.t.Context(), p.object, client.MergeFrom(before)))
}

// make makes a control plane's Machine in a zone.
func (p *plane) make(zone string) {
	p.w.t.Helper()
	p.made++
	p.w.newOwned(fmt.Sprintf("cp-%d", p.made), true, zone, p.object)
}

// newOwned makes a Machine that something controls, and its MaasMachine.
func (w *world) newOwned(name string, controlPlane bool, zone string, by client.Object) *infrav1.MaasMachine {
	w.t.Helper()
	m := w.newMachine(name, controlPlane, infrav1.MaasMachineSpec{ProvisioningMode: infrav1.ProvisioningModeLXD, FailureDomain: zone})
	machine := &clusterv1.Machine{}
	w.must(w.client.Get(w.t.Context(), client.ObjectKeyFromObject(m), machine))
	w.patch(machine, func() {
		machine.Finalizers = append(machine.Finalizers, holdMachine)
		machine.Spec.FailureDomain = zone
		if by != nil {
			gvk, err := w.client.GroupVersionKindFor(by)
			if err != nil {
				w.t.Fatal(err)
			}
			machine.OwnerReferences = append(machine.OwnerReferences, *metav1.NewControllerRef(by, gvk))
		}
	})
	return m
}

// step does what is due, and returns how many Machines are healthy.
func (p *plane) step(ctx context.Context) (healthy int) {
	w := p.w
	list := &clusterv1.MachineList{}
	if err := w.client.List(ctx, list, client.InNamespace(w.namespace), client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
		return 0
	}
	deleting := 0
	for i := range list.Items {
		m := &list.Items[i]
		if !m.DeletionTimestamp.IsZero() {
			deleting++
		}
		if w.advance(ctx, m) {
			healthy++
		}
	}
	p.most, p.fewest = max(p.most, deleting), min(p.fewest, healthy)
	if len(list.Items) < p.replicas && p.zone != "" {
		p.make(p.zone)
	}
	return healthy
}

// advance does what Cluster API would do next with a Machine, and reports whether it is healthy.
func (w *world) advance(ctx context.Context, m *clusterv1.Machine) bool {
	maasMachine := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}}
	err := w.sees(ctx, maasMachine)
	if apierrors.IsNotFound(err) { // It may be new.
		err = w.client.Get(ctx, client.ObjectKeyFromObject(m), maasMachine)
	}
	switch {
	case !m.DeletionTimestamp.IsZero() && apierrors.IsNotFound(err):
		w.patch(m, func() { m.Finalizers = nil })
	case err != nil:
	case !m.DeletionTimestamp.IsZero():
		_ = w.client.Delete(ctx, maasMachine) // Again if it fails.
	case conditions.IsTrue(m, clusterv1.ReadyCondition):
		return true
	case conditions.IsTrue(maasMachine, infrav1.MachineDeployedCondition):
		w.patchStatus(m, func() {
			m.Status.NodeRef.Name = m.Name
			for _, condition := range []string{clusterv1.ReadyCondition, clusterv1.AvailableCondition} {
				conditions.Set(m, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: "Test"})
			}
		})
	}
	return false
}

// domains says which zones take control planes.
func (w *world) domains(zones ...string) {
	w.t.Helper()
	w.patchStatus(w.cluster, func() {
		w.cluster.Status.FailureDomains = nil
		for _, zone := range zones {
			w.cluster.Status.FailureDomains = append(w.cluster.Status.FailureDomains, clusterv1.FailureDomain{Name: zone, ControlPlane: ptr.To(true)})
		}
	})
}

func withEvacuation(w *world) { w.hostInterval, w.evacuation = readOften, true }

// vmSays waits until a VM on a host is said to be in a state.
func (w *world) vmSays(host *infrav1.LXDHost, name string, state infrav1.LXDEvacuationState) {
	w.t.Helper()
	w.eventually(host, name+" "+string(state), func() bool {
		if host.Status.Evacuation == nil {
			return false
		}
		for _, vm := range host.Status.Evacuation.VMs {
			if vm.Machine == w.namespace+"/"+name {
				return vm.State == state && vm.Message != ""
			}
		}
		return false
	})
}

// isKept checks that a Machine is not being deleted.
func (w *world) isKept(name string) {
	w.t.Helper()
	machine := &clusterv1.Machine{}
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, machine); err != nil || !machine.DeletionTimestamp.IsZero() {
		w.t.Errorf("Machine %s is not kept: %v, deleted at %v", name, err, machine.DeletionTimestamp)
	}
}

// Two hosts that are emptied at once never take two Machines of one control plane.
func TestHostsAreEvacuated(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, withEvacuation)
	a, b := w.lxdHost(w.hostName("lxd-a")), w.lxdHost(w.hostName("lxd-b"))
	p := w.newPlane(3, "zone-a", "zone-b", "zone-c")
	p.zone = "zone-c"
	w.domains("zone-c")
	for _, host := range []*infrav1.LXDHost{a, b} {
		w.hostSays(host, infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
		w.change(host, func(s *infrav1.LXDHostSpec) { s.Evacuate = true })
	}
	for _, host := range []*infrav1.LXDHost{a, b} {
		w.await(host.Name+" is empty", host, func(ctx context.Context) bool {
			p.step(ctx)
			return w.sees(ctx, host) == nil && conditions.IsTrue(host, infrav1.EvacuatedCondition)
		})
		w.hostSays(host, infrav1.SchedulableCondition, metav1.ConditionFalse, infrav1.EvacuateReason)
		w.hostSays(host, infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
		w.eventUp(host, infrav1.EvacuatedReason)
	}
	w.await("the last successor is made", a, func(ctx context.Context) bool {
		p.step(ctx)
		return p.made >= 5
	})
	if p.most != 1 || p.fewest != 2 || p.made != 5 {
		t.Errorf("at most %d Machines were being deleted at once, at least %d were healthy, %d were made", p.most, p.fewest, p.made)
	}
	for _, m := range w.maas.Machines() {
		if m.VMHost == "lxd-a" || m.VMHost == "lxd-b" {
			t.Errorf("VM %s is on %s", m.Hostname, m.VMHost)
		}
	}
	w.change(a, func(s *infrav1.LXDHostSpec) { s.Evacuate = false })
	w.hostSays(a, infrav1.SchedulableCondition, metav1.ConditionTrue, infrav1.ReadyReason)
	w.eventually(a, "no longer evacuated", func() bool {
		return a.Status.Evacuation == nil && !conditions.Has(a, infrav1.EvacuatedCondition)
	})
}

// hostGoes waits until an LXDHost is as wanted while a control plane is kept going, and checks that the control plane lost
// one Machine, and no more at any moment.
func (p *plane) hostGoes(host *infrav1.LXDHost, what string, done func(context.Context) bool) {
	p.w.t.Helper()
	p.w.await(host.Name+" "+what, host, func(ctx context.Context) bool {
		p.step(ctx)
		return done(ctx)
	})
	p.w.await("the successor is healthy", host, func(ctx context.Context) bool { return p.step(ctx) == p.replicas })
	if p.most != 1 || p.fewest != p.replicas-1 || p.made != p.replicas+1 {
		p.w.t.Errorf("at most %d Machines were being deleted at once, at least %d were healthy, %d were made", p.most, p.fewest, p.made)
	}
}

// A VM host whose machine is being deleted, here or by another management cluster, is emptied: nobody need ask for it.
func TestAVMHostWhoseMachineGoesIsEmptied(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, withEvacuation)
	host := w.lxdHost(w.hostName("lxd-a"))
	p := w.newPlane(3, "zone-a", "zone-b", "zone-c")
	p.zone = "zone-c"
	w.domains("zone-c")
	w.maasCall(http.MethodPost, fmt.Sprintf("vm-hosts/%d/?op=add_tag", w.vmHost("lxd-a").ID), url.Values{"tag": {lxd.RetiringTag}})
	p.hostGoes(host, "is empty", func(ctx context.Context) bool {
		return w.sees(ctx, host) == nil && conditions.IsTrue(host, infrav1.EvacuatedCondition)
	})
	w.hostSays(host, infrav1.SchedulableCondition, metav1.ConditionFalse, infrav1.RetiringReason)
}

// An LXDHost that a person deletes is emptied, and goes.
func TestAnLXDHostThatIsDeletedIsEmptied(t *testing.T) {
	t.Parallel()
	a, b := directhost.Start(t), directhost.Start(t)
	w := newWorld(t, withLXDHosts, withEvacuation)
	roomy := func(host *infrav1.LXDHost) {
		host.Spec.OverCommit = infrav1.LXDOverCommit{CPUPercent: 800, MemoryPercent: 400}
	}
	host := w.addLXDHost(a, "host-a", "zone-a", roomy)
	w.addLXDHost(b, "host-b", "zone-b", roomy)
	w.provisionedCluster()
	p := w.newPlane(3, "zone-a", "zone-b", "zone-b")
	p.zone = "zone-b"
	w.domains("zone-b")
	w.beginDeletion(host)
	p.hostGoes(host, "is gone", w.hostGone(host))
	if got := a.VMs(t); len(got) > 0 {
		t.Errorf("its LXD has %v", got)
	}
}

// What a person takes back stops: what is on its way goes, and nothing else.
func TestAnEvacuationThatIsTakenBackStops(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, withEvacuation)
	host := w.lxdHost(w.hostName("lxd-a"))
	p := w.newPlane(3, "zone-a", "zone-a", "zone-b")
	w.domains("zone-b", "zone-c")
	w.change(host, func(s *infrav1.LXDHostSpec) { s.Evacuate = true })
	w.vmSays(host, "cp-1", infrav1.LXDVMLeaving)
	w.vmSays(host, "cp-2", infrav1.LXDVMWaiting)
	w.eventUp(&infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Name: "cp-1"}}, "Evacuating")
	w.hostSays(host, infrav1.EvacuatedCondition, metav1.ConditionFalse, infrav1.EvacuatingReason)
	w.change(host, func(s *infrav1.LXDHostSpec) { s.Evacuate = false })
	w.eventually(host, "no longer evacuated", func() bool { return !conditions.Has(host, infrav1.EvacuatedCondition) })
	p.zone = "zone-c"
	w.await("the control plane is whole", p.object, func(ctx context.Context) bool { return p.step(ctx) == 3 && p.made == 4 })
	w.isKept("cp-2")
	if p.most != 1 || p.fewest != 2 {
		t.Errorf("%d Machines were being deleted at once, %d were healthy", p.most, p.fewest)
	}
}

// The only Machine of a control plane leaves after its successor was made, which is the control plane's business.
func TestAControlPlaneOfOneIsRolledOut(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, withEvacuation)
	host := w.lxdHost(w.hostName("lxd-a"))
	p := w.newPlane(1, "zone-a")
	w.domains("zone-b")
	began := time.Now().Add(-time.Second)
	w.change(host, func(s *infrav1.LXDHostSpec) { s.Evacuate = true })
	w.vmSays(host, "cp-1", infrav1.LXDVMLeaving)
	w.isKept("cp-1")
	after := func() string {
		w.must(w.client.Get(t.Context(), client.ObjectKeyFromObject(p.object), p.object))
		text, _, _ := unstructured.NestedString(p.object.Object, "spec", "rollout", "after")
		return text
	}
	first := after()
	if at, err := time.Parse(time.RFC3339, first); err != nil || at.Before(began.Truncate(time.Second)) {
		t.Errorf("the rollout is after %q", first)
	}
	p.make("zone-b")
	w.await("the successor is healthy", p.object, func(ctx context.Context) bool { return p.step(ctx) == 2 })
	w.isKept("cp-1")
	if second := after(); second != first {
		t.Errorf("the rollout was asked for again: after %s, then after %s", first, second)
	}
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "cp-1"}}
	w.beginDeletion(machine)
	w.await("the host is empty", host, func(ctx context.Context) bool {
		p.step(ctx)
		return w.sees(ctx, host) == nil && conditions.IsTrue(host, infrav1.EvacuatedCondition)
	})
}

// What can't leave says why, and is not touched.
func TestVMsThatCannotLeave(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, withEvacuation)
	host := w.lxdHost(w.hostName("lxd-a"))
	set := w.newMachineSet("md", 2)
	var vms []*infrav1.MaasMachine
	for name, by := range map[string]client.Object{"alone": nil, "paused": set, "cramped": set} {
		vms = append(vms, w.newOwned(name, false, "zone-a", by))
	}
	for _, m := range vms {
		w.deployed(m)
		machine := &clusterv1.Machine{}
		w.must(w.client.Get(t.Context(), client.ObjectKeyFromObject(m), machine))
		w.advance(t.Context(), machine)
		if m.Name == "paused" {
			w.patch(machine, func() { machine.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
		}
	}
	w.change(host, func(s *infrav1.LXDHostSpec) { s.Evacuate = true })
	w.hostSays(host, infrav1.EvacuatedCondition, metav1.ConditionFalse, infrav1.VMsHeldReason)
	for _, m := range vms {
		w.vmSays(host, m.Name, infrav1.LXDVMHeld)
		w.isKept(m.Name)
	}
	if host.Status.Evacuation.Held != 3 {
		t.Errorf("it counts %+v", host.Status.Evacuation)
	}

	t.Run("until somebody makes room", func(*testing.T) {
		machine := &clusterv1.Machine{}
		w.must(w.client.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "cramped"}, machine))
		w.patch(machine, func() { machine.Spec.FailureDomain = "zone-b" })
		w.vmSays(host, "cramped", infrav1.LXDVMLeaving)
		w.hostSays(host, infrav1.EvacuatedCondition, metav1.ConditionFalse, infrav1.EvacuatingReason)
		w.isKept("paused")
		w.isKept("alone")
	})
}

// Nor does what can't be looked at slow down the rounds, which are about all hosts.
func TestAVMThatCannotBeLookedAtHoldsUpNoHost(t *testing.T) {
	t.Parallel()
	var looks atomic.Int64
	w := newWorld(t, withEvacuation, func(w *world) {
		w.between = func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(request *http.Request) (*http.Response, error) {
				if strings.Contains(request.URL.Path, "/kubeadmcontrolplanes/") {
					looks.Add(1)
				}
				return next.RoundTrip(request)
			})
		}
	})
	w.provisionedCluster()
	host := w.lxdHost(w.hostName("lxd-a"))
	p := w.newPlane(1, "zone-a")
	w.patchPlane(p, func(o map[string]any) error {
		unstructured.RemoveNestedField(o, "spec", "replicas")
		return nil
	})
	w.change(host, func(s *infrav1.LXDHostSpec) { s.Evacuate = true })
	w.vmSays(host, "cp-1", infrav1.LXDVMWaiting)
	before := looks.Load()
	w.await("there are many more rounds", host, func(context.Context) bool { return looks.Load() > before+40 })
}

func (w *world) newMachineSet(name string, replicas int32) *clusterv1.MachineSet {
	w.t.Helper()
	labels := map[string]string{"set": name}
	set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: clusterv1.MachineSetSpec{
		ClusterName: clusterName, Replicas: ptr.To(replicas), Selector: metav1.LabelSelector{MatchLabels: labels},
		Template: clusterv1.MachineTemplateSpec{ObjectMeta: clusterv1.ObjectMeta{Labels: labels}, Spec: clusterv1.MachineSpec{
			ClusterName: clusterName, Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("none")},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "MaasMachineTemplate", Name: name},
		}},
	}}
	w.create(set)
	return set
}

// Without the right to, nothing is replaced, and the host says what is missing.
func TestEvacuationMustBeEnabled(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, func(w *world) { w.hostInterval = readOften })
	empty, host := w.lxdHost(w.hostName("lxd-b")), w.lxdHost(w.hostName("lxd-a"))
	w.newPlane(1, "zone-a")
	for _, h := range []*infrav1.LXDHost{empty, host} {
		w.change(h, func(s *infrav1.LXDHostSpec) { s.Evacuate = true })
	}
	w.hostSays(host, infrav1.EvacuatedCondition, metav1.ConditionFalse, infrav1.EvacuationNotEnabledReason)
	w.hostSays(empty, infrav1.EvacuatedCondition, metav1.ConditionTrue, infrav1.EvacuatedReason)
	w.isKept("cp-1")
}
