// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
)

// maxTold is how many of the skipped machines a condition names.
const maxTold = 5

var (
	// failedStates are those of a machine that would likely fail again.
	failedStates = sets.New(maas.StatusFailedCommissioning, maas.StatusFailedTesting, maas.StatusFailedDeployment)
	// timedOut are the reasons of one that MAAS still works on, for too long.
	timedOut = sets.New(infrav1.CommissioningTimedOutReason, infrav1.DeployTimedOutReason)
)

// settleSeen says why a machine that MAAS has does not run, and remembers it if it failed.
func (r *MaasMachineReconciler) settleSeen(l *life, v verdict) outcome {
	out := r.settle(l, v)
	noteFailure(l)
	return out
}

// noteFailure remembers that a bare-metal machine failed, so that it is not the next one that MAAS gives. A VM goes with its failure.
func noteFailure(l *life) {
	reason := conditions.GetReason(l.MaasMachine, infrav1.MachineDeployedCondition)
	if !l.IsLXD() && (failedStates.Has(l.maas.Status) || (l.maas.Status.Moving() && timedOut.Has(reason))) {
		l.Machines.Failed(l.maas, string(l.MaasMachine.UID))
	}
}

// noMachine says that MAAS has no machine that fits, and which ones are skipped. Another one may become free meanwhile.
func noMachine(l *life, err error, cooling []machine.CoolingDown) outcome {
	after, message := capacityRetry, maas.Message(err)
	if len(cooling) > 0 {
		after = min(after, max(time.Until(cooling[0].Until), time.Second))
		message = fmt.Sprintf("skipped after recent failures: %s. MAAS says: %s", told(cooling), message)
	}
	notDeployed(l.MaasMachine, infrav1.NoMachineAvailableReason, "%s", message)
	return waitAtMost(after)
}

func told(cooling []machine.CoolingDown) string {
	var parts []string
	for _, m := range cooling[:min(len(cooling), maxTold)] {
		parts = append(parts, fmt.Sprintf("%s (%s, failures: %d) until %s", m.Hostname, m.SystemID, m.Failures, clock(m.Until)))
	}
	if more := len(cooling) - maxTold; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}
