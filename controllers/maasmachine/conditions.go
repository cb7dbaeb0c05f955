// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// Conditions of a MaasMachine in the order in which they become true; the first one that is not true gives the reason
// of Ready.
var (
	bareMetalConditions = []string{infrav1.MachineDeployedCondition, infrav1.DNSAttachedCondition}
	lxdConditions       = []string{
		infrav1.LXDHostSelectedCondition, infrav1.LXDResourcesAllocatedCondition, infrav1.LXDVMCreatedCondition,
		infrav1.LXDVMDeployedCondition, infrav1.MachineDeployedCondition, infrav1.DNSAttachedCondition,
	}
)

// Conditions returns those that make up the Ready condition of a MaasMachine, in order.
func Conditions(m *infrav1.MaasMachine) []string {
	if m.Spec.IsLXD() {
		return lxdConditions
	}
	return bareMetalConditions
}

// stopped reports in the conditions, in an event and in the log why a step failed.
func (r *Reconciler) stopped(ctx context.Context, m *infrav1.MaasMachine, err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) || errors.Is(err, context.Canceled) {
		return ctrl.Result{}, err
	}
	p := report.Explain(err)
	old := conditions.Get(m, infrav1.MachineDeployedCondition)
	log := ctrl.LoggerFrom(ctx)
	if old == nil || old.Reason != p.Reason {
		r.Warn(m, p.Reason, "Reconcile", "%s", p.Message)
	} else if p.Reason == infrav1.MAASBusyReason {
		log = log.V(1) // Of a thousand machines most wait for their turn.
	}
	if guard.Is[*record.LostError](err) {
		log = log.WithValues("response", maas.Message(err)) // The condition says what is waited for.
	}
	log.Info("Can't go on", "reason", p.Reason, "error", strings.ReplaceAll(err.Error(), "\n", "; "))
	markDeployedUnknown(m, p)
	if p.Reason == infrav1.MAASBusyReason {
		// The new condition would trigger a reconcile at once.
		r.controller.DeferNextReconcileForObject(m, r.Clock.Now().Add(p.RetryAfter))
	}
	return p.Result(err)
}

// await reports in the conditions what a step waits for.
func await(m *infrav1.MaasMachine, out outcome) ctrl.Result {
	p := out.Problem()
	switch {
	case out.IsHeld(), out.IsBrief() && conditions.Get(m, infrav1.MachineDeployedCondition) == nil:
		markDeployedUnknown(m, p)
	case !out.IsBrief():
		notDeployed(m, p.Reason, "%s", p.Message)
	}
	return ctrl.Result{RequeueAfter: p.RetryAfter}
}

// markDeployedUnknown reports why it is not known whether the machine is deployed. A machine that was deployed becomes
// Unknown, not False.
func markDeployedUnknown(m *infrav1.MaasMachine, p report.Problem) {
	if m.Spec.ProviderID != "" && m.DeletionTimestamp.IsZero() {
		report.SetUnknown(m, infrav1.MachineDeployedCondition, p.Reason, p.Message)
		return
	}
	notDeployed(m, p.Reason, "%s", p.Message)
}

// notDeployed reports in the first condition that is not true yet why the machine is not deployed.
func notDeployed(m *infrav1.MaasMachine, reason, format string, args ...any) {
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
