// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// lateCall is a call of the manager that MAAS got, whose response is lost, and which MAAS finishes later.
type lateCall struct {
	op record.Op
	// asked is the operation in MAAS; "": the test records the call, as a remediation does.
	asked string
	spec  infrav1.MaasMachineSpec
	// finish is what MAAS does late.
	finish func(w *world, id string)
}

var lateCalls = []lateCall{
	{op: record.Deploy, asked: "deploy", finish: func(w *world, id string) {
		ours := w.metal(id)
		w.maasCall(http.MethodPost, "machines/"+id+"/?op=deploy", url.Values{
			"distro_series": {"ubuntu/jammy"}, "agent_name": {ours.AgentName}, "user_data": {"I2Nsb3VkLWNvbmZpZw=="},
		})
	}},
	{op: record.Link, asked: "link_subnet", spec: infrav1.MaasMachineSpec{StaticIP: "10.77.0.50"}, finish: func(w *world, id string) {
		nic := w.readMachine(id).Interfaces[0].ID
		w.maasCall(http.MethodPost, "nodes/"+id+"/interfaces/"+strconv.Itoa(nic)+"/?op=link_subnet", url.Values{
			"mode": {"STATIC"}, "subnet": {"1"}, "ip_address": {"10.77.0.50"},
		})
	}},
	{op: record.PowerOff, finish: func(w *world, id string) {
		w.maasCall(http.MethodPost, "machines/"+id+"/?op=power_off", nil)
	}},
	{op: record.Annotate, finish: func(w *world, id string) {
		w.maasCall(http.MethodPost, "machines/"+id+"/?op=set_workload_annotations", url.Values{"late": {"yes"}})
	}},
}

// What MAAS may still do to a machine, it does while the machine is ours: nobody else can get it before.
func TestAMachineIsNotReleasedBeforeALateCall(t *testing.T) {
	t.Parallel()
	for _, late := range lateCalls {
		t.Run(string(late.op), func(t *testing.T) {
			t.Parallel()
			settles := 6 * time.Second
			if late.op == record.PowerOff {
				settles /= 4 // It may take effect for four times as long.
			}
			w, _ := clusterWorld(t, withOtherUser(true), func(w *world) { w.settleTime = settles })
			m := w.withLateCall(late)
			id := m.Spec.SystemID
			w.beginDeletion(m)
			w.eventually(m, "waiting until MAAS can't do it any more", func() bool {
				return !m.DeletionTimestamp.IsZero() && conditions.GetReason(m, infrav1.MachineDeployedCondition) == infrav1.MAASUnavailableReason
			})
			if now := w.metal(id); now.Status == "Ready" || now.Owner == "" {
				t.Fatalf("the machine is %s, of %q", now.Status, now.Owner)
			}
			w.maas.ClearFaults()
			late.finish(w, id)
			w.inState(id, "Ready")
			theirs, err := w.as(otherKey).AllocateMachine(t.Context(), maas.Unrecorded("a test"), maas.AllocateParams{AgentName: "juju", SystemID: id})
			if err != nil {
				t.Fatal(err)
			}
			if theirs.Status != maas.StatusAllocated || machineHas(theirs, "10.77.0.50") || len(theirs.WorkloadAnnotations) != 0 {
				t.Errorf("the next user's machine is %+v", theirs)
			}
			w.await("the MaasMachine is gone", m, func(ctx context.Context) bool { return w.isGone(ctx, m) })
		})
	}
}

// withLateCall returns a MaasMachine whose record has the call, of which MAAS did nothing yet.
func (w *world) withLateCall(late lateCall) *infrav1.MaasMachine {
	w.t.Helper()
	if late.asked != "" {
		w.fault(simulator.Fault{Op: late.asked, DropBefore: true})
	}
	m := w.newMachine("md-0", false, late.spec)
	if late.asked == "" {
		w.deployed(m)
		w.patch(m, func() {
			m.Annotations[infrav1.RecordAnnotation] = recordText(w.t, record.Calls{Pending: []record.Pending{{Op: late.op, At: metav1.Now()}}})
		})
	}
	w.eventually(m, "with a lost call", func() bool { return m.Spec.SystemID != "" && recorded(w.t, m).IsPending(late.op) })
	return m
}

func (w *world) readMachine(id string) *maas.Machine {
	w.t.Helper()
	m, err := w.maasClient().GetMachine(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func machineHas(m *maas.Machine, address string) bool { return slices.Contains(m.IPAddresses, address) }

// Once the effect of a deploy shows, nothing waits for it.
func TestADeployWhoseEffectShowsHoldsNoDeletion(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, func(w *world) { w.settleTime = time.Hour })
	w.fault(simulator.Fault{Op: "deploy", DropAfter: true, First: 1})
	m := w.deployedMachine("md-0", false, infrav1.MaasMachineSpec{})
	w.delete(m)
}

// An administrator of MAAS, or a late call of an earlier manager, can deploy a machine that we acquired. Then nobody knows
// with whose user data it runs.
func TestAMachineThatAnotherCallDeployedIsNotOurs(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	reached, goOn := w.hold("deploy")
	m := w.newMachine("md-0", false, infrav1.MaasMachineSpec{})
	<-reached
	w.eventually(m, "acquired", func() bool { return m.Spec.SystemID != "" })
	id := m.Spec.SystemID
	w.maas.SetHook(nil) // Only ours is held.
	w.maasCall(http.MethodPost, "machines/"+id+"/?op=deploy", url.Values{
		"distro_series": {"ubuntu/jammy"}, "user_data": {"I2Nsb3VkLWNvbmZpZwojIGFub3RoZXI="},
	})
	w.inState(id, "Deployed")
	goOn() // MAAS refuses it: the machine is Deployed.
	w.eventually(m, "reported", func() bool {
		return m.Status.FailureReason == infrav1.DeploymentNotOursReason
	})
	if reason := conditions.GetReason(m, infrav1.ReadyCondition); m.Spec.ProviderID != "" || reason != infrav1.DeploymentNotOursReason {
		t.Errorf("provider ID %q, Ready is %s", m.Spec.ProviderID, reason)
	}
	w.delete(m)
	w.inState(id, "Ready")
}

// A compose, or the wait for a turn, may take minutes. Nothing is acquired or deployed afterwards for an object that is
// being deleted.
func TestAnObjectThatIsDeletedWhileItWaitsIsNeitherClaimedNorDeployed(t *testing.T) {
	t.Parallel()
	for _, spec := range []infrav1.MaasMachineSpec{{ProvisioningMode: infrav1.ProvisioningModeLXD}, {}} {
		t.Run(fmt.Sprint(spec.Mode()), func(t *testing.T) {
			t.Parallel()
			w, _ := clusterWorld(t)
			first, then := "allocate", "deploy"
			if spec.IsLXD() {
				first, then = "compose", "allocate"
			}
			reached, goOn := w.hold(first)
			m := w.newMachine("m-0", false, spec)
			<-reached
			w.beginDeletion(m)
			w.eventually(m, "being deleted", func() bool { return !m.DeletionTimestamp.IsZero() })
			w.await("the manager knows", m, func(context.Context) bool { return w.managerSeesDeletion(m) })
			goOn()
			w.await("the MaasMachine is gone", m, func(ctx context.Context) bool { return w.isGone(ctx, m) })
			claims := 0 // A VM that nobody has is claimed before it is deleted.
			if spec.IsLXD() {
				claims = 1
			}
			if n := w.count(then) + w.count("deploy"); n != claims {
				t.Errorf("%d calls that acquire or deploy came after the deletion, want %d", n, claims)
			}
		})
	}
}

// managerSeesDeletion reports whether the manager's cache has the deletion of a MaasMachine.
func (w *world) managerSeesDeletion(m *infrav1.MaasMachine) bool {
	now := &infrav1.MaasMachine{}
	err := w.scopes.Client.Get(w.t.Context(), client.ObjectKeyFromObject(m), now)
	return err == nil && !now.DeletionTimestamp.IsZero()
}

// What was put on a machine is undone while it is ours: when MAAS does that late, nobody else can have the machine.
func TestAMachineStaysOursUntilALateUndoIsOver(t *testing.T) {
	t.Parallel()
	unbond := simulator.Fault{Method: http.MethodDelete, Endpoint: "nodes/{id}/interfaces/{iface}/"}
	for name, tc := range map[string]struct {
		spec infrav1.MaasMachineSpec
		undo simulator.Fault
		kept bool
	}{
		"address":                               {infrav1.MaasMachineSpec{StaticIP: "10.77.0.50"}, simulator.Fault{Op: "link_subnet"}, false},
		"interfaces":                            {infrav1.MaasMachineSpec{Interfaces: bonded}, unbond, false},
		"interfaces of a machine that was kept": {infrav1.MaasMachineSpec{Interfaces: bonded}, unbond, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cluster := clusterWorld(t, withOtherUser(true), func(w *world) { w.settleTime = 6 * time.Second })
			before := w.maas.State()
			id, deletion, isOver := w.deployedToBeDeleted(cluster, tc.spec, tc.kept)
			tc.undo.DropBefore, tc.undo.First = true, 1
			w.fault(tc.undo)
			w.maas.ResetCalls()
			deletion()
			w.await("the undoing is lost", cluster, func(context.Context) bool { return w.maas.Faults()[0].Done > 0 })
			theirs := maas.AllocateParams{AgentName: "juju", SystemID: id}
			if _, err := w.as(otherKey).AllocateMachine(t.Context(), maas.Unrecorded("a test"), theirs); !errors.Is(err, maas.Conflict) {
				t.Fatalf("another user gets the machine while MAAS may still change it: %v", err)
			}
			isOver()
			if n := w.releases(); n > 2 {
				t.Errorf("the machine was released %d times", n)
			}
			w.unchanged(before)
			if _, err := w.as(otherKey).AllocateMachine(t.Context(), maas.Unrecorded("a test"), theirs); err != nil {
				t.Error(err)
			}
		})
	}
}

// deployedToBeDeleted returns a machine that is deployed, or was and is kept, what gives it back, and what waits for the end of that.
func (w *world) deployedToBeDeleted(cluster *infrav1.MaasCluster, spec infrav1.MaasMachineSpec, kept bool) (id string, deletion, isOver func()) {
	w.t.Helper()
	if kept {
		md, id := w.keepsServer(spec)
		return id, func() { w.scale(md, 0) }, func() {
			w.await("it is given back", cluster, func(context.Context) bool { return w.keptIn(cluster) == 0 })
		}
	}
	m := w.deployedMachine("md-0", false, spec)
	return m.Spec.SystemID, func() { w.beginDeletion(m) }, func() { w.goes(m) }
}

// Disks are erased by the release of the deployed machine, and not once more when its network is as before.
func TestDisksAreErasedOnceIfTheNetworkIsUndone(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, func(w *world) { w.region += "timings: {erase_quick: 30s}\n" })
	before := w.maas.State()
	spec := erasing(infrav1.EraseQuick)
	spec.StaticIP = "10.77.0.50"
	m := w.deployedMachine("md-0", false, spec)
	var erased atomic.Int32
	cancel := w.maas.Subscribe(func(_ simulator.MachineSnapshot, change simulator.Change) {
		if change.Kind == simulator.ChangeStatus && change.To == "Disk erasing" {
			erased.Add(1)
		}
	})
	defer cancel()
	w.maas.ResetCalls()
	w.delete(m)
	if n := erased.Load(); n != 1 || w.releases() != 2 {
		t.Errorf("the disks were erased %d times, in %d releases", n, w.releases())
	}
	w.unchanged(before)
}
