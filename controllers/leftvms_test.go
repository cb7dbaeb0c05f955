// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/ipam"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// withDeadHosts gives up dead hosts soon, and reports often what is left there.
func withDeadHosts(w *world) { w.hostTimeout, w.hostInterval = time.Second, readOften }

// leftOn deletes a VM whose host is dead, and returns the LXDHost, which says so.
func (w *world) leftOn(m *infrav1.MaasMachine) *infrav1.LXDHost {
	w.t.Helper()
	hostname := m.Status.Hostname
	host := w.lxdHost(w.hostName(m.Status.LXDHost))
	w.maas.BreakVMHost(m.Status.LXDHost, true, false)
	w.beginDeletion(m)
	w.goes(m)
	w.saysLeft(host, hostname)
	return host
}

// saysLeft waits until an LXDHost says of a VM that it may be left, and these words.
func (w *world) saysLeft(host *infrav1.LXDHost, words ...string) {
	w.t.Helper()
	w.eventually(host, "says of a VM that it may be left", func() bool {
		c := conditions.Get(host, infrav1.NoVMsLeftCondition)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != infrav1.VMsLeftReason {
			return false
		}
		for _, word := range words {
			if !strings.Contains(c.Message, word) {
				return false
			}
		}
		return true
	})
}

// isLeft checks that the host still has the VM of a MaasMachine that is gone.
func (w *world) isLeft(m *infrav1.MaasMachine) {
	w.t.Helper()
	if vm := m.Status.Hostname + "@" + m.Status.LXDHost; !slices.Contains(w.vmsOnHosts(), vm) {
		w.t.Errorf("the hosts have %v, and not %s", w.vmsOnHosts(), vm)
	}
}

// saysNothingLeft waits until an LXDHost no longer says that VMs may be left.
func (w *world) saysNothingLeft(host *infrav1.LXDHost) {
	w.t.Helper()
	w.eventually(host, "says that nothing is left", func() bool { return !conditions.Has(host, infrav1.NoVMsLeftCondition) })
}

func TestAVMThatADeadHostKeptIsDeletedWhenTheHostIsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withDeadHosts)
	m := w.deployedVM()
	dead := m.Status.LXDHost
	host := w.leftOn(m)
	w.eventsOf(m, "VMMayRemain", m.Status.Hostname, dead, "remembers it")
	w.stopManager() // What is left is not only in memory.
	w.startManager()
	w.maas.BreakVMHost(dead, false, false)
	w.eventUp(host, "LeftVMDeleted")
	w.saysNothingLeft(host)
	w.noVMs()
}

// Whoever may write an LXDHost may make its record unreadable, or leave no place for another entry. The VMs of others go
// all the same.
func TestAnLXDHostThatRemembersNothingHoldsNoVM(t *testing.T) {
	t.Parallel()
	for name, fill := range map[string]func(*infrav1.LXDHost){
		"unreadable": func(host *infrav1.LXDHost) { host.Annotations[infrav1.RecordAnnotation] = "{" },
		"full": func(host *infrav1.LXDHost) {
			used := 0
			for key, value := range host.Annotations {
				used += len(key) + len(value)
			}
			host.Annotations["filler"] = strings.Repeat("x", 256<<10-used-len("filler")-100)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, withDeadHosts)
			m := w.deployedVM()
			host := w.lxdHost(w.hostName(m.Status.LXDHost))
			w.hostSays(host, infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
			w.patch(host, func() { fill(host) })
			w.maas.BreakVMHost(m.Status.LXDHost, true, false)
			w.beginDeletion(m)
			w.goes(m)
			w.eventsOf(m, "VMMayRemain", m.Status.Hostname, m.Status.LXDHost, "capmaasctl orphans")
			w.isLeft(m)
		})
	}
}

// A host that was reinstalled has no VM any more.
func TestAVMThatIsNotLeftIsForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withDeadHosts)
	m := w.deployedVM()
	dead, hostname := m.Status.LXDHost, m.Status.Hostname
	host := w.leftOn(m)
	if !w.maas.DeleteVM(dead, hostname) {
		t.Fatalf("the hosts have %v", w.vmsOnHosts())
	}
	w.maas.BreakVMHost(dead, false, false)
	w.eventUp(host, "LeftVMGone")
	w.saysNothingLeft(host)
}

// As long as a VM may run on a host that can't be asked, no other one gets its address from the pool.
func TestTheAddressOfAVMThatIsLeftIsFreedWhenTheVMIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withDeadHosts)
	w.servePools()
	w.provisionedCluster()
	w.create(ipam.NewPool(w.namespace, "pool", "10.77.0.60", "10.77.0.60"))
	old := w.newMachine("md-0", false, fromPool(vm, "pool"))
	w.deployed(old)
	dead := old.Status.LXDHost
	host := w.leftOn(old)
	next := w.newMachine("md-1", false, fromPool(vm, "pool"))
	w.refused(next, infrav1.MachineDeployedCondition, infrav1.IPAddressRefusedReason)
	claim := &ipamv1.IPAddressClaim{}
	w.must(w.client.Get(t.Context(), client.ObjectKeyFromObject(old), claim))
	if len(claim.OwnerReferences) > 0 || claim.Annotations[infrav1.LeftVMAnnotation] != old.Status.Hostname {
		t.Errorf("the claim is owned by %v, and left to %q", claim.OwnerReferences, claim.Annotations[infrav1.LeftVMAnnotation])
	}
	w.isLeft(old)
	w.maas.BreakVMHost(dead, false, false)
	w.saysNothingLeft(host)
	w.deployed(next)
	if next.Status.StaticIP != "10.77.0.60" {
		t.Errorf("the next one has %s", next.Status.StaticIP)
	}
}

// A dead VM host is deleted in MAAS, or a backup of MAAS lacks it. That says nothing about its VMs, which may run.
func TestTheAddressOfAVMIsHeldWhenMAASDoesNotHaveItsVMHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withDeadHosts)
	w.servePools()
	w.provisionedCluster()
	w.create(ipam.NewPool(w.namespace, "pool", "10.77.0.60", "10.77.0.60"))
	m := w.newMachine("md-0", false, fromPool(vm, "pool"))
	w.deployed(m)
	w.must(w.maasClient().DeleteVMHost(t.Context(), maas.Unrecorded("a test"), w.vmHost(m.Status.LXDHost).ID))
	w.beginDeletion(m)
	w.goes(m)
	claim := &ipamv1.IPAddressClaim{}
	w.must(w.client.Get(t.Context(), client.ObjectKeyFromObject(m), claim))
	if !claim.DeletionTimestamp.IsZero() || claim.Annotations[infrav1.LeftVMAnnotation] != m.Status.Hostname {
		t.Errorf("the claim is deleted at %v, and left to %q", claim.DeletionTimestamp, claim.Annotations[infrav1.LeftVMAnnotation])
	}
	w.eventsOf(m, "VMMayRemain", m.Status.Hostname, m.Status.LXDHost, "does not have VM host")
}

// A dead VM host is deleted in MAAS. What was left there is told still, and deleted when the host is registered again.
func TestAVMThatWasLeftIsNotForgottenWithItsVMHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withDeadHosts)
	m := w.deployedVM()
	dead := m.Status.LXDHost
	host := w.leftOn(m)
	id := w.hosts()[slices.IndexFunc(w.hosts(), func(h maas.VMHost) bool { return h.Name == dead })].ID
	w.maasCall(http.MethodDelete, fmt.Sprintf("vm-hosts/%d/", id), nil)
	w.eventually(host, "gone from MAAS", func() bool {
		return conditions.GetReason(host, infrav1.RegisteredCondition) == infrav1.VMHostGoneReason
	})
	w.saysLeft(host, m.Status.Hostname, "MAAS does not have its VM host")
}

// Nobody knows whether the cluster is deleted, or lives in another management cluster.
func TestAVMWhoseClusterIsGoneIsSpared(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t, withDeadHosts)
	m := w.deployedMachine("md-0", false, vm)
	dead := m.Status.LXDHost
	host := w.leftOn(m)
	w.deleteCluster(cluster)
	w.maas.BreakVMHost(dead, false, false)
	w.eventUp(host, "LeftVMKept")
	w.isLeft(m)
}

// A MaasMachine that is made anew under the same name has a VM of the same name.
func TestAVMWhoseNameIsClaimedAgainIsSpared(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withDeadHosts)
	m := w.deployedVM()
	dead := m.Status.LXDHost
	host := w.leftOn(m)
	again := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}, Spec: infrav1.MaasMachineSpec{Image: m.Spec.Image}}
	w.create(again) // Nothing owns it, so it has no VM.
	w.maas.BreakVMHost(dead, false, false)
	w.saysLeft(host, "has its name")
	w.isLeft(m)
}

// A MaasMachine that is made anew has a VM of the same name on another host. The one that was left is not forgotten for that.
func TestAVMWhoseNameIsUsedAgainIsNotForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withDeadHosts)
	m := w.deployedVM()
	dead, hostname := m.Status.LXDHost, m.Status.Hostname
	host := w.leftOn(m)
	w.delete(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}})
	w.delete(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}})
	again := w.deployedMachine(m.Name, false, vm)
	if again.Status.Hostname != hostname || again.Status.LXDHost == dead {
		t.Fatalf("the new VM is %s on %s", again.Status.Hostname, again.Status.LXDHost)
	}
	w.maas.BreakVMHost(dead, false, false)
	w.saysLeft(host, "has its name")
	w.isLeft(m)
	w.delete(again)
	w.saysNothingLeft(host) // Either of the two deletes it: the MaasMachine that had the name, or the LXDHost.
	w.noVMs()
}

// Whoever may write an LXDHost may write its record, too.
func TestAVMThatTheManagerDidNotRecordIsSpared(t *testing.T) {
	t.Parallel()
	for name, forge := range map[string]func(vm *record.LeftVM, on, other maas.VMHost){
		"another name":        func(vm *record.LeftVM, _, _ maas.VMHost) { vm.Machine = "other" },
		"another owner":       func(vm *record.LeftVM, _, _ maas.VMHost) { vm.OwnerID = "aaaaaaaaaaaa" },
		"another host":        func(vm *record.LeftVM, _, other maas.VMHost) { vm.Host = fmt.Sprintf("%d/%s", other.ID, other.Name) },
		"a direct host":       func(vm *record.LeftVM, on, _ maas.VMHost) { vm.Host = lxd.DirectRef(vm.Namespace, on.Name) },
		"no reference at all": func(vm *record.LeftVM, _, _ maas.VMHost) { vm.Host = "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cluster := clusterWorld(t, withDeadHosts)
			on, other := w.hosts()[0], w.hosts()[1]
			owner := cluster.Annotations[infrav1.OwnerIDAnnotation]
			forged := record.LeftVM{
				Hostname: maas.Hostname("gone", owner), OwnerID: owner, Namespace: w.namespace, Machine: "gone", Host: fmt.Sprintf("%d/%s", on.ID, on.Name),
			}
			params := maas.ComposeParams{Hostname: forged.Hostname, Cores: 1, Memory: 2048, SkipCommissioning: true, ZoneID: 1}
			if _, err := w.maasClient().Compose(t.Context(), maas.Unrecorded("a test"), on.ID, params); err != nil {
				t.Fatal(err)
			}
			forge(&forged, on, other)
			host := w.lxdHost(w.hostName(on.Name))
			w.hostSays(host, infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
			recorded, err := (&record.Records{Client: w.client}).OpenHost(host)
			if err != nil {
				t.Fatal(err)
			}
			w.must(recorded.Store(t.Context(), func() { recorded.Left.Leave(forged, time.Now()) }))
			w.saysLeft(host, "did not record it")
			if vms := w.vmsOnHosts(); len(vms) != 1 {
				t.Errorf("the hosts have %v", vms)
			}
		})
	}
}

// A VM host that is renamed in MAAS has a new LXDHost, which knows what the former one knew, also what a person chose in the
// moment before it went.
func TestAVMThatWasLeftOnAVMHostThatIsRenamed(t *testing.T) {
	t.Parallel()
	going := make(chan func(), 1)
	w := newWorld(t, withDeadHosts, func(w *world) {
		w.between = func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(request *http.Request) (*http.Response, error) {
				if request.Method == http.MethodDelete && strings.Contains(request.URL.Path, "/lxdhosts/") {
					select {
					case cordon := <-going:
						cordon()
					default:
					}
				}
				return next.RoundTrip(request)
			})
		}
	})
	m := w.deployedVM()
	dead := m.Status.LXDHost
	host := w.leftOn(m)
	going <- func() { w.change(host, func(spec *infrav1.LXDHostSpec) { spec.Unschedulable = true }) }
	id := w.hosts()[slices.IndexFunc(w.hosts(), func(h maas.VMHost) bool { return h.Name == dead })].ID
	w.maasCall(http.MethodPut, fmt.Sprintf("vm-hosts/%d/", id), url.Values{"name": {"renamed"}})
	renamed := w.lxdHost(w.hostName("renamed"))
	w.saysLeft(renamed, m.Status.Hostname)
	w.hostSays(renamed, infrav1.SchedulableCondition, metav1.ConditionFalse, infrav1.UnschedulableReason)
	w.maas.BreakVMHost(dead, false, false)
	w.eventUp(renamed, "LeftVMDeleted")
	w.saysNothingLeft(renamed)
	w.noVMs()
}

// The host is back, its VM is a new machine in MAAS, and another user takes it before the manager finds it.
func TestAVMThatWasLeftAndThatAnotherUserTookIsTheirs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withDeadHosts, withOtherUser(false))
	m := w.deployedVM()
	dead, hostname := m.Status.LXDHost, m.Status.Hostname
	host := w.leftOn(m)
	w.stopManager()
	w.maas.BreakVMHost(dead, false, false)
	w.lookAtHosts()
	id := w.named(hostname)
	w.await("the VM is Ready", host, func(context.Context) bool { now, _ := w.maas.Machine(id); return now.Status == "Ready" })
	if _, err := w.as(otherKey).AllocateMachine(t.Context(), maas.Unrecorded("a test"), maas.AllocateParams{SystemID: id}); err != nil {
		t.Fatal(err)
	}
	w.startManager()
	w.saysNothingLeft(host)
	if theirs, there := w.maas.Machine(id); !there || theirs.Owner != "other" {
		t.Errorf("MAAS has %+v", theirs)
	}
}

// An LXDHost is away longer than a deletion waits for it. MAAS keeps the device of a VM that may run, so that nobody gets
// its address, but where Kubernetes gave the address. When the host is back, VM and device go, also if the LXDHost is being
// deleted, and that last.
func TestAVMThatAnLXDHostKeptIsDeletedWhenItIsBack(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts, withDeadHosts)
	host := w.addLXDHost(server, "host-a", "zone-a", func(h *infrav1.LXDHost) {
		h.Spec.OverCommit = infrav1.LXDOverCommit{CPUPercent: 1000, MemoryPercent: 1000}
	})
	cluster := w.provisionedCluster()
	before := w.maas.State()
	m := w.deployedMachine("cp-0", true, vm)
	static := w.newMachine("md-0", false, withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.StaticIP = "10.77.0.50" }))
	w.deployed(static)
	w.must(server.Daemon.Kill())
	for _, each := range []*infrav1.MaasMachine{m, static} {
		w.beginDeletion(each)
	}
	for _, each := range []*infrav1.MaasMachine{m, static} {
		w.goes(each)
		w.saysLeft(host, each.Status.Hostname)
	}
	if w.deviceOf(m) == nil || w.deviceOf(static) != nil {
		t.Errorf("MAAS has the devices %v, of %s and %s", w.devices(), m.Spec.SystemID, static.Spec.SystemID)
	}
	w.beginDeletion(host)
	// What a proxy before MAAS does not find is not gone.
	fault, err := w.maas.AddFault(simulator.Fault{Method: http.MethodGet, Endpoint: "devices/{id}/", SystemID: m.Spec.SystemID,
		Status: http.StatusNotFound, Body: "404 page not found"})
	if err != nil {
		t.Fatal(err)
	}
	w.must(server.Daemon.Restart(t.Context()))
	w.eventUp(host, "LeftVMDeleted")
	w.await("the device is asked for", host, func(context.Context) bool { return w.maas.Faults()[0].Done > 0 })
	w.maas.RemoveFault(fault)
	w.goes(host)
	if got := server.VMs(t); len(got) > 0 {
		t.Errorf("LXD has %v", got)
	}
	w.deleteCluster(cluster)
	w.unchanged(before)
}

// A VM may be left on two hosts: the first did not say that it failed to make it. That one frees nothing that the VM on the
// second one uses.
func TestTheAddressOfAVMIsFreedByTheLastHostThatMayHaveIt(t *testing.T) {
	t.Parallel()
	server, failed := directhost.Start(t), directhost.Start(t)
	w := newWorld(t, withLXDHosts, withDeadHosts)
	w.servePools()
	w.create(ipam.NewPool(w.namespace, "pool", "10.77.0.60", "10.77.0.60"))
	host := w.addLXDHost(server, "host-a", "zone-a")
	w.provisionedCluster()
	m := w.newMachine("md-0", false, fromPool(vm, "pool"))
	w.deployed(m)
	w.must(server.Daemon.Kill())
	w.beginDeletion(m)
	w.goes(m)
	w.saysLeft(host, m.Status.Hostname)
	first := w.addLXDHost(failed, "host-b", "zone-a")
	data, err := record.OfHost(host)
	w.must(err)
	left := data.Left[0]
	left.Host = lxd.DirectRef(first.Namespace, first.Name)
	recorded, err := (&record.Records{Client: w.client}).OpenHost(first)
	w.must(err)
	w.must(recorded.Merge(t.Context(), func(all *record.LeftVMs) { all.Leave(left, time.Now()) }))
	w.eventUp(first, "LeftVMGone")
	claim := &ipamv1.IPAddressClaim{}
	w.must(w.client.Get(t.Context(), client.ObjectKeyFromObject(m), claim))
	if !claim.DeletionTimestamp.IsZero() || w.deviceOf(m) == nil {
		t.Errorf("the claim is deleted at %v, MAAS has the devices %v", claim.DeletionTimestamp, w.devices())
	}
	w.must(server.Daemon.Restart(t.Context()))
	w.eventUp(host, "LeftVMGone")
	err = w.client.Get(t.Context(), client.ObjectKeyFromObject(m), claim)
	if (err == nil && claim.DeletionTimestamp.IsZero()) || client.IgnoreNotFound(err) != nil || w.deviceOf(m) != nil {
		t.Errorf("the claim is %v (%v), MAAS has the devices %v", claim, err, w.devices())
	}
}

// While a VM may run on a host that can't be asked, no other one of its name is made: it would have the same addresses.
func TestNoVMIsMadeWhileOneOfItsNameMayRun(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts, withDeadHosts)
	var asked atomic.Int32
	host := w.addLXDHost(server.Behind(t, w.inNoTurn(&asked)), "host-a", "zone-a")
	w.provisionedCluster()
	before := w.maas.State()
	m := w.deployedMachine("cp-0", true, vm)
	w.must(server.Daemon.Kill())
	w.beginDeletion(m)
	w.goes(m)
	w.saysLeft(host, m.Status.Hostname)
	asked.Store(0)
	other := directhost.Start(t)
	w.addLXDHost(other, "host-b", "zone-a")
	next := &infrav1.MaasMachine{Spec: withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.Image = vmImage })}
	next.Name, next.Namespace, next.Labels, next.OwnerReferences = m.Name, w.namespace, m.Labels, m.OwnerReferences
	w.create(next)
	w.refusedWith(next, infrav1.VMHostUnreachableReason, "host-a")
	if got := other.VMs(t); len(got) > 0 {
		t.Errorf("the other LXD has %v", got)
	}
	w.must(server.Daemon.Restart(t.Context()))
	w.eventUp(host, "LeftVMDeleted")
	if asked.Load() == 0 {
		t.Error("LXD was asked to delete nothing")
	}
	w.deployed(next)
	w.delete(next)
	for _, each := range []*directhost.Host{server, other} {
		if got := each.VMs(t); len(got) > 0 {
			t.Errorf("LXD has %v", got)
		}
	}
	w.unchanged(before)
}

// What spoke against the deletion of a VM, and does not any more, lets its LXDHost go no sooner: with that, nothing would
// remember the VM's device and its addresses.
func TestAnLXDHostGoesAfterTheDeviceOfAVMThatWasSpared(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts, withDeadHosts)
	host := w.addLXDHost(server, "host-a", "zone-a")
	w.provisionedCluster()
	m := w.deployedMachine("cp-0", true, vm)
	w.must(server.Daemon.Kill())
	w.beginDeletion(m)
	w.goes(m)
	w.saysLeft(host, m.Status.Hostname)
	w.stopManager()
	recorded, err := record.OfHost(host)
	w.must(err)
	recorded.Left[0].Spared = "a MaasMachine had its name"
	text, err := json.Marshal(recorded)
	w.must(err)
	w.patch(host, func() { host.Annotations[infrav1.RecordAnnotation] = string(text) })
	w.must(server.Daemon.Restart(t.Context()))
	w.beginDeletion(host)
	w.startManager()
	w.goes(host)
	if got, left := server.VMs(t), w.devices(); len(got) > 0 || len(left) > 0 {
		t.Errorf("LXD has %v, and MAAS the devices %v", got, left)
	}
}
