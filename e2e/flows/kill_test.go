// SPDX-License-Identifier: Apache-2.0

package flows_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/e2e/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
)

// oneVM is a cluster of one control plane with a static address, and no bootstrap provider: the user data does nothing.
const oneVM = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: NAME, namespace: default}
spec:
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: MaasCluster, name: NAME}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: MaasCluster
metadata: {name: NAME, namespace: default}
spec: {dnsDomain: maas.sim}
---
apiVersion: v1
kind: Secret
metadata: {name: NAME, namespace: default, labels: {cluster.x-k8s.io/cluster-name: NAME}}
type: cluster.x-k8s.io/secret
stringData: {value: "#cloud-config\n{}\n", format: cloud-config}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: MaasMachine
metadata: {name: NAME, namespace: default, labels: {cluster.x-k8s.io/cluster-name: NAME, cluster.x-k8s.io/control-plane: ""}}
spec: {provisioningMode: lxd, image: u-2204-k8s-1.35, staticIP: 10.77.0.60, minCPU: 2, minMemory: 4096, minDiskSize: 20}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata: {name: NAME, namespace: default, labels: {cluster.x-k8s.io/cluster-name: NAME, cluster.x-k8s.io/control-plane: ""}}
spec:
  clusterName: NAME
  version: v1.35.0
  bootstrap: {dataSecretName: NAME}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: MaasMachine, name: NAME}
`

// point is a call in a machine's life: the n-th of its kind.
type point struct {
	method, endpoint, op string
	// by tells how a list of machines finds them.
	by string
	n  int
}

func (p point) String() string {
	return strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s #%d", p.method, p.endpoint, p.op, p.by, p.n)), " ")
}

const upgradeTimeout = 2 * time.Minute

// mostLists is at how many lists of all machines the manager is killed: how many there are is a matter of time.
const mostLists = 2

// killer kills the manager at one point, and notes all points it sees.
type killer struct {
	target point // zero: none
	phase  simulator.Phase

	mutex  sync.Mutex
	counts map[point]int
	points []point
	number int // of the call that is the target
	killed bool
	err    error
}

var errKilled = errors.New("the manager was killed")

func (k *killer) hook(call simulator.Call, phase simulator.Phase) error {
	if !k.due(call, phase) {
		return nil
	}
	if err := box.Kubelet.Kill(sandbox.ManagerContainer); err != nil {
		k.mutex.Lock()
		k.err = err
		k.mutex.Unlock()
	}
	return errKilled
}

// due notes the call, and tells whether the manager dies now.
func (k *killer) due(call simulator.Call, phase simulator.Phase) bool {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if phase == simulator.Before {
		kind := point{method: call.Method, endpoint: call.Endpoint, op: call.Op, by: listedBy(call)}
		k.counts[kind]++
		kind.n = k.counts[kind]
		k.points = append(k.points, kind)
		if kind == k.target {
			k.number = call.Number
		}
	}
	if k.killed || call.Number != k.number || phase != k.phase {
		return false
	}
	k.killed = true
	return true
}

func listedBy(call simulator.Call) string {
	query, err := url.ParseQuery(call.Query)
	if err != nil || call.Endpoint != "machines/" {
		return ""
	}
	for _, by := range []string{"hostname", "agent_name", "id"} {
		if query.Has(by) {
			return by
		}
	}
	return ""
}

// live runs a VM from its creation until it is gone.
func (k *killer) live(t *testing.T, name string) {
	t.Helper()
	// Each life begins with a manager that knows nothing yet.
	if err := box.Kubelet.Kill(sandbox.ManagerContainer); err != nil {
		t.Fatal(err)
	}
	f := begin(t, name)
	k.counts = map[point]int{}
	box.MAAS.SetHook(k.hook)
	defer box.MAAS.SetHook(nil)
	if err := box.ApplyYAML(f.within(shortTimeout), strings.NewReader(strings.ReplaceAll(oneVM, "NAME", name))); err != nil {
		t.Fatal(err)
	}
	f.provisioned()
	var vms []string
	for _, m := range box.MAAS.Machines() {
		if m.VMHost != "" {
			vms = append(vms, m.Hostname)
		}
	}
	if len(vms) != 1 {
		t.Errorf("the VMs %v were composed, want 1", vms)
	}
	f.delete()
	if k.err != nil {
		t.Fatal(k.err)
	}
}

// provisioned waits until the only machine of the cluster is.
func (f *flow) provisioned() {
	f.Helper()
	machine := &infrav1.MaasMachine{}
	f.wait("the machine to be provisioned", func() (bool, string, error) {
		err := box.Client.Get(f.Context(), f.key, machine)
		done := ptr.Deref(machine.Status.Initialization.Provisioned, false) && conditions.IsTrue(machine, infrav1.ReadyCondition)
		return done, sandbox.Conditions(machine.Status.Conditions), client.IgnoreNotFound(err)
	})
}

// quickRestarts lets a killed manager's successor begin at once, until the test ends.
func quickRestarts(t *testing.T) {
	t.Helper()
	change := func(values map[string]any) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), upgradeTimeout)
		defer cancel()
		if err := box.UpgradeChart(ctx, values); err != nil {
			t.Fatal(err)
		}
	}
	change(map[string]any{"manager": map[string]any{"extraArgs": []any{"--leader-elect=false", "--settle-time=2s"}}})
	t.Cleanup(func() { change(map[string]any{}) })
}

// The manager dies at every call to MAAS of a VM's life, before and after the call took effect. Its successor finishes
// what it began, and nothing is left behind.
func TestManagerIsKilledAtEveryCall(t *testing.T) {
	quickRestarts(t)
	undisturbed := &killer{}
	if !t.Run("undisturbed", func(t *testing.T) { undisturbed.live(t, "kill-0") }) {
		t.FailNow()
	}
	number := 0
	for _, at := range undisturbed.points {
		if at.by == "id" && at.n > mostLists {
			continue
		}
		for _, phase := range []simulator.Phase{simulator.Before, simulator.After} {
			number++
			t.Run(fmt.Sprintf("%s %s", phase, at), func(t *testing.T) {
				k := &killer{target: at, phase: phase}
				started := time.Now()
				k.live(t, fmt.Sprintf("kill-%d", number))
				if !k.killed {
					t.Errorf("the manager was never killed: there were only the calls %v", k.points)
				}
				t.Logf("killed %s %s; %s in all", phase, at, time.Since(started).Round(time.Millisecond))
			})
		}
	}
}
