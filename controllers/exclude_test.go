// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// oneServer is a region in which several want one machine.
const oneServer = `
users: [{name: admin, admin: true, keys: ["admin:token:secret"]}]
domains: [{name: maas.sim, default: true}]
subnets: [{cidr: 10.77.0.0/24, gateway: 10.77.0.1, dhcp: true, dynamic_ranges: [{start: 10.77.0.200, end: 10.77.0.254}]}]
images: [{name: ubuntu/jammy}]
machines:
  - {names: [server], cores: 8, memory: 16384, disks: [100]}
`

// refuseTags makes MAAS refuse to tag machines, as it does to keys that are no administrator's.
func (w *world) refuseTags() {
	w.t.Helper()
	w.fault(simulator.Fault{Method: http.MethodPost, Endpoint: "tags/", Status: http.StatusForbidden})
}

// undoes reports whether a call undoes something on a machine that was released.
func (w *world) undoes(call simulator.Call, systemID string) bool {
	m, _ := w.maas.Machine(systemID)
	return slices.Contains([]string{"Ready", "Allocated"}, m.Status) && (call.Method == http.MethodDelete && call.Endpoint == "nodes/{id}/interfaces/{iface}/" ||
		call.Op == "link_subnet" || call.Op == "restore_storage_configuration")
}

// asBefore checks that a machine has nothing of what another object did to it.
func (w *world) asBefore(m *infrav1.MaasMachine, storage []string) {
	w.t.Helper()
	if nics := w.interfacesOf(m.Spec.SystemID); !slices.Equal(nics, []string{"enp1s0"}) {
		w.t.Errorf("the machine has the interfaces %v", nics)
	} else if mode := w.linkMode(m, nics[0]); mode != maas.LinkModeAuto {
		w.t.Errorf("the machine has an address by %s", mode)
	}
	if got := w.storageOf(m.Spec.SystemID); !slices.Equal(got, storage) {
		w.t.Errorf("the machine has %v, want %v", got, storage)
	}
}

// What a machine is to lose is undone between its release and the next allocation, also if another manager waits for it.
func TestAnotherManagerGetsAMachineOnlyWhenItIsAsBefore(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]infrav1.MaasMachineSpec{
		"interfaces": {Interfaces: bonded},
		"address":    {StaticIP: "10.77.0.50"},
		"storage":    shapes["lvm"],
		"all":        withSpec(shapes["lvm"], func(s *infrav1.MaasMachineSpec) { s.Interfaces = bonded }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := clusterWorld(t, func(w *world) { w.region = oneServer })
			storage := w.storageOf(w.maas.Machines()[0].SystemID)
			m := w.deployedMachine("m", false, spec)
			id := m.Spec.SystemID

			other := newWorld(t, func(other *world) { other.maas, other.maasURL = w.maas, w.maasURL })
			other.provisioned(other.newCluster())
			waits := other.newMachine("waits", false, infrav1.MaasMachineSpec{})
			other.refused(waits, infrav1.MachineDeployedCondition, infrav1.NoMachineAvailableReason)
			undoing, asked := make(chan struct{}), make(chan struct{})
			begins, asks := sync.OnceFunc(func() { close(undoing) }), sync.OnceFunc(func() { close(asked) })
			w.maas.SetHook(func(call simulator.Call, at simulator.Phase) error {
				switch {
				case at == simulator.Before && w.undoes(call, id):
					begins()
					<-asked
				case at == simulator.After && call.Op == "allocate" && isClosed(undoing):
					asks()
				}
				return nil
			})
			w.beginDeletion(m)
			other.await("the other manager asks for the machine", waits, func(context.Context) bool {
				if isClosed(undoing) {
					other.nudge(waits)
				}
				return isClosed(asked)
			})
			w.goes(m)
			other.poke(waits)
			other.deployed(waits)
			other.asBefore(waits, storage)
			if now, _ := w.maas.Machine(id); slices.Contains(now.Tags, quarantine.ExcludeTag) {
				t.Error("it is excluded still")
			}
		})
	}
}

// Nothing but MAAS's note proves later that a machine in the pool was ours: without one, nothing would be undone on it.
func TestNothingIsChangedOnAMachineBeforeItsNote(t *testing.T) {
	t.Parallel()
	note := simulator.Fault{Method: http.MethodPost, Endpoint: "tags/"}
	with := func(change func(*simulator.Fault)) simulator.Fault {
		fault := note
		change(&fault)
		return fault
	}
	const lost = "the request is lost"
	specs := map[string]infrav1.MaasMachineSpec{
		"interfaces and storage": withSpec(shapes["lvm"], func(s *infrav1.MaasMachineSpec) { s.Interfaces = bonded }),
		"interfaces":             {Interfaces: bonded}, "address": {StaticIP: "10.77.0.50"}, "storage": shapes["lvm"],
	}
	for name, fault := range map[string]simulator.Fault{
		lost:                   with(func(f *simulator.Fault) { f.DropBefore, f.First = true, 2 }),
		"the response is lost": with(func(f *simulator.Fault) { f.DropAfter, f.First = true, 1 }),
		"MAAS can't":           with(func(f *simulator.Fault) { f.Status, f.First = http.StatusInternalServerError, 2 }),
		"MAAS is busy":         with(func(f *simulator.Fault) { f.Status, f.First = http.StatusConflict, 1 }),
		"the clocks differ":    with(func(f *simulator.Fault) { f.Status, f.First = http.StatusUnauthorized, 1 }),
	} {
		for what, spec := range specs {
			if what != "interfaces and storage" && name != lost {
				continue // The note is the same whatever is changed.
			}
			t.Run(what+": "+name, func(t *testing.T) {
				t.Parallel()
				w, _ := clusterWorld(t, func(w *world) { w.region = oneServer })
				before, id := w.maas.State(), w.maas.Machines()[0].SystemID
				w.fault(fault)
				w.maas.SetHook(func(call simulator.Call, at simulator.Phase) error {
					isChange := slices.Contains([]string{"create_bond", "link_subnet", "set_storage_layout"}, call.Op)
					if at == simulator.Before && isChange && !bytes.Contains(w.maas.State(), []byte(`"`+quarantine.ExcludeTag+"-"+id+`"`)) {
						t.Errorf("%s before MAAS has a note", call.Op)
					}
					return nil
				})
				m := w.deployedMachine("m", false, spec)
				w.maas.SetHook(nil)
				w.beginDeletion(m)
				w.restart()
				w.goes(m)
				w.unchanged(before)
			})
		}
	}
}

// The object has another UID then. It ends what it began before.
func TestAMachineThatIsMovedWhileItIsExcludedIsIncluded(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, func(w *world) { w.region = oneServer })
	before := w.maas.State()
	m := w.deployedMachine("m", false, infrav1.MaasMachineSpec{Interfaces: bonded})
	undo := simulator.Fault{Method: http.MethodDelete, Endpoint: "nodes/{id}/interfaces/{iface}/", Status: http.StatusServiceUnavailable}
	w.fault(undo)
	w.beginDeletion(m)
	w.await("it is acquired once more, and excluded", m, func(context.Context) bool {
		now, _ := w.maas.Machine(m.Spec.SystemID)
		return now.Status == "Allocated" && slices.Contains(now.Tags, quarantine.ExcludeTag) && w.maas.Faults()[0].Done > 0
	})
	w.stopManager()
	moved := w.recreated(m)
	w.maas.ClearFaults()
	w.beginDeletion(moved)
	w.startManager()
	w.goes(moved)
	w.unchanged(before)
}

// recreated replaces a MaasMachine by one with its spec and its annotations, as clusterctl does in another management cluster.
func (w *world) recreated(m *infrav1.MaasMachine) *infrav1.MaasMachine {
	w.t.Helper()
	w.must(w.client.Get(w.t.Context(), client.ObjectKeyFromObject(m), m))
	anew := &infrav1.MaasMachine{Spec: m.Spec, ObjectMeta: metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, Labels: m.Labels, Annotations: m.Annotations, Finalizers: m.Finalizers, OwnerReferences: m.OwnerReferences,
	}}
	w.must(w.client.Patch(w.t.Context(), m, client.RawPatch(client.Merge.Type(), []byte(`{"metadata": {"finalizers": null}}`))))
	w.goes(m)
	w.create(anew)
	return anew
}

// MAAS may take its time for an allocate, and allocate a machine that another object of ours has released meanwhile. Its
// storage can be restored only in the pool, the rest before.
func TestWhatAnotherObjectLeftOnAMachineIsUndone(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]infrav1.MaasMachineSpec{
		"storage and interfaces": withSpec(shapes["lvm"], func(s *infrav1.MaasMachineSpec) { s.Interfaces = bonded }),
		"address":                {StaticIP: "10.77.0.50"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := clusterWorld(t, func(w *world) { w.region = oneServer })
			w.refuseTags() // Otherwise MAAS allocates no machine that is excluded.
			before := w.maas.State()
			storage := w.storageOf(w.maas.Machines()[0].SystemID)
			first := w.deployedMachine("first", false, spec)
			asked, released, got := make(chan struct{}), make(chan struct{}), make(chan struct{})
			begins, ends := sync.OnceFunc(func() { close(asked) }), sync.OnceFunc(func() { close(got) })
			w.maas.SetHook(func(call simulator.Call, at simulator.Phase) error {
				switch {
				case call.Op == "allocate" && at == simulator.Before:
					begins()
					<-released
				case call.Op == "allocate":
					ends()
				case at == simulator.Before && w.undoes(call, first.Spec.SystemID):
					<-got
				}
				return nil
			})
			second := w.newMachine("second", false, infrav1.MaasMachineSpec{})
			<-asked
			id := first.Spec.SystemID
			w.beginDeletion(first)
			w.inState(id, "Ready")
			close(released)
			w.deployed(second)
			w.goes(first)
			w.asBefore(second, storage)
			w.delete(second)
			w.unchanged(before)
		})
	}
}
