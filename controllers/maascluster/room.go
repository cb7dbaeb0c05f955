// SPDX-License-Identifier: Apache-2.0

package maascluster

import (
	"fmt"
	"slices"

	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
)

// maxWaiting is how many machines a condition gives the reason of.
const maxWaiting = 3

// markRoom reports the machines that wait for room, each with what the placement, or MAAS, says of it. A rollout stops
// there until they have some. There is no such condition while none waits.
func markRoom(maasCluster *infrav1.MaasCluster, machines []infrav1.MaasMachine) {
	var waiting []string
	for i := range machines {
		if m := &machines[i]; waitsForRoom(m) {
			waiting = append(waiting, fmt.Sprintf("%s: %s", m.Name, conditions.GetMessage(m, infrav1.MachineDeployedCondition)))
		}
	}
	if len(waiting) == 0 {
		conditions.Delete(maasCluster, infrav1.MachinesHaveRoomCondition)
		return
	}
	slices.Sort(waiting)
	report.SetFalse(maasCluster, infrav1.MachinesHaveRoomCondition, infrav1.WaitingForRoomReason,
		"%d machine(s) wait for room: %s", len(waiting), text.Parts(waiting, maxWaiting))
}

// waitsForRoom reports whether no VM host, or no machine in MAAS, fits.
func waitsForRoom(m *infrav1.MaasMachine) bool {
	reason := conditions.GetReason(m, infrav1.MachineDeployedCondition)
	return m.DeletionTimestamp.IsZero() && (reason == infrav1.NoHostAvailableReason ||
		reason == infrav1.NoMachineAvailableReason)
}

// ignoreUnlessRoom drops all of MaasMachines but updates by which they begin or end to wait for room.
var ignoreUnlessRoom = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	DeleteFunc:  func(e event.DeleteEvent) bool { return waitsForRoom(e.Object.(*infrav1.MaasMachine)) },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return waitsForRoom(e.ObjectOld.(*infrav1.MaasMachine)) != waitsForRoom(e.ObjectNew.(*infrav1.MaasMachine))
	},
}
