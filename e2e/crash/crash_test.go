// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/e2e/life"
	"github.com/capmaas/cluster-api-provider-maas/e2e/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
)

// oneVM is a cluster of one control plane with a static address. There is no bootstrap provider, and no kubeadm in the
// user data: whether a cluster comes of it does not matter here.
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
spec: {provisioningMode: lxd, image: u-2204-k8s-1.35, staticIP: ` + staticIP + `, minCPU: 2, minMemory: 4096, minDiskSize: 20}
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

const (
	staticIP = "10.77.0.60"
	// mostLists is at how many lists of all machines the manager is killed: how many there are is a matter of time.
	mostLists = 2
	// lookTimeout bounds how long a manager may take to start and to look for its machine.
	lookTimeout = time.Minute
)

// live leads a VM from its creation until it is gone, with the manager dying on the way.
func (k *killer) live(t *testing.T, name string) {
	t.Helper()
	l := life.Begin(t, box, name)
	box.MAAS.SetHook(k.hook)
	defer box.MAAS.SetHook(nil)
	l.Create(strings.ReplaceAll(oneVM, "NAME", name))
	waitProvisioned(l)
	if got := l.Record.Addresses(); !slices.Equal(got, []string{staticIP}) {
		t.Errorf("the API endpoint is at %v, want %s", got, staticIP)
	}
	var vms []string
	for _, m := range box.MAAS.Machines() {
		if m.VMHost != "" {
			vms = append(vms, m.Hostname)
		}
	}
	if len(vms) != 1 {
		t.Errorf("the VMs %v were composed, want 1", vms)
	}
	l.Delete()
	if k.err != nil {
		t.Fatal(k.err)
	}
}

// waitProvisioned waits until the only machine of the cluster is.
func waitProvisioned(l *life.Life) {
	l.Helper()
	machine := &infrav1.MaasMachine{}
	l.Wait("the machine to be provisioned", func() (bool, string, error) {
		err := box.Client.Get(l.Context(), l.Key, machine)
		done := ptr.Deref(machine.Status.Initialization.Provisioned, false) && conditions.IsTrue(machine, infrav1.ReadyCondition)
		return done, sandbox.Conditions(machine.Status.Conditions), client.IgnoreNotFound(err)
	})
}

// The manager dies at every call to MAAS of a VM's life, before and after the call took effect. Its successor finishes
// what it began, and nothing is left behind.
func TestManagerDiesAtEveryCall(t *testing.T) {
	undisturbed := &killer{}
	if !t.Run("undisturbed", func(t *testing.T) { undisturbed.live(t, "crash-0") }) {
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
				if at.remembered() {
					// A new manager knows nothing, and asks.
					if err := box.Kubelet.Kill(sandbox.ManagerContainer); err != nil {
						t.Fatal(err)
					}
				}
				k := &killer{target: at, phase: phase}
				k.live(t, fmt.Sprintf("crash-%d", number))
				if !k.killed {
					t.Errorf("the manager was never killed: there were only the calls %v", k.points)
				}
				t.Logf("killed %s %s", phase, at)
			})
		}
	}
}

// MAAS composes on when the manager has died, and takes so long that the successor looks before the VM is there: it must
// not ask for a second one.
func TestVMTurnsUpAfterManagerDied(t *testing.T) {
	looked := make(chan struct{})
	k := &killer{
		target: point{method: http.MethodPost, endpoint: "vm-hosts/{id}/", op: "compose", n: 1},
		phase:  simulator.Before,
		detached: func() {
			timeout := time.NewTimer(lookTimeout)
			defer timeout.Stop()
			select {
			case <-looked:
			case <-timeout.C:
				t.Error("the manager's successor does not look for the VM")
			}
		},
		answered: func(at point) {
			// The first look is the predecessor's.
			if at.by == "hostname" && at.n == 2 {
				close(looked)
			}
		},
	}
	k.live(t, "late")
	composed := 0
	for _, at := range k.points {
		if at.op == "compose" {
			composed++
		}
	}
	if composed != 1 {
		t.Errorf("MAAS was asked to compose %d times, want once", composed)
	}
}
