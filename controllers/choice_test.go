// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"sync"
	"testing"
	"time"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// A person may name a machine while MAAS allocates another one, or after the response to that was lost.
func TestAMachineThatWasAllocatedBeforeAnotherOneWasNamedIsGivenBack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ lost, deleted bool }{
		"the response comes":                              {},
		"the response is lost":                            {lost: true},
		"the response comes, and the object is deleted":   {deleted: true},
		"the response is lost, and the object is deleted": {lost: true, deleted: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := clusterWorld(t, func(w *world) { w.settleTime = 3 * time.Second })
			before := w.maas.State()
			allocated, goOn := make(chan string, 1), make(chan struct{})
			var once sync.Once
			w.maas.SetHook(func(call simulator.Call, at simulator.Phase) (err error) {
				if call.Op == "allocate" && at == simulator.After {
					once.Do(func() {
						allocated <- call.SystemID
						<-goOn
						if tc.lost {
							err = errLost
						}
					})
				}
				return err
			})
			m := w.newMachine("m", false, infrav1.MaasMachineSpec{})
			named := w.named("metal-a")
			if got := <-allocated; got == named {
				named = w.named("metal-b")
			}
			w.patch(m, func() { m.Spec.SystemID = named })
			if tc.deleted {
				w.beginDeletion(m)
			}
			close(goOn)
			if !tc.deleted {
				w.deployed(m)
				w.beginDeletion(m)
			}
			if m.Spec.SystemID != named {
				t.Errorf("it has machine %s, want %s", m.Spec.SystemID, named)
			}
			w.goes(m)
			w.unchanged(before)
		})
	}
}

// Two objects, of one manager or of two, wait for a machine to be in the pool: one is to undo what it did to it, the
// other one names it.
func TestAMachineOfChoiceIsTakenWhenItIsAsBefore(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]infrav1.MaasMachineSpec{
		"interfaces": {Interfaces: bonded}, "address": {StaticIP: "10.77.0.50"}, "storage": shapes["lvm"],
	} {
		for by, another := range map[string]bool{"this manager": false, "another manager": true} {
			t.Run(name+" by "+by, func(t *testing.T) {
				t.Parallel()
				w, _ := clusterWorld(t, func(w *world) { w.region, w.settleTime = oneServer, 6*time.Second })
				other := w
				if another {
					other = newWorld(t, func(other *world) { other.maas, other.maasURL = w.maas, w.maasURL })
					other.provisioned(other.newCluster())
				}
				before, id := w.maas.State(), w.named("server")
				storage := w.storageOf(id)
				first := w.deployedMachine("first", false, spec)
				second := other.newMachine("second", false, infrav1.MaasMachineSpec{SystemID: id})
				other.refused(second, infrav1.MachineDeployedCondition, infrav1.MachineNotOursReason)
				// Until that is settled, nothing is undone.
				w.fault(simulator.Fault{Op: "release", DropAfter: true, First: 1})
				w.beginDeletion(first)
				w.goes(first)
				other.poke(second)
				other.deployed(second)
				other.asBefore(second, storage)
				other.delete(second)
				w.unchanged(before)
			})
		}
	}
}
