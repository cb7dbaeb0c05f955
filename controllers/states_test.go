// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
)

// said is what a test compares of a assessment.
type said struct {
	Reason string
	Then   consequence
	Phase  string
	Lost   bool
}

// maasState is a state of MAAS: its name in objects, in MAAS's filters, and what is said of it on the way to the first deployment and
// after it.
type maasState struct {
	name, short  string
	first, later said
}

var (
	saidReleased = said{"MachineReleased", replace, "", true}
	saidRuns     = said{"", itRuns, "", false}
	saidRescue   = said{"RescueMode", moving, "", false}
	saidStuck    = said{"RescueModeFailed", person, "", false}
	saidDeploys  = said{"Deploying", moving, deploying, false}
)

// maasStates are all states of MAAS by their numbers.
var maasStates = []maasState{
	{"New", "new", said{"Commissioning", moving, commissioning, false}, saidReleased},
	{"Commissioning", "commissioning", said{"Commissioning", moving, commissioning, false}, saidReleased},
	{"Failed commissioning", "failed_commissioning", said{"CommissioningFailed", replace, "", true}, said{"CommissioningFailed", replace, "", true}},
	{"Missing", "missing", said{"MachineMissing", replace, "", false}, said{"MachineMissing", replace, "", false}},
	{"Ready", "ready", said{"", deployIt, "", false}, saidReleased},
	{"Reserved", "reserved", said{"MachineReserved", person, "", false}, said{"MachineReserved", replace, "", true}},
	{"Deployed", "deployed", saidRuns, saidRuns},
	{"Retired", "retired", said{"MachineRetired", replace, "", true}, said{"MachineRetired", replace, "", true}},
	{"Broken", "broken", said{"MachineBroken", replace, "", true}, said{"MachineBroken", replace, "", true}},
	{"Deploying", "deploying", saidDeploys, saidDeploys},
	{"Allocated", "allocated", said{"", deployIt, "", false}, saidReleased},
	{"Failed deployment", "failed_deployment", said{"DeployFailed", replace, "", false}, said{"DeployFailed", replace, "", false}},
	{"Releasing", "releasing", said{"Releasing", moving, "", false}, saidReleased},
	{"Releasing failed", "failed_releasing", said{"ReleaseFailed", replace, "", true}, said{"ReleaseFailed", replace, "", true}},
	{"Disk erasing", "disk_erasing", said{"ErasingDisks", moving, "", false}, saidReleased},
	{"Failed disk erasing", "failed_disk_erasing", said{"EraseFailed", replace, "", true}, said{"EraseFailed", replace, "", true}},
	{"Rescue mode", "rescue_mode", said{"RescueMode", person, "", false}, said{"RescueMode", person, "", false}},
	{"Entering rescue mode", "entering_rescue_mode", saidRescue, saidRescue},
	{"Failed to enter rescue mode", "failed_entering_rescue_mode", saidStuck, saidStuck},
	{"Exiting rescue mode", "exiting_rescue_mode", saidRescue, saidRescue},
	{"Failed to exit rescue mode", "failed_exiting_rescue_mode", saidStuck, saidStuck},
	{"Testing", "testing", said{"Testing", moving, commissioning, false}, said{"Testing", moving, "", false}},
	{"Failed testing", "failed_testing", said{"TestingFailed", replace, "", false}, said{"TestingFailed", person, "", false}},
}

// wanted is what is said of a machine, with what its lock, its power and its mode change about it.
func (s maasState) wanted(m *maas.Machine, ran, vm bool) said {
	want := s.first
	if ran {
		want = s.later
	}
	switch {
	case s.name == "New" && !ran && !vm:
		return said{"NotCommissioned", person, "", false}
	case want.Then == itRuns && m.PowerState == maas.PowerOff:
		return said{"PoweredOff", person, "", false}
	case want.Then == deployIt && m.Locked:
		return said{"MachineLocked", person, "", false}
	}
	return want
}

func TestEachStateOfMAASHasItsReasonAndConsequence(t *testing.T) {
	if len(maasStates) != 23 || len(states) != len(maasStates) {
		t.Fatalf("%d states are handled and %d tested, MAAS has 23", len(states), len(maasStates))
	}
	for number, state := range maasStates {
		for _, power := range []string{maas.PowerOn, maas.PowerOff, "unknown", "error"} {
			for flags := range 8 {
				locked, ran, vm := flags&1 != 0, flags&2 != 0, flags&4 != 0
				m := &maas.Machine{Status: maas.Status(number), StatusName: state.name, Locked: locked, PowerState: power}
				got := assess(m, ran, vm)
				name := fmt.Sprintf("%s locked=%v power=%s provisioned=%v vm=%v", state.name, locked, power, ran, vm)
				if diff := cmp.Diff(state.wanted(m, ran, vm), said{got.reason, got.then, got.phase, got.lost}); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
				if ran && got.then == deployIt {
					t.Errorf("%s: what ran must never be deployed again", name)
				}
				if (got.then == replace) != strings.Contains(got.says, "delete the Machine") && got.reason != infrav1.TestingFailedReason {
					t.Errorf("%s: %q does not say the remedy", name, got.says)
				}
				if got.then == replace && strings.Contains(got.says, "unlock") != locked {
					t.Errorf("%s: %q is not about the lock", name, got.says)
				}
			}
		}
	}
}

func TestAStateThatIsNotKnownIsForAPerson(t *testing.T) {
	for _, ran := range []bool{false, true} {
		got := assess(&maas.Machine{Status: 99, StatusName: "Dancing"}, ran, true)
		if got.reason != infrav1.MachineNotUsableReason || got.then != person || !strings.Contains(got.says, "Dancing") {
			t.Errorf("provisioned=%v: %+v", ran, got)
		}
	}
}

func TestDocsNameEachStateWithItsReasons(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "docs", "machine-states.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(content)) {
		if cells := strings.SplitN(line, "|", 3); len(cells) == 3 {
			rows[strings.TrimSpace(cells[1])] = line
		}
	}
	for _, state := range maasStates {
		for _, reason := range []string{state.first.Reason, state.later.Reason} {
			if !strings.Contains(rows[state.name], "`"+reason+"`") && reason != "" {
				t.Errorf("docs/machine-states.md does not give %s the reason %s: %q", state.name, reason, rows[state.name])
			}
		}
		if rows[state.name] == "" {
			t.Errorf("docs/machine-states.md lacks %s", state.name)
		}
	}
}

func TestADeadlineIsToldOnceAndIsNoFailure(t *testing.T) {
	limit := 30 * time.Minute
	for _, tc := range []struct {
		status maas.Status
		reason string
	}{
		{maas.StatusCommissioning, infrav1.CommissioningTimedOutReason},
		{maas.StatusTesting, infrav1.CommissioningTimedOutReason},
		{maas.StatusDeploying, infrav1.DeployTimedOutReason},
	} {
		recorder := events.NewFakeRecorder(10)
		r := &MaasMachineReconciler{Recorder: recorder, CommissionTimeout: limit, DeployTimeout: limit}
		v := assess(&maas.Machine{Status: tc.status}, false, true)
		m := &infrav1.MaasMachine{}
		l := lifeOf(t, m)
		if out := r.reportState(l, v); out.after != safetyRetry || conditions.GetReason(m, infrav1.MachineDeployedCondition) != v.reason {
			t.Errorf("%v at the start: %+v, %+v", tc.status, out, m.Status.Conditions)
		}
		l.record.Phase = &record.Phase{Name: v.phase, Since: metav1.NewTime(time.Now().Add(-limit + time.Minute))}
		if out := r.reportState(l, v); out.after <= 0 || out.after > time.Minute {
			t.Errorf("%v a minute before the deadline: looks again after %v", tc.status, out.after)
		}
		l.record.Phase = &record.Phase{Name: v.phase, Since: metav1.NewTime(time.Now().Add(-limit))}
		for range 3 {
			if out := r.reportState(l, v); out.after != safetyRetry || m.Status.FailureReason != "" ||
				!conditions.IsFalse(m, infrav1.MachineDeployedCondition) || conditions.GetReason(m, infrav1.MachineDeployedCondition) != tc.reason {
				t.Errorf("%v after the deadline: %+v, %+v", tc.status, out, m.Status)
			}
		}
		if n := len(recorder.Events); n != 1 {
			t.Errorf("%v: %d events, want 1", tc.status, n)
		}
		if r.CommissionTimeout, r.DeployTimeout = 0, 0; r.reportState(l, v).after != safetyRetry || conditions.GetReason(m, infrav1.MachineDeployedCondition) != v.reason {
			t.Errorf("%v without deadlines: %+v", tc.status, m.Status.Conditions)
		}
	}
}

// control is a tester's hand in the simulator.
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

// said waits until the status says of a machine what it should.
func (w *world) said(m *infrav1.MaasMachine, want said) {
	w.t.Helper()
	failure := ""
	if want.Then == replace {
		failure = want.Reason
	}
	w.eventually(m, fmt.Sprintf("as %+v says", want), func() bool {
		return conditions.IsFalse(m, infrav1.MachineDeployedCondition) && conditions.GetReason(m, infrav1.MachineDeployedCondition) == want.Reason &&
			!m.Status.Ready && m.Status.FailureReason == failure && (!want.Lost || len(m.Status.Addresses) == 0)
	})
}

// Whatever becomes of a machine that ran: it is reported, it is never deployed again, what Cluster API knows it by stays, and when it runs
// again all is well.
func TestStatesOfAMachineThatRan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.provisioned(w.newCluster())
	m := w.newMachine("m", false, infrav1.MaasMachineSpec{})
	w.deployed(m)
	providerID, addresses := m.Spec.ProviderID, m.Status.Addresses
	w.maas.ResetCalls()
	for _, lost := range []bool{false, true} {
		for _, state := range maasStates {
			if state.later.Then == itRuns || state.later.Lost != lost {
				continue
			}
			w.setState(m.Spec.SystemID, state.short)
			w.said(m, state.later)
			if m.Spec.ProviderID != providerID || !ptr.Deref(m.Status.Initialization.Provisioned, false) {
				t.Errorf("%s: the provider ID is %q, initialization %+v", state.name, m.Spec.ProviderID, m.Status.Initialization)
			}
			if len(m.Status.Addresses) == 0 && !lost {
				t.Errorf("%s: the addresses are gone", state.name)
			}
		}
		w.setState(m.Spec.SystemID, "deployed")
		w.eventually(m, "well", func() bool {
			return m.Status.Ready && m.Status.FailureReason == "" && cmp.Equal(addresses, m.Status.Addresses)
		})
	}
	for _, call := range w.maas.Calls().Log {
		if call.Method != http.MethodGet {
			t.Errorf("MAAS was asked to %s %s %s", call.Method, call.Endpoint, call.Op)
		}
	}
	w.delete(m)
}

// A machine that can't be deployed yet is waited for, and deployed when it can be.
func TestStatesBeforeTheFirstDeployment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster := w.newCluster()
	w.provisioned(cluster)
	id := w.maas.Machines()[0].SystemID
	w.setState(id, "new")
	m := w.newMachine("pinned", false, infrav1.MaasMachineSpec{SystemID: id})
	w.said(m, said{Reason: infrav1.NotCommissionedReason, Then: person})
	for _, state := range maasStates[1:] {
		if state.first.Then == deployIt || state.first.Then == itRuns || state.name == "Deploying" {
			continue
		}
		w.setState(id, state.short)
		w.said(m, state.first)
		if m.Spec.ProviderID != "" || ptr.Deref(m.Status.Initialization.Provisioned, false) {
			t.Errorf("%s: the provider ID is %q, initialization %+v", state.name, m.Spec.ProviderID, m.Status.Initialization)
		}
	}
	w.setState(id, "ready")
	w.deployed(m)
	w.delete(m)
}

func TestALockedMachineWorks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.provisioned(w.newCluster())
	m := w.newMachine("m", false, vm)
	w.deployed(m)
	w.maasCall(http.MethodPost, "machines/"+m.Spec.SystemID+"/?op=lock", nil)
	w.setState(m.Spec.SystemID, "broken")
	w.refused(m, infrav1.MachineDeployedCondition, infrav1.MachineBrokenReason)
	if message := conditions.GetMessage(m, infrav1.MachineDeployedCondition); !strings.Contains(message, "unlock") {
		t.Errorf("the message is %q", message)
	}
	w.setState(m.Spec.SystemID, "deployed")
	w.eventually(m, "well, though locked", func() bool { return m.Status.Ready })
}

func TestTheDeletionOfALockedMachineWaits(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]infrav1.MaasMachineSpec{"a VM": vm, "bare metal": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			cluster := w.newCluster()
			w.provisioned(cluster)
			before := w.maas.State()
			m := w.newMachine("m", false, spec)
			w.deployed(m)
			id := m.Spec.SystemID
			w.maasCall(http.MethodPost, "machines/"+id+"/?op=lock", nil)
			w.beginDeletion(m)
			w.refused(m, infrav1.MachineDeployedCondition, infrav1.MachineLockedReason)
			if seen, ok := w.maas.Machine(id); !ok || seen.Status != "Deployed" {
				t.Errorf("MAAS has %+v", seen)
			}
			w.maasCall(http.MethodPost, "machines/"+id+"/?op=unlock", nil)
			w.await("it is gone", m, func(ctx context.Context) bool {
				w.nudge(m)
				return apierrors.IsNotFound(w.client.Get(ctx, client.ObjectKeyFromObject(m), &infrav1.MaasMachine{}))
			})
			w.deleteCluster(cluster)
			w.unchanged(before)
		})
	}
}

// MAAS hangs in a deployment: that is reported at the deadline, nothing is given back, and when MAAS ends after all the machine is well. That
// the deadline had passed outlives the status.
func TestADeploymentThatHangs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) {
		w.deployTimeout = time.Second
		w.region += "timings: {deploy_vm: 100000h}\n"
	})
	cluster := w.newCluster()
	w.provisioned(cluster)
	before := w.maas.State()
	m := w.newMachine("m", false, vm)
	w.said(m, said{Reason: infrav1.DeployTimedOutReason, Then: person})
	began := recorded(t, m).Phase
	w.patchStatus(m, func() { m.Status = infrav1.MaasMachineStatus{} })
	w.said(m, said{Reason: infrav1.DeployTimedOutReason, Then: person})
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
	w.provisioned(w.newCluster())
	m := w.newMachine("m", false, commissioned)
	w.said(m, said{Reason: infrav1.CommissioningTimedOutReason, Then: person})
	if err := w.maas.SetTimeScale(1000 * timeScale); err != nil {
		t.Fatal(err)
	}
	w.deployed(m)
	w.delete(m)
}

var commissioned = withSpec(vm, func(s *infrav1.MaasMachineSpec) {
	s.LXDConfig = &infrav1.LXDMachineConfig{Commission: true}
})

// What failed in MAAS can be deleted, and nothing is left of it.
func TestDeletionOfAVMThatFailed(t *testing.T) {
	for name, tc := range map[string]struct {
		spec      infrav1.MaasMachineSpec
		operation string
		reason    string
	}{
		"commissioning": {commissioned, "commission", infrav1.CommissioningFailedReason},
		"testing":       {commissioned, "test", infrav1.TestingFailedReason},
		"deployment":    {vm, "deploy", infrav1.DeployFailedReason},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.provisioned(w.newCluster())
			before := w.maas.State()
			w.control("fail-next", fmt.Sprintf(`{"operation": %q}`, tc.operation))
			m := w.newMachine("m", false, tc.spec)
			w.said(m, said{Reason: tc.reason, Then: replace})
			for range 2 {
				w.poke(m) // Failures stay what they are.
				w.said(m, said{Reason: tc.reason, Then: replace})
			}
			w.delete(m)
			w.unchanged(before)
		})
	}
}

// A VM is ours, whatever a person did with it: its deletion removes it.
func TestDeletionOfAVMInSomebodysHands(t *testing.T) {
	for _, short := range []string{"broken", "retired", "rescue_mode", "failed_testing", "missing"} {
		t.Run(short, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.provisioned(w.newCluster())
			before := w.maas.State()
			m := w.newMachine("m", false, vm)
			w.deployed(m)
			w.setState(m.Spec.SystemID, short)
			w.eventually(m, "told", func() bool { return !m.Status.Ready })
			w.delete(m)
			w.unchanged(before)
		})
	}
}

// A control plane whose addresses may be another machine's by now leaves the endpoint. The last one stays, because nothing is better than it.
func TestALostControlPlaneLeavesTheEndpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster := w.newCluster()
	w.provisioned(cluster)
	first, second := w.newMachine("cp-0", true, vm), w.newMachine("cp-1", true, vm)
	for _, m := range []*infrav1.MaasMachine{first, second} {
		w.deployed(m)
		w.eventually(m, "in DNS", func() bool { return m.Status.DNSAttached })
	}
	stays := []string{endpointAddress(second)}
	w.setState(first.Spec.SystemID, "broken")
	w.said(first, said{Reason: infrav1.MachineBrokenReason, Then: replace, Lost: true})
	w.await("the endpoint leads to the other", cluster, func(context.Context) bool { return slices.Equal(w.endpoint(cluster), stays) })
	w.setState(second.Spec.SystemID, "broken")
	w.said(second, said{Reason: infrav1.MachineBrokenReason, Then: replace, Lost: true})
	if now := w.endpoint(cluster); !slices.Equal(now, stays) {
		t.Errorf("without any control plane the endpoint leads to %v", now)
	}
	w.poke(cluster)
	w.setState(first.Spec.SystemID, "deployed")
	w.eventually(first, "well", func() bool { return first.Status.Ready })
	leads := []string{endpointAddress(first)}
	w.await("the endpoint leads to the first", cluster, func(context.Context) bool {
		now := w.endpoint(cluster)
		if len(now) == 0 {
			t.Fatal("the endpoint is empty")
		}
		return slices.Equal(now, leads)
	})
}

// A machine that ran, was released by an operator and deployed by another user is theirs.
func TestAMachineThatSomebodyTookIsTheirs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.provisioned(w.newCluster())
	m := w.newMachine("m", false, infrav1.MaasMachineSpec{})
	w.deployed(m)
	id := "machines/" + m.Spec.SystemID + "/"
	w.maasCall(http.MethodPost, id+"?op=release", nil)
	w.await("it is released", m, func(context.Context) bool {
		seen, _ := w.maas.Machine(m.Spec.SystemID)
		return seen.Status == "Ready"
	})
	w.said(m, said{Reason: infrav1.MachineReleasedReason, Then: replace, Lost: true})
	w.allocateAs("somebody", m.Spec.SystemID)
	w.maasCall(http.MethodPost, id+"?op=deploy", nil)
	w.said(m, said{Reason: infrav1.MachineNotOursReason, Then: replace, Lost: true})
	w.delete(m)
	if theirs, _ := w.maas.Machine(m.Spec.SystemID); theirs.AgentName != "somebody" || !strings.HasPrefix(theirs.Status, "Deploy") {
		t.Errorf("somebody else's machine is now %+v", theirs)
	}
}

// Between our look at a machine that is free and our use of it, another client with the same MAAS user takes it.
func TestAMachineThatIsTakenAtTheLastMomentIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.provisioned(w.newCluster())
	id := w.maas.Machines()[0].SystemID
	var taken atomic.Bool
	w.maas.SetHook(func(call simulator.Call, phase simulator.Phase) error {
		if phase == simulator.Before && slices.Contains([]string{"allocate", "deploy"}, call.Op) && !taken.Swap(true) {
			w.allocateAs("somebody", id)
		}
		return nil
	})
	m := w.newMachine("pinned", false, infrav1.MaasMachineSpec{SystemID: id})
	w.said(m, said{Reason: infrav1.MachineNotOursReason, Then: person})
	w.delete(m)
	if theirs, _ := w.maas.Machine(id); theirs.AgentName != "somebody" || theirs.Status != "Allocated" {
		t.Errorf("somebody else's machine is now %+v", theirs)
	}
}

// A machine that the user chose is taken once, and given back, also when each response is lost once.
func TestLostAnswersOfAMachineOfChoice(t *testing.T) {
	for _, phase := range []simulator.Phase{simulator.Before, simulator.After} {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			cluster := w.newCluster()
			w.provisioned(cluster)
			before := w.maas.State()
			lost := w.loseEachCallOnce(phase)
			m := w.newMachine("m", false, infrav1.MaasMachineSpec{SystemID: w.maas.Machines()[0].SystemID, StaticIP: "10.77.0.51"})
			w.deployed(m)
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
