// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// Conditions of a MaasMachine in the order in which a machine gets them; the first that is not true is why it is not Ready.
var (
	bareMetalConditions = []string{infrav1.MachineDeployedCondition, infrav1.DNSAttachedCondition}
	lxdConditions       = []string{
		infrav1.LXDHostSelectedCondition, infrav1.LXDResourcesAllocatedCondition, infrav1.LXDVMCreatedCondition,
		infrav1.LXDVMDeployedCondition, infrav1.MachineDeployedCondition, infrav1.DNSAttachedCondition,
	}
)

// stopped says in the conditions, in an event and in the log why a step could not be done.
func (r *MaasMachineReconciler) stopped(ctx context.Context, m *infrav1.MaasMachine, err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) || errors.Is(err, context.Canceled) {
		return ctrl.Result{}, err
	}
	p := explain(err)
	old := conditions.Get(m, infrav1.MachineDeployedCondition)
	log := ctrl.LoggerFrom(ctx)
	if old == nil || old.Reason != p.reason {
		r.Recorder.Eventf(m, nil, corev1.EventTypeWarning, p.reason, "Reconcile", "%s", p.message)
	} else if p.reason == infrav1.MAASBusyReason {
		log = log.V(1) // Of a thousand machines most wait for their turn.
	}
	log.Info("Can't go on", "reason", p.reason, "error", strings.ReplaceAll(err.Error(), "\n", "; "))
	markDeployedUnknown(m, p)
	if p.reason == infrav1.MAASBusyReason {
		r.controller.DeferNextReconcileForObject(m, time.Now().Add(p.retryAfter)) // What is said here changes the object, which would wake us at once.
	}
	return p.result(err)
}

// markDeployedUnknown says why it is not known whether the machine is deployed. What was deployed before may well be so still.
func markDeployedUnknown(m *infrav1.MaasMachine, p problem) {
	if m.Spec.ProviderID != "" && m.DeletionTimestamp.IsZero() {
		setUnknown(m, infrav1.MachineDeployedCondition, p.reason, p.message)
		return
	}
	notDeployed(m, p.reason, "%s", p.message)
}

// notDeployed says in the first condition that is not true yet why the machine is not deployed.
func notDeployed(m *infrav1.MaasMachine, reason, format string, args ...any) {
	setFalse(m, infrav1.MachineDeployedCondition, reason, format, args...)
	if m.Spec.IsLXD() {
		for _, condition := range lxdConditions[:4] {
			if !conditions.IsTrue(m, condition) || condition == infrav1.LXDVMDeployedCondition {
				setFalse(m, condition, reason, format, args...)
				return
			}
		}
	}
}
