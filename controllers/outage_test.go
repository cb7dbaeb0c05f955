// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// While MAAS is down it is not known whether the machine runs, and it is not replaced.
func TestAMachineThatRunsIsUnknownWhileMAASIsAway(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	m := w.deployedMachine("m", false, vm)
	addresses := len(m.Status.Addresses)
	w.fault(simulator.Fault{DropBefore: true})
	w.eventually(m, "unknown", func() bool {
		return conditions.IsUnknown(m, infrav1.MachineDeployedCondition) && conditions.IsUnknown(m, infrav1.ReadyCondition) &&
			conditions.GetReason(m, infrav1.MachineDeployedCondition) == infrav1.MAASUnavailableReason
	})
	w.stored(m)
	if m.Status.FailureReason != "" || len(m.Status.Addresses) != addresses {
		t.Errorf("failureReason %q and addresses %v, want none and as before", m.Status.FailureReason, m.Status.Addresses)
	}
	w.maas.ClearFaults()
	w.eventually(m, "known to run again", func() bool {
		return conditions.IsTrue(m, infrav1.MachineDeployedCondition) && conditions.IsTrue(m, infrav1.ReadyCondition)
	})
}
