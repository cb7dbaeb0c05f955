// SPDX-License-Identifier: Apache-2.0

package inplace_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capmaas/cluster-api-provider-maas/test/life"
)

// A change that MaasMachines take is made in place. One that they refuse is begun, since Cluster API asks only the
// extension about the templates of MachineDeployments: the Machine then waits for ever, and its machine stays as it is.
func TestInPlaceUpdatesOfWorkers(t *testing.T) {
	l := life.Begin(t, box, "inplace")
	l.Create(life.Topology(t, "inplace", "v1.35.0", 1, 2, map[string]any{"dnsDomain": "maas.sim", "image": "u-2204-k8s-1.35"}))
	l.Available(3)
	machines := systemIDs(l)
	changeWorkers(l, map[string]any{"release": map[string]any{"erase": "quick"}})
	l.Wait("both workers to be updated in place", func() (bool, string, error) {
		_, workers := l.MaasMachines()
		changed := 0
		for _, m := range workers {
			if m.Spec.Release.Erase == "quick" && machines[m.Name] == m.Spec.SystemID {
				changed++
			}
		}
		return changed == 2 && len(workers) == 2 && willing.updates() == 2, "", nil
	})
	l.Available(3)

	changeWorkers(l, map[string]any{"minCPU": 1, "release": map[string]any{"erase": "quick"}})
	l.Wait("the validation to refuse an update in place", func() (bool, string, error) {
		log, err := os.ReadFile(filepath.Join(box.LogDir, "sandbox.log"))
		return strings.Contains(string(log), "minCPU is immutable"), "", err
	})
	waiting := 0
	for _, m := range l.Machines() {
		if _, begun := m.Annotations[clusterv1.UpdateInProgressAnnotation]; begun {
			waiting++
		}
	}
	if now := systemIDs(l); waiting != 1 || len(now) != 2 || willing.updates() != 2 {
		t.Errorf("%d Machines wait, and the workers are %v, after %d updates; want 1, %v, and 2", waiting, now, willing.updates(), machines)
	}
	_, workers := l.MaasMachines()
	for _, m := range workers {
		if machines[m.Name] != m.Spec.SystemID || m.Spec.MinCPU != 2 {
			t.Errorf("%s has machine %s with minCPU %d, want %s with 2", m.Name, m.Spec.SystemID, m.Spec.MinCPU, machines[m.Name])
		}
	}
	l.Delete()
}

// systemIDs are the workers' machines by the names of the MaasMachines.
func systemIDs(l *life.Life) map[string]string {
	ids := map[string]string{}
	_, workers := l.MaasMachines()
	for _, m := range workers {
		ids[m.Name] = m.Spec.SystemID
	}
	return ids
}

// changeWorkers sets the variable worker for the workers, one of which may be away at a time.
func changeWorkers(l *life.Life, worker map[string]any) {
	l.Helper()
	raw, err := json.Marshal(worker)
	if err != nil {
		l.Fatal(err)
	}
	none, one := intstr.FromInt32(0), intstr.FromInt32(1)
	l.Change(func(c *clusterv1.Cluster) {
		workers := &c.Spec.Topology.Workers.MachineDeployments[0]
		workers.Rollout.Strategy = clusterv1.MachineDeploymentTopologyRolloutStrategy{
			Type:          clusterv1.RollingUpdateMachineDeploymentStrategyType,
			RollingUpdate: clusterv1.MachineDeploymentTopologyRolloutStrategyRollingUpdate{MaxSurge: &none, MaxUnavailable: &one},
		}
		workers.Variables.Overrides = []clusterv1.ClusterVariable{{Name: "worker"}}
		workers.Variables.Overrides[0].Value.Raw = raw
	})
}
