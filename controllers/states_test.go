// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/internal/states"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// stateNames are MAAS's names of its states in filters, by their numbers.
var stateNames = []string{
	"new", "commissioning", "failed_commissioning", "missing", "ready", "reserved",
	"deployed", "retired", "broken", "deploying", "allocated", "failed_deployment",
	"releasing", "failed_releasing", "disk_erasing", "failed_disk_erasing", "rescue_mode", "entering_rescue_mode",
	"failed_entering_rescue_mode", "exiting_rescue_mode", "failed_exiting_rescue_mode", "testing", "failed_testing",
}

// control calls the simulator's control API.
func (w *world) control(path, body string) {
	w.t.Helper()
	address := strings.TrimSuffix(w.maasURL, "/MAAS") + "/control/" + path
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	if _ = response.Body.Close(); response.StatusCode >= 300 {
		w.t.Fatalf("%s: %s", path, response.Status)
	}
}

func (w *world) setState(systemID, short string) {
	w.t.Helper()
	w.control("machines/"+systemID+"/status", fmt.Sprintf(`{"status": %q}`, short))
}

// assessed waits until the status matches an assessment.
func (w *world) assessed(m *infrav1.MaasMachine, want states.Assessment) {
	w.t.Helper()
	failure := ""
	if want.Then == states.Replace {
		failure = want.Reason
	}
	w.eventually(m, fmt.Sprintf("as in %+v", want), func() bool {
		return conditions.IsFalse(m, infrav1.MachineDeployedCondition) && conditions.GetReason(m, infrav1.MachineDeployedCondition) == want.Reason &&
			!m.Status.Ready && m.Status.FailureReason == failure && (!want.Lost || len(m.Status.Addresses) == 0)
	})
}

// In every state, a machine that ran is reported, is never deployed again, and keeps its identity for Cluster API; when
// it runs again, it is ready again.
func TestStatesOfAMachineThatRan(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	m := w.deployedMachine("m", false, infrav1.MaasMachineSpec{})
	providerID, addresses := m.Spec.ProviderID, m.Status.Addresses
	w.maas.ResetCalls()
	for _, lost := range []bool{false, true} {
		for number, state := range stateNames {
			later := states.Assess(&maas.Machine{Status: maas.Status(number)}, true, false)
			if later.Then == states.Runs || later.Lost != lost {
				continue
			}
			w.setState(m.Spec.SystemID, state)
			w.assessed(m, later)
			if m.Spec.ProviderID != providerID || !ptr.Deref(m.Status.Initialization.Provisioned, false) {
				t.Errorf("%s: the provider ID is %q, initialization %+v", state, m.Spec.ProviderID, m.Status.Initialization)
			}
			if len(m.Status.Addresses) == 0 && !lost {
				t.Errorf("%s: the addresses are gone", state)
			}
		}
		w.setState(m.Spec.SystemID, "deployed")
		w.eventually(m, "well", func() bool {
			return m.Status.Ready && m.Status.FailureReason == "" && cmp.Equal(addresses, m.Status.Addresses)
		})
	}
	for _, call := range w.maas.Calls().Log {
		if call.Method != http.MethodGet && !strings.HasPrefix(call.Endpoint, "tags/") { // Failures are quarantined.
			t.Errorf("MAAS was asked to %s %s %s", call.Method, call.Endpoint, call.Op)
		}
	}
	w.delete(m)
}

// A machine that can't be deployed yet is waited for, and deployed when it can be.
func TestStatesBeforeTheFirstDeployment(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	id := w.maas.Machines()[0].SystemID
	w.setState(id, "new")
	m := w.newMachine("pinned", false, infrav1.MaasMachineSpec{SystemID: id})
	w.assessed(m, states.Assessment{Reason: infrav1.NotCommissionedReason, Then: states.Person})
	for number, state := range stateNames {
		first := states.Assess(&maas.Machine{Status: maas.Status(number)}, false, false)
		if first.Then == states.Deploy || first.Then == states.Runs || state == "deploying" {
			continue
		}
		w.setState(id, state)
		w.assessed(m, first)
		if m.Spec.ProviderID != "" || ptr.Deref(m.Status.Initialization.Provisioned, false) {
			t.Errorf("%s: the provider ID is %q, initialization %+v", state, m.Spec.ProviderID, m.Status.Initialization)
		}
	}
	w.setState(id, "ready")
	w.deployed(m)
	w.delete(m)
}

// A deployment hangs in MAAS: that is reported at the deadline, nothing is released, and if MAAS finishes after all the
// machine is ready. The missed deadline survives the loss of the status.
func TestADeploymentThatHangs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) {
		w.deployTimeout = time.Second
		w.region += "timings: {deploy_vm: 100000h}\n"
	})
	w.provisionedCluster()
	before := w.maas.State()
	m := w.newMachine("m", false, vm)
	w.assessed(m, states.Assessment{Reason: infrav1.DeployTimedOutReason, Then: states.Person})
	began := recorded(t, m).Phase
	w.patchStatus(m, func() { m.Status = infrav1.MaasMachineStatus{} })
	w.assessed(m, states.Assessment{Reason: infrav1.DeployTimedOutReason, Then: states.Person})
	if again := recorded(t, m).Phase; began == nil || again == nil || *again != *began {
		t.Errorf("the deployment began at %v, and after the status was lost at %v", began, again)
	}
	if seen, ok := w.maas.Machine(m.Spec.SystemID); !ok || seen.Status != "Deploying" {
		t.Errorf("MAAS has %+v", seen)
	}
	w.setState(m.Spec.SystemID, "deployed")
	w.deployed(m)
	if recorded(t, m).Phase != nil || m.Status.FailureReason != "" {
		t.Errorf("left of the deadline: %v, %q", m.Annotations, m.Status.FailureReason)
	}
	w.delete(m)
	w.unchanged(before)
}

func TestCommissioningThatHangs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) {
		w.commissionTimeout = time.Second
		w.region += "timings: {commission: 1000h}\n"
	})
	w.provisionedCluster()
	m := w.newMachine("m", false, commissioned)
	w.assessed(m, states.Assessment{Reason: infrav1.CommissioningTimedOutReason, Then: states.Person})
	w.must(w.maas.SetTimeScale(1000 * timeScale))
	w.deployed(m)
	w.delete(m)
}

var commissioned = withSpec(vm, func(s *infrav1.MaasMachineSpec) {
	s.LXDConfig = &infrav1.LXDMachineConfig{Commission: true}
})

// A VM is ours, whatever a person did with it: its deletion deletes the VM.
func TestDeletionOfAVMThatAPersonWorksOn(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	before := w.maas.State()
	var machines []*infrav1.MaasMachine
	shorts := []string{"broken", "retired", "rescue_mode", "failed_testing", "missing"}
	for _, short := range shorts {
		machines = append(machines, w.newMachine(strings.ReplaceAll(short, "_", "-"), false, vm))
	}
	for i, m := range machines {
		w.deployed(m)
		w.setState(m.Spec.SystemID, shorts[i])
	}
	for _, m := range machines {
		w.eventually(m, "not ready", func() bool { return !m.Status.Ready })
		w.beginDeletion(m)
	}
	for _, m := range machines {
		w.goes(m)
	}
	w.unchanged(before)
}

// A machine that ran, was released by an operator and deployed by another user belongs to that user.
func TestAMachineThatSomebodyTookIsTheirs(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	m := w.deployedMachine("m", false, infrav1.MaasMachineSpec{})
	id := "machines/" + m.Spec.SystemID + "/"
	w.maasCall(http.MethodPost, id+"?op=release", nil)
	w.await("it is released", m, func(context.Context) bool {
		seen, _ := w.maas.Machine(m.Spec.SystemID)
		return seen.Status == "Ready"
	})
	w.assessed(m, states.Assessment{Reason: infrav1.MachineReleasedReason, Then: states.Replace, Lost: true})
	w.allocateAs("somebody", m.Spec.SystemID)
	w.maasCall(http.MethodPost, id+"?op=deploy", nil)
	w.assessed(m, states.Assessment{Reason: infrav1.MachineNotOursReason, Then: states.Replace, Lost: true})
	w.delete(m)
	if theirs, _ := w.maas.Machine(m.Spec.SystemID); theirs.AgentName != "somebody" || !strings.HasPrefix(theirs.Status, "Deploy") {
		t.Errorf("another user's machine is now %+v", theirs)
	}
}

// Between our read of a free machine and our request, another client with the same MAAS user acquires it.
func TestAMachineThatIsTakenAtTheLastMomentIsLeftAlone(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	id := w.maas.Machines()[0].SystemID
	var taken atomic.Bool
	w.maas.SetHook(func(call simulator.Call, phase simulator.Phase) error {
		if phase == simulator.Before && slices.Contains([]string{"allocate", "deploy"}, call.Op) && !taken.Swap(true) {
			w.allocateAs("somebody", id)
		}
		return nil
	})
	m := w.newMachine("pinned", false, infrav1.MaasMachineSpec{SystemID: id})
	w.assessed(m, states.Assessment{Reason: infrav1.MachineNotOursReason, Then: states.Person})
	w.delete(m)
	if theirs, _ := w.maas.Machine(id); theirs.AgentName != "somebody" || theirs.Status != "Allocated" {
		t.Errorf("another user's machine is now %+v", theirs)
	}
}

// A machine that the user chose is acquired once, and released, even if each response is lost once.
func TestLostAnswersOfAMachineOfChoice(t *testing.T) {
	t.Parallel()
	for _, phase := range []simulator.Phase{simulator.Before, simulator.After} {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			w, cluster := clusterWorld(t)
			before := w.maas.State()
			lost := w.loseEachCallOnce(phase)
			m := w.deployedMachine("m", false, infrav1.MaasMachineSpec{SystemID: w.maas.Machines()[0].SystemID, StaticIP: "10.77.0.51"})
			if n := w.acquiredMachines(); n != 1 || recorded(t, m).MayAcquire() {
				t.Errorf("%d machines were acquired, and it notes %v:\n%s", n, m.Annotations, w.machines())
			}
			w.delete(m)
			w.deleteCluster(cluster)
			w.maas.SetHook(nil)
			w.unchanged(before)
			if calls := lost(); !slices.Contains(calls, "POST machines/ allocate") {
				t.Errorf("the allocation was not lost: %v", calls)
			}
		})
	}
}
