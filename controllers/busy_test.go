// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// busy is MAAS's response when it aborts a request whose transaction conflicted with others. It comes late: the host
// has created the VM by then.
func busy(op string) simulator.Fault {
	return simulator.Fault{
		Op: op, Status: http.StatusConflict, Late: op == "compose", First: 1,
		Body: "<html><body>Conflict</body></html>", Headers: map[string]string{"Content-Type": "text/html", "Retry-After": "1"},
	}
}

// A request that MAAS aborted because it was busy is retried, and is not taken for a refusal.
//
// docs/development.md names this test as the one to copy.
func TestWhatMAASGaveUpIsTriedAgain(t *testing.T) {
	t.Parallel() // No test sees what another one does:
	for _, op := range []string{"allocate", "deploy", "release"} {
		t.Run(op, func(t *testing.T) {
			w := newWorld(t) // a namespace, a manager, and a MAAS of its own.
			before := w.maas.State()
			cluster := w.newCluster() // Cluster API's part is the test's.
			w.provisioned(cluster)    // This waits, as all that follows does, and says what there was instead.
			w.fault(busy(op))
			m := w.newMachine("md-0", false, infrav1.MaasMachineSpec{})
			if op != "release" {
				w.refused(m, infrav1.MachineDeployedCondition, infrav1.MAASBusyReason)
			}
			w.deployed(m)
			w.delete(m)
			w.delete(cluster)
			w.unchanged(before) // Nothing is left behind.
		})
	}
}

// A compose that MAAS aborted, or that failed, may have created the VM, of which MAAS does not know: the manager looks for it
// before it composes another one, and before it removes the finalizer.
func TestAVMOfAComposeThatMAASGaveUpIsFound(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ failed, deleted bool }{
		"before another is made":                     {},
		"when its machine is deleted":                {deleted: true},
		"of one that failed, before another is made": {failed: true},
		"of one that failed, when it is deleted":     {failed: true, deleted: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := clusterWorld(t)
			w.hostsLose(true)
			if !tc.failed {
				w.fault(busy("compose"))
			}
			m := w.newMachine("md-0", false, vm)
			w.await("a VM is made", m, func(context.Context) bool { return len(w.vmsOnHosts()) > 0 })
			early := tc.failed && tc.deleted // While MAAS can't know of the VM.
			if early {
				w.beginDeletion(m)
				w.refused(m, infrav1.MachineDeployedCondition, infrav1.VMCameBackReason)
			}
			w.hostsLose(false)
			if !tc.deleted {
				w.deployed(m)
				if vms := w.vmsOnHosts(); len(vms) != 1 || w.count("compose") != 1 {
					t.Errorf("the hosts have %v after %d composes, want the one VM", vms, w.count("compose"))
				}
			}
			if !early {
				w.beginDeletion(m)
			}
			w.goes(m)
			w.noVMs()
		})
	}
}

// MAAS was upgraded to 4.0, which has no VM hosts: VMs on them are neither stuck nor reported as gone without an event.
func TestMAASWithoutVMHostsAnyMore(t *testing.T) {
	t.Parallel()
	noHosts := func(w *world) {
		for _, endpoint := range []string{"vm-hosts/", "vm-hosts/{id}/"} {
			if _, err := w.maas.AddFault(simulator.Fault{Endpoint: endpoint, Status: http.StatusGone}); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Run("a machine of a host cluster", func(t *testing.T) {
		w := newWorld(t)
		w.provisionedCluster(func(c *infrav1.MaasCluster) { c.Spec.LXDControlPlaneCluster = true })
		m := w.deployedMachine("md-0", false, infrav1.MaasMachineSpec{})
		noHosts(w)
		w.delete(m)
	})
	t.Run("a VM", func(t *testing.T) {
		w := newWorld(t)
		m := w.deployedVM()
		w.maas.BreakVMHost(m.Status.LXDHost, false, true) // MAAS deletes only its own record.
		noHosts(w)
		w.delete(m)
		if w.eventsOf(m, "VMMayRemain") != 1 || len(w.vmsOnHosts()) != 1 {
			t.Errorf("%d events report that a VM may remain, and the hosts have %v", w.eventsOf(m, "VMMayRemain"), w.vmsOnHosts())
		}
	})
}

// A static address that an administrator gave a machine stays: only ours is removed.
func TestAnAddressThatWeDidNotGiveStays(t *testing.T) {
	t.Parallel()
	const address = "10.77.0.50"
	w := newWorld(t)
	w.newCluster() // It is never provisioned, and MAAS is not asked for a machine.
	id := w.named("metal-a")
	metal, err := w.maasClient().GetMachine(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	w.maasCall(http.MethodPost, fmt.Sprintf("nodes/%s/interfaces/%d/?op=link_subnet", id, metal.BootInterface.ID), url.Values{
		"mode": {"static"}, "subnet": {"10.77.0.0/24"}, "ip_address": {address}, "force": {"true"},
	})
	before := w.maas.State()
	m := w.newMachine("md-0", false, infrav1.MaasMachineSpec{SystemID: id, StaticIP: address})
	w.eventually(m, "waiting for its cluster", func() bool {
		return conditions.GetReason(m, infrav1.MachineDeployedCondition) == infrav1.WaitingForClusterInfrastructureReason
	})
	w.delete(m)
	w.unchanged(before)
}
