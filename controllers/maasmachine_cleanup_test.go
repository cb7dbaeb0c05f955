// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// vmsOnHosts returns all VMs on the hosts, whether MAAS knows them or not.
func (w *world) vmsOnHosts() (vms []string) {
	for _, host := range w.maas.VMHosts() {
		for _, vm := range host.VMs {
			vms = append(vms, vm.Name+"@"+host.Name)
		}
	}
	return vms
}

// hostsLose lets all VM hosts lose what MAAS asks them for, or not any more.
func (w *world) hostsLose(losing bool) {
	for _, host := range w.maas.VMHosts() {
		w.maas.BreakVMHost(host.Name, false, losing)
	}
}

// noVMs checks that neither MAAS nor a host has a VM.
func (w *world) noVMs() {
	w.t.Helper()
	if vms := w.vmsOnHosts(); len(vms) > 0 {
		w.t.Errorf("VMs are left on their hosts: %v", vms)
	}
	for _, m := range w.maas.Machines() {
		if m.VMHost != "" {
			w.t.Errorf("MAAS has the VM %s (%s, %s)", m.Hostname, m.SystemID, m.Status)
		}
	}
}

// deployedVM makes a VM in a cluster of its own.
func (w *world) deployedVM() *infrav1.MaasMachine {
	w.t.Helper()
	w.provisionedCluster()
	m := w.deployedMachine("md-0", false, vm)
	return m
}

// goes waits until an object that is being deleted is gone.
func (w *world) goes(object client.Object) {
	w.t.Helper()
	w.await(object.GetName()+" is gone", object, func(ctx context.Context) bool { return w.isGone(ctx, object) })
}

// eventsOf waits for an event of an object that contains all of the words, and returns how many there are.
func (w *world) eventsOf(m *infrav1.MaasMachine, reason string, words ...string) (times int) {
	w.t.Helper()
	w.await("an event "+reason+" is there", m, func(ctx context.Context) bool {
		list := &corev1.EventList{}
		if w.client.List(ctx, list, client.InNamespace(w.namespace)) != nil {
			return false
		}
		times = 0
		for _, e := range list.Items {
			about := e.Reason == reason && e.InvolvedObject.Name == m.Name
			if about && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(e.Message, word) }) {
				times += max(int(e.Count), 1)
			}
		}
		return times > 0
	})
	return times
}

func (w *world) count(op string) (n int) {
	for _, call := range w.maas.Calls().Log {
		if call.Op == op {
			n++
		}
	}
	return n
}

// The number of hosts that a VM may be on is bounded: it is made on no other one before one of them says that it has none.
func TestAVMIsMadeOnABoundedNumberOfHosts(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	var recordedHosts []string
	for i := range 32 {
		recordedHosts = append(recordedHosts, lxd.DirectRef(w.namespace, fmt.Sprintf("gone-%d-%s", i, strings.Repeat("x", 240))))
	}
	m := w.newMachine("m", false, vm, func(o *metav1.ObjectMeta) {
		o.Annotations = map[string]string{infrav1.RecordAnnotation: recordText(t, record.MachineData{Hosts: recordedHosts})}
	})
	w.refused(m, infrav1.MachineDeployedCondition, infrav1.VMHostUnreachableReason)
	if n := w.count("compose"); n != 0 || !slices.Equal(recorded(t, m).Hosts, recordedHosts) {
		t.Errorf("%d VMs were composed; recorded are the hosts %v", n, recorded(t, m).Hosts)
	}
	if size := len(m.Annotations[infrav1.RecordAnnotation]); size > apivalidation.TotalAnnotationSizeLimitB/16 {
		t.Errorf("the record has %d bytes", size)
	}
	w.changeRecord(m, func(d *record.MachineData) { d.DropHost(recordedHosts[0]) })
	w.deployed(m)
	w.delete(m)
}

// MAAS reports a VM as deleted that its host keeps.
func TestAVMThatItsHostKeepsIsDeletedUntilItIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.deployedVM()
	host, name := m.Status.LXDHost, m.Status.Hostname
	w.maas.BreakVMHost(host, false, true)
	w.beginDeletion(m)
	w.refused(m, infrav1.MachineDeployedCondition, infrav1.VMCameBackReason)
	if message := conditions.GetMessage(m, infrav1.ReadyCondition); !strings.Contains(message, host) || !strings.Contains(message, name) {
		t.Errorf("Ready is %q, want which VM and which host", message)
	}
	w.eventually(m, "deleted more than once", func() bool { return recorded(t, m).CleanupSoFar().CameBack > 1 })
	if times := w.eventsOf(m, infrav1.VMCameBackReason, host, name); times != 1 {
		t.Errorf("%d events report that the VM came back, want one", times)
	}
	w.maas.BreakVMHost(host, false, false)
	w.goes(m)
	w.noVMs()
}

// The record of the VM's host survives the manager that deleted the VM, and the loss of the status.
func TestAVMIsVerifiedAfterARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.deployedVM()
	host, name := m.Status.LXDHost, m.Status.Hostname
	w.maas.BreakVMHost(host, true, false)
	w.beginDeletion(m)
	w.refused(m, infrav1.MachineDeployedCondition, infrav1.VMHostUnreachableReason)
	if _, there := w.maas.Machine(m.Spec.SystemID); there {
		t.Fatal("MAAS still has the VM")
	}
	w.stopManager()
	w.patchStatus(m, func() { m.Status = infrav1.MaasMachineStatus{} })
	w.maas.BreakVMHost(host, false, false)
	if vms := w.vmsOnHosts(); !slices.Contains(vms, name+"@"+host) {
		t.Fatalf("the hosts have %v", vms)
	}
	w.startManager()
	w.goes(m)
	w.noVMs()
}

func TestAMissingRightToRefreshIsReportedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.deployedVM()
	w.fault(simulator.Fault{Op: "refresh", Status: http.StatusForbidden})
	w.delete(m)
	if times := w.eventsOf(m, infrav1.MAASRefusedReason, string(rights.CanEditMachines)); times != 1 {
		t.Errorf("%d events, want one", times)
	}
	w.noVMs()
}

// While MAAS is down the manager does not give up, however long that takes.
func TestAMAASThatIsAwayIsNoDeadHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.hostTimeout = time.Millisecond })
	m := w.deployedVM()
	w.fault(simulator.Fault{Op: "refresh", DropBefore: true})
	if _, err := w.maas.AddFault(simulator.Fault{Method: http.MethodGet, Endpoint: "machines/", DropBefore: true, Every: 1}); err != nil {
		t.Fatal(err)
	}
	w.maas.BreakVMHost(m.Status.LXDHost, false, true)
	w.beginDeletion(m)
	w.refused(m, infrav1.MachineDeployedCondition, infrav1.MAASUnavailableReason)
	w.maas.BreakVMHost(m.Status.LXDHost, false, false)
	w.maas.ClearFaults()
	w.goes(m)
	w.noVMs()
}

// A host creates a VM, reports a failure, and becomes unreachable. The machine gets another VM elsewhere. Then an
// operator makes MAAS refresh the host: MAAS registers the first VM under another name, because its own name is taken.
func TestAVMThatMAASTookInUnderAnotherNameIsDeleted(t *testing.T) {
	t.Parallel()
	for name, deleted := range map[string]bool{"while its machine runs": false, "with its machine": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := clusterWorld(t)
			m, spare := w.spareVM()
			w.stopManager()
			w.maas.ClearFaults()
			w.lookAtHosts()
			if taken, there := w.maas.Machine(w.vmOn(spare)); !there || taken.Hostname == m.Status.Hostname {
				t.Fatalf("MAAS took in %+v, want a machine with another name", taken)
			}
			if deleted {
				w.beginDeletion(m)
			}
			w.startManager()
			if deleted {
				w.goes(m)
				w.noVMs()
				return
			}
			w.await("only the VM that runs is there", m, func(context.Context) bool {
				vms := w.vmsOnHosts()
				return len(vms) == 1 && vms[0] == m.Status.Hostname+"@"+m.Status.LXDHost
			})
			w.eventually(m, "the spare's host is looked at no more", func() bool {
				now := recorded(t, m)
				return len(now.Hosts) == 1 && now.Cleanup == nil
			})
			w.eventsOf(m, "SpareVMDeleted", spare)
			if running, there := w.maas.Machine(m.Spec.SystemID); !there || running.Status != "Deployed" {
				t.Errorf("the machine's own VM is %+v", running)
			}
			w.delete(m)
			w.noVMs()
		})
	}
}

// Another user has the machine's VM. The second VM, which an earlier attempt created, is deleted all the same.
func TestASpareVMIsDeletedThoughSomebodyTookTheOther(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	m, spare := w.spareVM()
	w.stopManager()
	w.maas.ClearFaults()
	w.lookAtHosts()
	id := m.Spec.SystemID
	w.takenBy("somebody", m)
	w.beginDeletion(m)
	w.startManager()
	w.goes(m)
	if theirs, there := w.maas.Machine(id); !there || theirs.AgentName != "somebody" {
		t.Errorf("the machine that a user took is %+v", theirs)
	}
	if vms := w.vmsOnHosts(); len(vms) != 1 || strings.HasSuffix(vms[0], "@"+spare) {
		t.Errorf("the VMs are %v, want only the one that a user took", vms)
	}
}

// A VM that another user acquired is not deleted, whatever its name on its host.
func TestASpareVMThatSomebodyTookIsTheirs(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	m, spare := w.spareVM()
	w.stopManager()
	w.maas.ClearFaults()
	w.lookAtHosts()
	id := w.vmOn(spare)
	w.await("it is commissioned", m, func(context.Context) bool {
		taken, _ := w.maas.Machine(id)
		return taken.Status == "Ready"
	})
	w.allocateAs("somebody", id)
	w.beginDeletion(m)
	w.startManager()
	w.goes(m)
	if theirs, there := w.maas.Machine(id); !there || theirs.AgentName != "somebody" {
		t.Errorf("the machine that a user took is %+v", theirs)
	}
}

// A machine whose second VM never runs, or runs no more, stays until somebody deletes it. Its first VM is deleted as soon
// as its host can be asked.
func TestASpareVMOfAMachineThatDoesNotRunIsDeleted(t *testing.T) {
	t.Parallel()
	failed := func(w *world, m *infrav1.MaasMachine) {
		w.eventually(m, "failed", func() bool { return m.Status.FailureReason != "" })
	}
	gone := func(w *world, m *infrav1.MaasMachine) {
		w.deployed(m)
		w.must(w.maasClient().DeleteMachine(t.Context(), maas.Unrecorded("a test"), m.Spec.SystemID))
		w.refused(m, infrav1.MachineDeployedCondition, infrav1.MachineMissingReason)
	}
	for name, tc := range map[string]struct {
		fails  string
		until  func(*world, *infrav1.MaasMachine)
		looked bool // MAAS takes the first VM in, at its look for another one
		left   int
	}{
		"MAAS does not have the second one":            {until: gone, looked: true},
		"and does not know the first one":              {until: gone},
		"the second one was not deployed":              {until: failed, fails: "deploy", left: 1},
		"was not deployed, and MAAS has the first one": {until: failed, fails: "deploy", looked: true, left: 1},
		"another user took the second one": {looked: true, left: 1, until: func(w *world, m *infrav1.MaasMachine) {
			w.deployed(m)
			w.stopManager()
			w.takenBy("somebody", m)
			w.startManager()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := clusterWorld(t)
			if tc.fails != "" {
				w.failNext(tc.fails)
			}
			m, spare := w.spareVMOf(func(m *infrav1.MaasMachine) { tc.until(w, m) })
			w.maas.ClearFaults()
			if tc.looked {
				w.lookAtHosts()
			}
			first := maas.Hostname(m.Name, m.Annotations[infrav1.OwnerIDAnnotation]) + "@" + spare
			w.await("the first VM is deleted, and its host not asked again", m, func(ctx context.Context) bool {
				w.nudge(m)
				return !slices.Contains(w.vmsOnHosts(), first) &&
					w.client.Get(ctx, client.ObjectKeyFromObject(m), m) == nil && len(recorded(t, m).Hosts) == 1
			})
			if vms := w.vmsOnHosts(); len(vms) != tc.left {
				t.Errorf("the hosts have %v, want %d VMs", vms, tc.left)
			}
		})
	}
}

// takenBy has MAAS release a VM, and another user take it.
func (w *world) takenBy(user string, m *infrav1.MaasMachine) {
	w.t.Helper()
	id := m.Spec.SystemID
	is := func(status string) func(context.Context) bool {
		return func(context.Context) bool { now, _ := w.maas.Machine(id); return now.Status == status }
	}
	_, err := w.maasClient().ReleaseMachine(w.t.Context(), maas.UnrecordedRelease("a test"), id, maas.ReleaseParams{})
	w.must(err)
	w.await("it is released", m, is("New"))
	w.maasCall(http.MethodPost, "machines/"+id+"/?op=commission", url.Values{"testing_scripts": {"none"}})
	w.await("it is commissioned", m, is("Ready"))
	w.allocateAs(user, id)
}

// spareVM makes a machine whose first VM exists although its host reported a failure; the host is unreachable. It
// returns the machine, and that host.
func (w *world) spareVM() (m *infrav1.MaasMachine, spare string) { return w.spareVMOf(w.deployed) }

// spareVMOf is spareVM, of a machine that gets as far as a function waits for.
func (w *world) spareVMOf(settled func(*infrav1.MaasMachine)) (m *infrav1.MaasMachine, spare string) {
	w.t.Helper()
	w.fault(simulator.Fault{Op: "refresh", Status: http.StatusInternalServerError})
	w.hostsLose(true)
	m = w.newMachine("md-0", false, vm)
	w.await("a VM is made", m, func(context.Context) bool {
		vms := w.vmsOnHosts()
		if len(vms) > 0 {
			_, spare, _ = strings.Cut(vms[0], "@")
		}
		return len(vms) > 0
	})
	w.hostsLose(false)
	settled(m)
	return m, spare
}

// lookAtHosts refreshes all VM hosts in MAAS, as an operator would.
func (w *world) lookAtHosts() {
	w.t.Helper()
	hosts, err := w.maasClient().ListVMHosts(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, host := range hosts {
		if _, err := w.maasClient().RefreshVMHost(w.t.Context(), host.ID); err != nil {
			w.t.Fatal(err)
		}
	}
}

// vmOn returns the system id of the machine that is a VM on a host, or "" if there is none.
func (w *world) vmOn(host string) string {
	machines := w.maas.Machines()
	at := slices.IndexFunc(machines, func(m simulator.MachineSnapshot) bool { return m.VMHost == host })
	if at < 0 {
		return ""
	}
	return machines[at].SystemID
}
