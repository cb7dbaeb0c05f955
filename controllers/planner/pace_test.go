// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

func TestPaces(t *testing.T) {
	const lxd, metal = infrav1.ProvisioningModeLXD, infrav1.ProvisioningModeBareMetal
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	machine := func(mode infrav1.ProvisioningMode, took time.Duration, status metav1.ConditionStatus) infrav1.MaasMachine {
		m := infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created)}}
		m.Spec.ProvisioningMode = mode
		m.SetConditions([]metav1.Condition{{Type: infrav1.MachineDeployedCondition, Status: status, LastTransitionTime: metav1.NewTime(created.Add(took))}})
		return m
	}
	for name, tc := range map[string]struct {
		machines []infrav1.MaasMachine
		want     paces
	}{
		"none":                  {nil, paces{}},
		"without a condition":   {[]infrav1.MaasMachine{{}}, paces{}},
		"each mode":             {[]infrav1.MaasMachine{machine(lxd, time.Minute, "True"), machine(metal, time.Hour, "True")}, paces{lxd: time.Minute, metal: time.Hour}},
		"the median":            {[]infrav1.MaasMachine{machine(lxd, 9, "True"), machine(lxd, 1, "True"), machine(lxd, 2, "True")}, paces{lxd: 2}},
		"no machine that fails": {[]infrav1.MaasMachine{machine(lxd, 9, "False")}, paces{}},
		"no machine that moved": {[]infrav1.MaasMachine{machine(lxd, -time.Hour, "True")}, paces{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, pacesOf(tc.machines)); diff != "" {
				t.Errorf("the paces differ (-want +got):\n%s", diff)
			}
		})
	}
}
