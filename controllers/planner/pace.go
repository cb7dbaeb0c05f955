// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// paces are how long machines took until they were deployed, by their mode.
type paces map[infrav1.ProvisioningMode]time.Duration

// pacesOf returns the median of the machines of each mode. A machine counts as deployed when its condition last became
// true: one that was switched off since took less than it seems.
func pacesOf(machines []infrav1.MaasMachine) paces {
	took := map[infrav1.ProvisioningMode][]time.Duration{}
	for i := range machines {
		m := &machines[i]
		deployed := conditions.Get(m, infrav1.MachineDeployedCondition)
		if deployed == nil || deployed.Status != metav1.ConditionTrue {
			continue
		}
		// After clusterctl move the object is younger than its conditions.
		if d := deployed.LastTransitionTime.Sub(m.CreationTimestamp.Time); d > 0 {
			took[m.Spec.Mode()] = append(took[m.Spec.Mode()], d)
		}
	}
	medians := paces{}
	for mode, all := range took {
		slices.Sort(all)
		medians[mode] = all[len(all)/2]
	}
	return medians
}
