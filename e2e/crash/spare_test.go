// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/kubelet"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// state is what became of a machine when the host of its spare VM can be asked again.
type state string

const (
	pending state = "pending" // its second VM does not run yet
	running state = "running"
	failed  state = "failed" // its second VM was not deployed, or a person has removed it
	deleted state = "being deleted"
)

// devices returns how many devices MAAS has of a VM on an LXDHost after its spare VM is gone, and vms how many VMs there are.
func (s state) devices() int {
	if s == deleted {
		return 0
	}
	return 1
}

func (s state) vms() int {
	if s == failed {
		return 0
	}
	return s.devices()
}

// withSpare is a life in which the host of the first VM makes it, reports a failure, and can't be asked until the machine
// has a second one and is in a state.
func withSpare(s state, covered bool) *kind {
	return &kind{
		name: "VM with a spare, " + string(s), worker: true, spare: s, covered: covered,
		machine: "provisioningMode: lxd, image: " + image + ", minCPU: 2, minMemory: 4096, minDiskSize: 20, " +
			"resourcePool: " + sandbox.OwnPool + ", tags: [TAG]",
		calls: []string{"compose", "refresh", "DELETE machines/{id}/"},
	}
}

// withDirectSpare is withSpare on LXDHosts, one of which does not respond any more after it was asked for the VM.
func withDirectSpare(s state, covered bool) *kind {
	return &kind{
		name: "VM on an LXDHost with a spare, " + string(s), direct: true, worker: true, spare: s, covered: covered,
		machine: "provisioningMode: lxd, image: " + image + ", minCPU: 1, minMemory: 2048, minDiskSize: 8, tags: [" + directTag + "]",
		calls:   []string{makeVM, removeVM},
	}
}

// loss befalls the first host of a walker that is asked for a VM, until it is mended. A nil loss befalls none.
type loss struct {
	kind  *kind
	paths map[string]string // of the VM hosts in MAAS, to their names

	mutex  sync.Mutex
	host   string // its path in MAAS, or the name of its LXDHost; "": none was asked
	mended bool
	held   int // how often the machine was kept from running
	runs   bool
}

// befalls is called for each call to MAAS, and to LXD, that is made. Its error cuts the connection.
func (l *loss) befalls(call simulator.Call) error {
	if l == nil {
		return nil
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	at := point{method: call.Method, endpoint: call.Endpoint, op: call.Op}
	switch at.call() {
	case "compose", makeVM:
		if l.host == "" {
			l.host = call.Path
			box.MAAS.BreakVMHost(l.paths[l.host], false, true)
		}
	case "deploy":
		if l.kind.spare == failed && !l.runs {
			l.runs = true
			return box.Control(context.Background(), "machines/"+call.SystemID+"/fail", `{"operation": "deploy"}`)
		}
	case switchVM:
		if l.kind.spare == pending && !l.runs {
			l.held++
			return errHeld
		}
	}
	return nil
}

var errHeld = errors.New("the machine shall not run yet")

// fault is MAAS's response to what can't be done yet: refreshing the host, or deploying the machine.
func (l *loss) fault(call simulator.Call) *simulator.Fault {
	if l == nil {
		return nil
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	isPending := call.Op == "deploy" && l.kind.spare == pending && !l.runs
	if isPending {
		l.held++
	}
	if isPending || (call.Op == "refresh" && call.Path == l.host && !l.mended) {
		return &simulator.Fault{Status: http.StatusServiceUnavailable, Body: "not now"}
	}
	return nil
}

// isAway reports whether an LXDHost does not respond.
func (l *loss) isAway(host string) bool {
	if l == nil {
		return false
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.host == host && !l.mended
}

// holds reports whether the machine was kept from running.
func (l *loss) holds() bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.held > 0
}

// mend lets the host respond again.
func (l *loss) mend() {
	if l == nil {
		return
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.mended = true
	box.MAAS.BreakVMHost(l.paths[l.host], false, false)
}

// run lets the machine run.
func (l *loss) run() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.runs = true
}

// losing returns what befalls the hosts in a life of a kind; nil: nothing.
func (w *walker) losing(kind *kind) *loss {
	if kind.spare == "" {
		return nil
	}
	return &loss{kind: kind, paths: w.vmHosts}
}

// findVMHosts has the walkers know the paths of VM hosts in MAAS, by which calls name them.
func findVMHosts(t *testing.T, walkers []*walker) {
	t.Helper()
	admin, err := maas.NewClient(maas.Config{Endpoint: box.MAASURL, APIKey: box.MAASAPIKey})
	if err != nil {
		t.Fatal(err)
	}
	hosts, err := admin.ListVMHosts(within(t, shortTimeout))
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{}
	for i := range hosts {
		paths[fmt.Sprintf("/MAAS/api/2.0/vm-hosts/%d/", hosts[i].ID)] = hosts[i].Name
	}
	for _, w := range walkers {
		w.vmHosts = paths
	}
}

// spareGoes leads a machine to the state of its kind, and lets the host of the first VM respond again: the manager deletes
// that VM, and nothing else.
func (w *walker) spareGoes(t *testing.T, kind *kind, key client.ObjectKey, k *killer, lost *loss) {
	t.Helper()
	w.reach(t, kind, key, lost)
	vm := maas.Hostname(key.Name, ownerOf(t, key))
	if !w.hasVM(t, kind, lost, vm) {
		t.Fatalf("%q, whose response was lost, made no VM %s: there is no spare one", lost.host, vm)
	}
	// The next manager asks at once.
	if err := w.manager.Kill(); err != nil && !errors.Is(err, kubelet.ErrNotRunning) {
		t.Fatal(err)
	}
	k.enter(sparing)
	lost.mend()
	machine := &infrav1.MaasMachine{}
	err := eventually.Wait(within(t, createTimeout), "the spare VM "+vm+" to go", func() (bool, string, error) {
		err := box.Client.Get(t.Context(), key, machine)
		gone := apierrors.IsNotFound(err)
		if client.IgnoreNotFound(err) != nil {
			return false, "", err
		}
		recorded, err := record.OfMachine(machine)
		asked := gone || (kind.spare != deleted && len(recorded.Hosts) == 1)
		return asked && !w.hasVM(t, kind, lost, vm), fmt.Sprint(recorded.Hosts, sandbox.Conditions(machine.Status.Conditions)), err
	})
	if err != nil {
		t.Fatal(err)
	}
	if kind.spare == pending {
		k.enter(creation) // It is as if there had been no spare.
		lost.run()
		w.waitReady(t, kind, key)
	}
}

// reach waits until a machine has a second VM, and is in the state of its kind.
func (w *walker) reach(t *testing.T, kind *kind, key client.ObjectKey, lost *loss) {
	t.Helper()
	machine := &infrav1.MaasMachine{}
	until := func(is func() bool) {
		t.Helper()
		err := eventually.Wait(within(t, createTimeout), key.String()+" to be "+string(kind.spare), func() (bool, string, error) {
			err := box.Client.Get(t.Context(), key, machine)
			return is(), sandbox.Conditions(machine.Status.Conditions), client.IgnoreNotFound(err)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	is := func(reason string) func() bool {
		return func() bool { return conditions.GetReason(machine, infrav1.MachineDeployedCondition) == reason }
	}
	switch kind.spare {
	case pending:
		until(func() bool { return machine.Spec.SystemID != "" && lost.holds() })
		return
	case failed:
		if !kind.direct {
			until(func() bool { return machine.Status.FailureReason != "" })
			return
		}
	}
	w.waitReady(t, kind, key)
	switch kind.spare {
	case failed:
		until(func() bool { return machine.Status.Hostname != "" })
		if err := w.lxds[machine.Status.LXDHost].Remove(machine.Status.Hostname); err != nil {
			t.Fatal(err)
		}
		until(is(infrav1.MachineMissingReason))
	case deleted:
		m := &clusterv1.Machine{}
		m.Namespace, m.Name = key.Namespace, key.Name
		if err := box.Client.Delete(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		until(is(infrav1.VMHostUnreachableReason))
	}
}

// hasVM reports whether the host that was lost has a VM.
func (w *walker) hasVM(t *testing.T, kind *kind, lost *loss, name string) bool {
	t.Helper()
	if kind.direct {
		_, has := w.lxds[lost.host].VMs(t)[name]
		return has
	}
	return slices.ContainsFunc(box.MAAS.VMHosts(), func(host simulator.VMHost) bool {
		return host.Name == lost.paths[lost.host] &&
			slices.ContainsFunc(host.VMs, func(vm simulator.VM) bool { return vm.Name == name })
	})
}
