// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/audit"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	shortTimeout  = eventually.Limit
	createTimeout = 2 * eventually.Limit
	deleteTimeout = 2 * eventually.Limit
	// logTail and lastCalls bound the output for a life that failed.
	logTail   = 6000
	lastCalls = 60
)

// walker leads lives, one after the other, in a namespace with a manager, a MAAS user and an address of its own:
// several walkers don't meet.
type walker struct {
	user, namespace, address string
	manager                  *sandbox.Manager
	board                    *switchboard
	auditor                  *audit.Auditor
	lxds                     directHosts       // of its LXDHosts
	vmHosts                  map[string]string // the names of MAAS's VM hosts, by their paths
}

// startWalkers installs the further managers. The first walker has the sandbox's own.
func startWalkers(t *testing.T, board *switchboard, auditor *audit.Auditor) []*walker {
	t.Helper()
	first := &walker{user: "admin", namespace: life.Namespace, manager: box.Manager}
	walkers := []*walker{first}
	for _, name := range further {
		manager, err := box.AddManager(t.Context(), sandbox.ManagerOptions{Name: "capmaas-" + name, Watch: name, User: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := manager.Uninstall(); err != nil {
				t.Error(err)
			}
		})
		walkers = append(walkers, &walker{user: name, namespace: name, manager: manager})
	}
	for i, w := range walkers {
		w.address, w.board, w.auditor = fmt.Sprintf("10.77.0.%d", 61+i), board, auditor
	}
	return walkers
}

// lead runs one life from its creation until nothing is left of it, with the killer at work.
func (w *walker) lead(t *testing.T, kind *kind, name string, k *killer) {
	t.Helper()
	key := client.ObjectKey{Namespace: w.namespace, Name: name}
	k.manager, k.stage = w.manager, creation
	later := &rollback{}
	later.joins(t.Context(), k, w.namespace)
	lost := w.losing(kind)
	w.board.connect(w.user, k, lost)
	defer w.board.connect(w.user, nil, nil)
	defer lost.mend() // Also in a life that failed.
	gone := false
	t.Cleanup(func() {
		if t.Failed() {
			w.dump(t, key)
		}
		if !gone {
			w.cleanUp(t, key)
		}
	})
	if err := box.ApplyYAML(within(t, shortTimeout), strings.NewReader(kind.manifest(key, w))); err != nil {
		t.Fatal(err)
	}
	if lost != nil {
		w.spareGoes(t, kind, key, k, lost)
	} else {
		w.waitReady(t, kind, key)
	}
	if kind.leads() {
		w.checkEndpoint(t, key)
	}
	who := audit.Who{Namespace: w.namespace, Cluster: name}
	findings, err := w.auditor.Steady(t.Context(), who)
	report(t, "while it lives", findings, err)
	owner := ownerOf(t, key)
	if kind.direct {
		w.checkVMs(t, owner, kind.spare.vms(), kind.spare.devices())
	}

	if kind.remedied && k.needs(remedying) {
		k.enter(remedying)
		w.remedy(t, kind, key)
		findings, err = w.auditor.Steady(t.Context(), who)
		report(t, "when it is remedied", findings, err)
	}
	last := key
	if kind.kept && (k.needs(keeping) || k.needs(taking)) {
		last = w.handOver(t, kind, key, k, who)
	}

	later.check(t)
	k.enter(deletion)
	if kind.kept {
		w.leave(t, key, last)
		later.check(t)
	}
	if err := box.DeleteCluster(within(t, deleteTimeout), key); err != nil {
		t.Fatal(err)
	}
	gone = true
	findings, err = w.auditor.Gone(t.Context(), who)
	report(t, "when it is gone", findings, err)
	later.check(t) // Of the LXDHost.
	if kind.direct {
		w.checkVMs(t, owner, 0, 0)
	}
}

// waitReady waits until the machine is ready. Without a machine, the cluster's endpoint has no address, and the cluster
// is complete when it is provisioned.
func (w *walker) waitReady(t *testing.T, kind *kind, key client.ObjectKey) {
	t.Helper()
	ctx := within(t, createTimeout)
	err := eventually.Wait(ctx, key.String()+" to be ready", func() (bool, string, error) {
		if kind.machine == "" {
			cluster := &infrav1.MaasCluster{}
			err := box.Client.Get(ctx, key, cluster)
			done := ptr.Deref(cluster.Status.Initialization.Provisioned, false)
			return done, sandbox.Conditions(cluster.Status.Conditions), client.IgnoreNotFound(err)
		}
		machine := &infrav1.MaasMachine{}
		err := box.Client.Get(ctx, key, machine)
		done := ptr.Deref(machine.Status.Initialization.Provisioned, false) && conditions.IsTrue(machine, infrav1.ReadyCondition)
		return done, sandbox.Conditions(machine.Status.Conditions), client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkEndpoint wants the API endpoint to lead to the machine's address and nowhere else.
func (w *walker) checkEndpoint(t *testing.T, key client.ObjectKey) {
	t.Helper()
	cluster := &clusterv1.Cluster{}
	if err := box.Client.Get(t.Context(), key, cluster); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, address := range box.MAAS.Lookup(cluster.Spec.ControlPlaneEndpoint.Host) {
		got = append(got, address.String())
	}
	if !slices.Equal(got, []string{w.address}) {
		t.Errorf("the API endpoint is at %v, want %s", got, w.address)
	}
}

// cleanUp deletes what a failed life left, for the next ones.
func (w *walker) cleanUp(t *testing.T, key client.ObjectKey) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), deleteTimeout)
	defer cancel()
	if err := box.DeleteCluster(ctx, key); err != nil {
		t.Errorf("cleaning up: %v", err)
	}
}

// dump shows how everything is that matters to a life.
func (w *walker) dump(t *testing.T, key client.ObjectKey) {
	ctx := context.WithoutCancel(t.Context())
	var out strings.Builder
	cluster, machine := &infrav1.MaasCluster{}, &infrav1.MaasMachine{}
	if err := box.Client.Get(ctx, key, cluster); err == nil {
		fmt.Fprintf(&out, "MaasCluster: %s\n", sandbox.Conditions(cluster.Status.Conditions))
	}
	if err := box.Client.Get(ctx, key, machine); err == nil {
		fmt.Fprintf(&out, "MaasMachine: %q %v %s\n", machine.Spec.SystemID, machine.Annotations, sandbox.Conditions(machine.Status.Conditions))
	}
	out.WriteString("Machines in MAAS:\n")
	for _, m := range slices.Concat(box.MAAS.Machines(), box.MAAS.Devices()) {
		fmt.Fprintf(&out, "  %s %s %s owner=%s host=%s agent=%s addresses=%v\n",
			m.SystemID, m.Hostname, m.Status, m.Owner, m.VMHost, m.AgentName, m.Addresses)
	}
	fmt.Fprintf(&out, "The last calls of %s:\n", w.user)
	calls := box.MAAS.Calls().Log
	calls = slices.DeleteFunc(calls, func(call simulator.Call) bool { return call.User != w.user })
	for _, call := range calls[max(0, len(calls)-lastCalls):] {
		fmt.Fprintf(&out, "  %s %s %s op=%s ?%s %s -> %d\n",
			call.Time.Format(time.TimeOnly), call.Method, call.Path, call.Op, call.Query, call.SystemID, call.Status)
	}
	for _, container := range w.manager.Kubelet.Containers() {
		if data, err := os.ReadFile(container.LogFile); err == nil {
			fmt.Fprintf(&out, "The end of %s's log:\n%s\n", container.Pod, data[max(0, len(data)-logTail):])
		}
	}
	t.Log(out.String())
}

func report(t *testing.T, when string, findings []audit.Finding, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("auditing the life %s: %v", when, err)
	}
	for _, finding := range findings {
		t.Errorf("%s: %s", when, finding)
	}
}

func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}
