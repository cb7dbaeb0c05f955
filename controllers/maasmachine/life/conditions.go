// SPDX-License-Identifier: Apache-2.0

package life

import (
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
)

// Conditions of a MaasMachine in the order in which they become true; the first one that is not true gives the reason
// of Ready.
var (
	bareMetalConditions = []string{
		infrav1.MachineDeployedCondition, infrav1.DNSAttachedCondition, infrav1.NodeJoinedCondition,
	}
	lxdConditions = []string{
		infrav1.LXDHostSelectedCondition, infrav1.LXDResourcesAllocatedCondition, infrav1.LXDVMCreatedCondition,
		infrav1.LXDVMDeployedCondition, infrav1.MachineDeployedCondition, infrav1.DNSAttachedCondition,
		infrav1.NodeJoinedCondition,
	}
)

// Conditions returns those that make up the Ready condition of a MaasMachine, in order.
func Conditions(m *infrav1.MaasMachine) []string {
	if m.Spec.IsLXD() {
		return lxdConditions
	}
	return bareMetalConditions
}

// Await reports in the conditions what a step waits for.
func Await(m *infrav1.MaasMachine, out Outcome) ctrl.Result {
	p := out.Problem()
	switch {
	case out.IsHeld(), out.IsBrief() && conditions.Get(m, infrav1.MachineDeployedCondition) == nil:
		MarkDeployedUnknown(m, p)
	case !out.IsBrief():
		NotDeployed(m, p.Reason, "%s", p.Message)
	}
	return ctrl.Result{RequeueAfter: p.RetryAfter}
}

// MarkDeployedUnknown reports why it is not known whether the machine is deployed. A machine that was deployed becomes
// Unknown, not False.
func MarkDeployedUnknown(m *infrav1.MaasMachine, p report.Problem) {
	if m.Spec.ProviderID != "" && m.DeletionTimestamp.IsZero() {
		report.SetUnknown(m, infrav1.MachineDeployedCondition, p.Reason, p.Message)
		return
	}
	NotDeployed(m, p.Reason, "%s", p.Message)
}

// NotDeployed reports in the first condition that is not true yet why the machine is not deployed.
func NotDeployed(m *infrav1.MaasMachine, reason, format string, args ...any) {
	report.SetFalse(m, infrav1.MachineDeployedCondition, reason, format, args...)
	if m.Spec.IsLXD() {
		for _, condition := range lxdConditions[:4] {
			if !conditions.IsTrue(m, condition) || condition == infrav1.LXDVMDeployedCondition {
				report.SetFalse(m, condition, reason, format, args...)
				return
			}
		}
	}
}
