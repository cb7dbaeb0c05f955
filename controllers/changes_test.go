// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// Another manager has acquired a machine between this manager's read and its request.
func TestAManagerThatStoodStillBeforeItsNoteTakesNoSecondMachine(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	machines := w.maas.Machines()
	slices.Reverse(machines) // MAAS would give the first one.
	taken := machines[slices.IndexFunc(machines, func(m simulator.MachineSnapshot) bool { return m.Status == "Ready" })]
	var once sync.Once
	w.maas.SetHook(func(call simulator.Call, phase simulator.Phase) error {
		if phase == simulator.Before && call.Endpoint == "machines/" && strings.Contains(call.Query, "agent_name=") {
			once.Do(func() { w.takenByOther("stood-still", taken.SystemID) })
		}
		return nil
	})
	m := w.newMachine("stood-still", false, infrav1.MaasMachineSpec{})
	w.eventually(m, "deployed", func() bool { return conditions.IsTrue(m, infrav1.MachineDeployedCondition) })
	if m.Spec.SystemID != taken.SystemID {
		t.Errorf("the MaasMachine has machine %s, want %s", m.Spec.SystemID, taken.SystemID)
	}
	for _, other := range w.maas.Machines() {
		if other.SystemID != taken.SystemID && other.AgentName != "" {
			t.Errorf("machine %s (%s) has the agent name %s", other.SystemID, other.Hostname, other.AgentName)
		}
	}
}

// takenByOther records a machine for a MaasMachine, as another manager would.
func (w *world) takenByOther(name, systemID string) {
	m := &infrav1.MaasMachine{}
	m.Namespace, m.Name = w.namespace, name
	patch := fmt.Appendf(nil, `{"spec":{"systemID":%q}}`, systemID)
	if err := w.client.Patch(w.t.Context(), m, client.RawPatch(client.Merge.Type(), patch)); err != nil {
		w.t.Error(err)
	}
}
