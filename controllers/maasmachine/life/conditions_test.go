// SPDX-License-Identifier: Apache-2.0

package life

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
)

func TestAWaitIsReported(t *testing.T) {
	wait, hold, retry := report.Wait(time.Minute, "New", "new"), report.Hold(time.Minute, "New", "new"), report.Retry(time.Minute, "New", "new")
	running := infrav1.MaasMachineSpec{ProviderID: "maas://zone-a/abc"}
	for name, tc := range map[string]struct {
		spec   infrav1.MaasMachineSpec
		before string
		out    Outcome
		reason string
		status metav1.ConditionStatus
	}{
		"the first wait":                      {infrav1.MaasMachineSpec{}, "", wait, "New", metav1.ConditionFalse},
		"another wait":                        {infrav1.MaasMachineSpec{}, "Old", wait, "New", metav1.ConditionFalse},
		"a machine that ran":                  {running, "Old", wait, "New", metav1.ConditionFalse},
		"a machine that ran, or may run":      {running, "Old", hold, "New", metav1.ConditionUnknown},
		"a moment, and nothing said so far":   {infrav1.MaasMachineSpec{}, "", retry, "New", metav1.ConditionFalse},
		"a moment, and something said so far": {infrav1.MaasMachineSpec{}, "Old", retry, "Old", metav1.ConditionFalse},
		"a moment after a move":               {running, "", retry, "New", metav1.ConditionUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			m := &infrav1.MaasMachine{Spec: tc.spec}
			if tc.before != "" {
				NotDeployed(m, tc.before, "so far")
			}
			if result := Await(m, tc.out); result.RequeueAfter != time.Minute {
				t.Errorf("requeued after %v", result.RequeueAfter)
			}
			if c := conditions.Get(m, infrav1.MachineDeployedCondition); c == nil || c.Reason != tc.reason || c.Status != tc.status {
				t.Errorf("the condition is %+v", c)
			}
		})
	}
}
