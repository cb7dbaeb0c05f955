// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// Others write the id of a VM's device into their MaasMachines: they get neither the VM nor the device, and delete neither.
func TestADeviceIsNotTakenByItsID(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts)
	w.addLXDHost(server, "host-a", "zone-a")
	w.provisionedCluster()
	before := w.maas.State()
	m := w.newMachine("md-0", false, vm) // MAAS's DNS has no record for it.
	w.deployed(m)
	made := w.maas.State()
	for name, spec := range map[string]infrav1.MaasMachineSpec{"vm": vm, "metal": {}} {
		thief := w.newMachine("thief-"+name, false, withSpec(spec, func(s *infrav1.MaasMachineSpec) { s.SystemID = m.Spec.SystemID }))
		w.refused(thief, infrav1.MachineDeployedCondition, infrav1.MachineNotOursReason)
		w.stored(thief)
		if runs(thief) || len(thief.Status.Addresses) > 0 {
			t.Errorf("%s has %+v", thief.Name, thief.Status)
		}
		w.delete(thief)
	}
	w.unchanged(made)
	if got := server.VMs(t); got[m.Status.Hostname] != "Running" {
		t.Errorf("LXD has %v", got)
	}
	w.deployed(m)
	w.delete(m)
	w.unchanged(before)
}

// What people do to a VM's device in MAAS does not keep the VM from being deleted, nor make it be replaced. What is not ours
// any more by its mark stays.
func TestADeviceThatPeopleChangedInMAAS(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts)
	w.addLXDHost(server, "host-a", "zone-a")
	w.provisionedCluster()
	change := func(m *infrav1.MaasMachine, method string, values url.Values) {
		w.maasCall(method, "devices/"+m.Spec.SystemID+"/", values)
	}
	for name, tc := range map[string]struct {
		do    func(*infrav1.MaasMachine)
		holds bool
		stays bool
	}{
		"renamed":  {do: func(m *infrav1.MaasMachine) { change(m, http.MethodPut, url.Values{"hostname": {"renamed"}}) }},
		"unmarked": {do: func(m *infrav1.MaasMachine) { change(m, http.MethodPut, url.Values{"description": {"mine"}}) }, stays: true},
		"deleted":  {do: func(m *infrav1.MaasMachine) { change(m, http.MethodDelete, nil) }, holds: true},
	} {
		t.Run(name, func(t *testing.T) {
			before := w.maas.State()
			m := w.deployedMachine("cp-"+name, false, vm)
			hostname, address := m.Status.Hostname, m.Status.Addresses[0]
			tc.do(m)
			if tc.holds {
				w.eventually(m, "holding", func() bool { return !runs(m) })
				w.stored(m)
				if m.Status.FailureReason != "" || m.Status.Addresses[0] != address {
					t.Errorf("the status is %+v", m.Status)
				}
			}
			if got := server.VMs(t); got[hostname] != "Running" {
				t.Errorf("LXD has %v", got)
			}
			w.delete(m)
			if got := server.VMs(t); len(got) > 0 {
				t.Errorf("after the deletion LXD has %v", got)
			}
			if tc.stays {
				w.eventsOf(m, infrav1.MachineNotOursReason)
				if len(w.devices()) != 1 {
					t.Error("another's device is deleted")
				}
				change(m, http.MethodDelete, nil)
			}
			w.unchanged(before)
		})
	}
}

// The manager dies when it has made a VM's device, of which only the MAC address and the mark are known, and somebody renames
// that: the next manager finds it, and neither making the VM nor giving up leaves one in MAAS.
func TestADeviceThatIsRenamedBeforeItIsRecorded(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts)
	w.addLXDHost(server, "host-a", "zone-a")
	w.provisionedCluster()
	before := w.maas.State()
	for _, deleted := range []bool{false, true} {
		t.Run(fmt.Sprintf("deleted %v", deleted), func(t *testing.T) {
			var dies atomic.Bool
			w.maas.SetHook(func(call simulator.Call, at simulator.Phase) error {
				if at == simulator.After && call.Method == http.MethodPost && call.Endpoint == "devices/" {
					dies.Store(true)
				}
				if dies.Load() {
					return errors.New("the manager is dead")
				}
				return nil
			})
			m := w.newMachine(fmt.Sprintf("cp-%v", deleted), true, vm)
			w.await("the manager dies", m, func(context.Context) bool { return dies.Load() })
			w.stopManager()
			w.maas.SetHook(nil)
			lost := w.devices()[0]
			w.maasCall(http.MethodPut, "devices/"+lost.SystemID+"/", url.Values{"hostname": {"renamed"}})
			if deleted {
				w.beginDeletion(m)
			}
			w.startManager()
			if !deleted {
				w.deployed(m)
				if made := w.devices(); len(made) != 1 || made[0].Hostname != lost.Hostname || made[0].SystemID != m.Spec.SystemID {
					t.Errorf("it has %s; MAAS has %+v", m.Spec.SystemID, made)
				}
				w.beginDeletion(m)
			}
			w.goes(m)
			w.unchanged(before)
		})
	}
}

// While a VM is made, a user writes the id of another machine into its spec: neither is changed, and of the VM nothing is
// left.
func TestASystemIDThatAUserWritesWhileAVMIsMade(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, withLXDHosts)
	write := make(chan func(), 1)
	var done atomic.Bool
	behind := server.Behind(t, func(lxd http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && r.URL.Path == "/1.0/instances" && done.CompareAndSwap(false, true) {
				(<-write)()
			}
			lxd.ServeHTTP(rw, r)
		})
	})
	w.addLXDHost(behind, "host-a", "zone-a")
	w.provisionedCluster()
	theirs := w.deployedMachine("md-0", false, infrav1.MaasMachineSpec{})
	before := w.maas.State()
	m := w.newMachine("cp-0", true, vm)
	write <- func() {
		patch := client.RawPatch(client.Merge.Type(), fmt.Appendf(nil, `{"spec": {"systemID": %q}}`, theirs.Spec.SystemID))
		if err := w.client.Patch(t.Context(), m.DeepCopy(), patch); err != nil {
			t.Error(err)
		}
	}
	w.refused(m, infrav1.MachineDeployedCondition, infrav1.MachineNotOursReason)
	if recorded := recorded(t, m); recorded.Runs != "" {
		t.Errorf("recorded is %+v", recorded)
	}
	w.delete(m)
	if got := server.VMs(t); len(got) > 0 {
		t.Errorf("after the deletion LXD has %v", got)
	}
	w.unchanged(before)
	w.deployed(theirs)
}

// An LXDHost refuses a VM whose device is there. A VM host, where it needs none, has it instead.
func TestAVMThatAnLXDHostRefusedIsMadeOnAVMHost(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	w := newWorld(t, func(w *world) { w.timeScale, w.hostInterval = 30, readOften })
	w.addLXDHost(server.Behind(t, refusing(new(atomic.Bool))), "host-a", "zone-a")
	mirrored := w.lxdHost(w.hostName("lxd-a"))
	w.hostSays(mirrored, infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
	w.change(mirrored, func(s *infrav1.LXDHostSpec) { s.Unschedulable = true })
	w.provisionedCluster()
	m := w.newMachine("cp-0", true, withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.FailureDomain = "zone-a" }))
	w.eventually(m, "refused", func() bool { return len(w.devices()) == 1 })
	w.change(mirrored, func(s *infrav1.LXDHostSpec) { s.Unschedulable = false })
	w.deployed(m)
	if m.Status.LXDHost != "lxd-a" || len(w.devices()) > 0 {
		t.Errorf("it is on %s; MAAS has the devices %v", m.Status.LXDHost, w.devices())
	}
	w.delete(m)
	w.noVMs()
}

// refusing makes LXD refuse new VMs, unless it is off.
func refusing(off *atomic.Bool) lxdtest.Middleware {
	return refusingThose(off, func(r *http.Request) bool { return r.Method == http.MethodPost && r.URL.Path == "/1.0/instances" })
}

// refusingThose is an LXD that fails at some requests, until that is over.
func refusingThose(off *atomic.Bool, fails func(*http.Request) bool) lxdtest.Middleware {
	return func(lxd http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !off.Load() && fails(r) {
				http.Error(w, `{"type":"error","error":"no","error_code":500}`, http.StatusInternalServerError)
				return
			}
			lxd.ServeHTTP(w, r)
		})
	}
}
