// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"fmt"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/states"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// wasProvisioned reports whether Cluster API was told that the machine runs. The provider ID survives the loss of the
// status.
func wasProvisioned(m *infrav1.MaasMachine) bool {
	return m.Spec.ProviderID != "" || ptr.Deref(m.Status.Initialization.Provisioned, false)
}

// named names the machine, also if MAAS no longer has it.
func (l *life) named() string {
	if l.maas != nil {
		return l.maas.String()
	}
	return maas.Named(l.MaasMachine.Status.Hostname, l.MaasMachine.Spec.SystemID)
}

// stopped is the phase of a machine that ran, and has not since: a control plane leaves the endpoint after a while.
const stopped = "stopped"

// reportState waits because the machine does not run, and reports the failure if it won't.
func (r *Reconciler) reportState(l *life, v states.Assessment) outcome {
	m, after := l.MaasMachine, report.SafetyRetry
	if v.Phase == "" && wasProvisioned(m) {
		v.Phase = stopped
	}
	limit := r.limit(v.Phase)
	if left := limit - l.record.Enter(v.Phase, r.Clock.Now()); left > 0 {
		after = min(after, left)
	} else if limit > 0 {
		v = v.Overdue(limit)
	}
	message := fmt.Sprintf("machine %s %s", l.named(), v.Message)
	known := conditions.GetReason(m, infrav1.MachineDeployedCondition)
	if v.Then == states.Replace {
		known = m.Status.FailureReason // An outage of MAAS changes the condition for a while.
	}
	if v.Then != states.Moving && known != v.Reason {
		r.Warn(m, v.Reason, "Observe", "%s", message)
	}
	m.Status.FailureReason, m.Status.FailureMessage = "", ""
	if v.Then == states.Replace {
		m.Status.FailureReason, m.Status.FailureMessage = v.Reason, message
	}
	if v.Lost {
		m.Status.Addresses = nil
	}
	return report.Wait(after, v.Reason, "%s", message)
}

// limit returns how long a phase may take; 0 is no limit.
func (r *Reconciler) limit(phase string) time.Duration {
	return map[string]time.Duration{states.Commissioning: r.CommissionTimeout, states.Deploying: r.DeployTimeout}[phase]
}

// isOverdue reports whether the machine's phase is past its deadline.
func (r *Reconciler) isOverdue(l *life) bool {
	p := l.record.Phase
	return p != nil && r.limit(p.Name) > 0 && r.Clock.Since(p.Since.Time) >= r.limit(p.Name)
}
