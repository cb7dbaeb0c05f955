// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/ledger"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

func TestHeadline(t *testing.T) {
	deleted := metav1.Now()
	for name, tt := range map[string]struct {
		change func(*clusterv1.Cluster, *infrav1.MaasCluster)
		want   string
	}{
		"new": {func(*clusterv1.Cluster, *infrav1.MaasCluster) {}, "Cluster c is not available yet, 1 of 2 machines run"},
		"available": {
			func(c *clusterv1.Cluster, _ *infrav1.MaasCluster) {
				conditions.Set(c, metav1.Condition{Type: clusterv1.ClusterAvailableCondition, Status: metav1.ConditionTrue})
			},
			"Cluster c is available, 1 of 2 machines run",
		},
		"hosts on their way": {
			func(_ *clusterv1.Cluster, infra *infrav1.MaasCluster) {
				conditions.Set(infra, metav1.Condition{Type: infrav1.LXDReadyCondition, Status: metav1.ConditionFalse, Message: "1 of 2"})
			},
			"Cluster c is not available yet, 1 of 2 machines run, 1 of 2",
		},
		"hosts": {
			func(_ *clusterv1.Cluster, infra *infrav1.MaasCluster) {
				conditions.Set(infra, metav1.Condition{Type: infrav1.LXDReadyCondition, Status: metav1.ConditionTrue})
			},
			"Cluster c is not available yet, 1 of 2 machines run, all nodes are LXD hosts",
		},
		"hosts that go": {
			func(c *clusterv1.Cluster, infra *infrav1.MaasCluster) {
				c.DeletionTimestamp = &deleted
				conditions.Set(infra, metav1.Condition{Type: infrav1.LXDReadyCondition, Status: metav1.ConditionTrue})
			},
			"Cluster c is being deleted, 1 of 2 machines run",
		},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, infra := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, &infrav1.MaasCluster{}
			tt.change(cluster, infra)
			if got := headline(cluster, infra, []row{{phase: phaseRunning}, {phase: phaseWaiting}}); got != tt.want {
				t.Errorf("headline = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*clusterv1.Machine, *infrav1.MaasMachine)
		want   row
	}{
		"new":      {func(*clusterv1.Machine, *infrav1.MaasMachine) {}, row{role: "worker", phase: phaseWaiting}},
		"composed": {deploying(""), row{role: "control plane", zone: "az1", host: "VM on h1", phase: phaseAcquiring, message: "wait"}},
		"deploying": {
			deploying("Deploying"), row{role: "control plane", zone: "az1", host: "VM on h1", phase: phaseDeploying, message: "wait"},
		},
		"joining": {
			func(m *clusterv1.Machine, infra *infrav1.MaasMachine) {
				infra.Spec.SystemID, infra.Status.Hostname = "abc", "rack-1"
				infra.Status.Initialization.Provisioned = ptr.To(true)
				infra.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "10.0.0.1"}}
				set(infra, infrav1.ReadyCondition, metav1.ConditionTrue, "")
				set(m, clusterv1.MachineReadyCondition, metav1.ConditionFalse, "* NodeHealthy: no Node\n* more")
			},
			row{role: "worker", host: "rack-1", address: "10.0.0.1", phase: phaseJoining, message: "NodeHealthy: no Node"},
		},
		"running": {
			func(m *clusterv1.Machine, _ *infrav1.MaasMachine) {
				set(m, clusterv1.MachineReadyCondition, metav1.ConditionTrue, "")
			},
			row{role: "worker", phase: phaseRunning},
		},
		"deleting": {
			func(m *clusterv1.Machine, _ *infrav1.MaasMachine) { m.DeletionTimestamp = ptr.To(metav1.Now()) },
			row{role: "worker", phase: phaseDeleting},
		},
	} {
		t.Run(name, func(t *testing.T) {
			machine, infra := &clusterv1.Machine{}, &infrav1.MaasMachine{}
			tt.change(machine, infra)
			if diff := cmp.Diff(tt.want, describe(machine, infra), cmp.AllowUnexported(row{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// deploying makes a VM with a state of MAAS.
func deploying(state string) func(*clusterv1.Machine, *infrav1.MaasMachine) {
	return func(m *clusterv1.Machine, infra *infrav1.MaasMachine) {
		m.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: ""}
		infra.Spec.ProvisioningMode, infra.Spec.SystemID = infrav1.ProvisioningModeLXD, "abc"
		infra.Status.LXDHost, infra.Status.FailureDomain, infra.Status.Hostname, infra.Status.MachineState = "h1", "az1", "vm-1", state
		set(infra, infrav1.ReadyCondition, metav1.ConditionFalse, "wait")
	}
}

func set(on conditions.Setter, condition string, status metav1.ConditionStatus, message string) {
	conditions.Set(on, metav1.Condition{Type: condition, Status: status, Reason: "Test", Message: message})
}

func TestTimeStopsWhenAMachineRuns(t *testing.T) {
	r := newRoster(nil, client.ObjectKey{})
	start := time.Now()
	took := func(phase string, after time.Duration) time.Duration {
		one := row{name: "m", phase: phase}
		r.clock(&one, start.Add(after))
		return one.took
	}
	got := []time.Duration{
		took(phaseWaiting, 0), took(phaseDeploying, time.Second), took(phaseRunning, 2*time.Second), took(phaseRunning, time.Minute),
		took(phaseDeleting, 2*time.Minute), took(phaseDeleting, 3*time.Minute),
	}
	want := []time.Duration{0, time.Second, 2 * time.Second, 2 * time.Second, 0, time.Minute}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSpread(t *testing.T) {
	machine := func(calls int) ledger.Machine { return ledger.Machine{Calls: make([]simulator.Call, calls)} }
	for want, machines := range map[string][]ledger.Machine{
		"0": nil, "4": {machine(4), machine(4)}, "2 to 5": {machine(5), machine(2), machine(3)},
	} {
		if got := spread(machines); got != want {
			t.Errorf("the spread is %q, want %q", got, want)
		}
	}
}
