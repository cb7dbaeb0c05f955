// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// searchTimeout bounds how long a manager may take to start and to search for its machine.
const searchTimeout = eventually.Limit

// MAAS goes on composing when the manager has died, and takes so long that the successor searches before the VM exists:
// it must not request a second one.
func TestVMTurnsUpAfterManagerDied(t *testing.T) {
	turnsUpLate(t, aVM, point{stage: creation, method: http.MethodPost, endpoint: "vm-hosts/{id}/", op: "compose", n: 1}, "hostname")
}

// The same with bare metal that MAAS acquires so late.
func TestBareMetalTurnsUpAfterManagerDied(t *testing.T) {
	turnsUpLate(t, bareMetalWithAddress, point{stage: creation, method: http.MethodPost, endpoint: "machines/", op: "allocate", n: 1}, "agent_name")
}

// detach makes the call during which the manager died take effect when its successor has searched for the machine.
func (k *killer) detach(t *testing.T, isSearch func(point) bool) {
	searched := make(chan struct{})
	found := sync.OnceFunc(func() { close(searched) })
	k.detached = func() {
		timeout := time.NewTimer(searchTimeout)
		defer timeout.Stop()
		select {
		case <-searched:
		case <-timeout.C:
			t.Error("the manager's successor does not search for the machine")
		}
	}
	k.answered = func(at point) {
		if isSearch(at) {
			found()
		}
	}
}

// turnsUpLate kills the manager in the call that acquires a machine. MAAS continues with the call when the successor
// has searched for the machine.
func turnsUpLate(t *testing.T, kind *kind, acquisition point, searchedBy string) {
	t.Helper()
	life.HeldAgainstTheModel(t, box, settleTime)
	const address = "10.77.0.60"
	k := &killer{manager: box.Manager, stage: creation, deaths: []death{{at: acquisition, phase: simulator.Before, late: true}}}
	// The first search is the predecessor's.
	k.detach(t, func(at point) bool { return at.stage == creation && at.by == searchedBy && at.n == 2 })
	l := life.Begin(t, box, "late")
	box.MAAS.SetHook(k.hook)
	defer box.MAAS.SetHook(nil)
	l.Create(kind.manifest(l.Key, &walker{address: address}))
	machine := &infrav1.MaasMachine{}
	l.Wait("the machine to be provisioned", func() (bool, string, error) {
		err := box.Client.Get(l.Context(), l.Key, machine)
		done := ptr.Deref(machine.Status.Initialization.Provisioned, false) && conditions.IsTrue(machine, infrav1.ReadyCondition)
		return done, sandbox.Conditions(machine.Status.Conditions), client.IgnoreNotFound(err)
	})
	if got := l.Record.Addresses(); !slices.Equal(got, []string{address}) {
		t.Errorf("the API endpoint is at %v, want %s", got, address)
	}
	k.enter(deletion)
	l.Delete()
	points, died, err := k.seen()
	if len(died) != 1 || err != nil {
		t.Fatalf("the manager was killed: %v, %v", died, err)
	}
	asked := 0
	for _, at := range points {
		if at.stage == creation && at.op == acquisition.op {
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("MAAS was asked for a machine %d times, want once", asked)
	}
}
