// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// consequence is what follows from a machine's state in MAAS.
type consequence int

const (
	// deployIt: nothing is in the way of a deployment.
	deployIt consequence = iota
	// itRuns: the machine is deployed and on.
	itRuns
	// moving: MAAS leaves the state by itself.
	moving
	// person: an operator must do something in MAAS, and then it goes on by itself.
	person
	// replace: this machine won't run again; a MachineHealthCheck or the user deletes the Machine.
	replace
)

// Phases that MAAS should end by itself in time.
const (
	commissioning = "commissioning"
	deploying     = "deploying"
)

// assessment is what a machine's state in MAAS means.
type assessment struct {
	then   consequence
	reason string
	// says goes on after "machine ID".
	says string
	// phase has a deadline; "" has none.
	phase string
	// lost: MAAS may have given the machine's addresses to another user, so nothing may lead there any more.
	lost bool
}

var released = assessment{then: replace, reason: infrav1.MachineReleasedReason, says: "was released in MAAS", lost: true}

// states has a assessment for each state, for a machine that never ran (first) and for one that was provisioned (later). Docs:
// docs/machine-states.md.
var states = map[maas.Status]struct{ first, later assessment }{
	maas.StatusNew: {
		assessment{then: moving, reason: infrav1.CommissioningReason, says: "is not commissioned yet", phase: commissioning}, released},
	maas.StatusCommissioning: {
		assessment{then: moving, reason: infrav1.CommissioningReason, says: "is being commissioned", phase: commissioning}, released},
	maas.StatusFailedCommissioning: both(assessment{then: replace, reason: infrav1.CommissioningFailedReason, lost: true,
		says: "failed commissioning; see its script results in MAAS"}),
	maas.StatusTesting: {
		assessment{then: moving, reason: infrav1.TestingReason, says: "is being tested", phase: commissioning},
		assessment{then: moving, reason: infrav1.TestingReason, says: "is being tested by another user; when the test ends, it returns to its earlier state"}},
	maas.StatusFailedTesting: {
		assessment{then: replace, reason: infrav1.TestingFailedReason, says: "failed its tests; see their results in MAAS"},
		assessment{then: person, reason: infrav1.TestingFailedReason,
			says: "failed tests that another user ran: override their result in MAAS, or delete the Machine"}},
	maas.StatusReady:     {assessment{then: deployIt}, released},
	maas.StatusAllocated: {assessment{then: deployIt}, released},
	maas.StatusReserved: {
		assessment{then: person, reason: infrav1.MachineReservedReason, says: "is reserved by another user in MAAS"},
		assessment{then: replace, reason: infrav1.MachineReservedReason, says: "was released, and is reserved by another user in MAAS", lost: true}},
	maas.StatusDeploying: both(assessment{then: moving, reason: infrav1.DeployingReason, says: "is being deployed", phase: deploying}),
	maas.StatusDeployed:  both(assessment{then: itRuns}),
	maas.StatusFailedDeployment: both(assessment{then: replace, reason: infrav1.DeployFailedReason,
		says: "failed to deploy; see its events in MAAS"}),
	maas.StatusReleasing:   {assessment{then: moving, reason: infrav1.ReleasingReason, says: "is being released by another user"}, released},
	maas.StatusDiskErasing: {assessment{then: moving, reason: infrav1.ErasingDisksReason, says: "is being erased by another user"}, released},
	maas.StatusReleasingFailed: both(assessment{then: replace, reason: infrav1.ReleaseFailedReason, lost: true,
		says: "was released by another user, and MAAS failed to release it"}),
	maas.StatusFailedDiskErasing: both(assessment{then: replace, reason: infrav1.EraseFailedReason, lost: true,
		says: "was released by another user, and MAAS failed to erase its disks"}),
	// MAAS releases what is marked broken.
	maas.StatusBroken:                 both(assessment{then: replace, reason: infrav1.MachineBrokenReason, says: "is marked broken in MAAS", lost: true}),
	maas.StatusMissing:                both(assessment{then: replace, reason: infrav1.MachineMissingReason, says: "is reported as Missing by MAAS"}),
	maas.StatusRetired:                both(assessment{then: replace, reason: infrav1.MachineRetiredReason, says: "is retired in MAAS", lost: true}),
	maas.StatusEnteringRescueMode:     both(assessment{then: moving, reason: infrav1.RescueModeReason, says: "enters rescue mode"}),
	maas.StatusRescueMode:             both(assessment{then: person, reason: infrav1.RescueModeReason, says: "is in rescue mode: exit it in MAAS"}),
	maas.StatusExitingRescueMode:      both(assessment{then: moving, reason: infrav1.RescueModeReason, says: "exits rescue mode"}),
	maas.StatusFailedToEnterRescue:    both(rescueFailed),
	maas.StatusFailedToExitRescueMode: both(rescueFailed),
}

var rescueFailed = assessment{then: person, reason: infrav1.RescueModeFailedReason,
	says: "failed to enter or exit rescue mode: exit rescue mode in MAAS"}

var (
	// gone is for a machine that MAAS does not have.
	gone = assessment{then: replace, reason: infrav1.MachineMissingReason, says: "is no longer in MAAS: delete the Machine", lost: true}
	// noAddress: MAAS reports the addresses a moment after Deployed.
	noAddress = assessment{then: moving, reason: infrav1.DeployingReason, says: "has no address", phase: deploying}
)

// notOurs is for a machine that was not acquired for this MaasMachine. Its MAAS user may be ours: other clusters and people use the same.
func notOurs(m *maas.Machine, ran bool) assessment {
	v := assessment{then: person, reason: infrav1.MachineNotOursReason, lost: true,
		says: fmt.Sprintf("was acquired for something else (MAAS user %q, not with this cluster's owner id); it is not changed", m.Owner)}
	if ran {
		v.then = replace
		v.says += ": delete the Machine"
	}
	return v
}

func both(v assessment) struct{ first, later assessment } {
	return struct{ first, later assessment }{v, v}
}

// assess returns what a machine's state means. ran means that it was provisioned before, vm that it is a VM which we composed.
func assess(m *maas.Machine, ran, vm bool) assessment {
	state, known := states[m.Status]
	v := state.first
	if ran {
		v = state.later
	}
	switch {
	case !known:
		v = assessment{then: person, reason: infrav1.MachineNotUsableReason, says: fmt.Sprintf("is in the unknown state %q", m.StatusName)}
	case m.Status == maas.StatusNew && !ran && !vm:
		// MAAS commissions by itself what it composes, and nothing else.
		v = assessment{then: person, reason: infrav1.NotCommissionedReason, says: "is New: commission it in MAAS"}
	case v.then == itRuns && m.PowerState == maas.PowerOff:
		v = assessment{then: person, reason: infrav1.PoweredOffReason, says: "is deployed, but powered off"}
	case v.then == deployIt && m.Locked:
		v = assessment{then: person, reason: infrav1.MachineLockedReason, says: "is locked, and can't be deployed: unlock it in MAAS"}
	}
	if v.then == replace {
		v.says += ": delete the Machine"
		if m.Locked {
			v.says += ", and unlock the machine in MAAS"
		}
	}
	return v
}

// overdue returns the assessment at the deadline of a phase. Nothing is aborted, nor given back: an operator may want to look at the
// machine, and MAAS may end after all.
func (v assessment) overdue(limit time.Duration) assessment {
	reasons := map[string]string{commissioning: infrav1.CommissioningTimedOutReason, deploying: infrav1.DeployTimedOutReason}
	return assessment{then: person, reason: reasons[v.phase], phase: v.phase,
		says: fmt.Sprintf("%s, for more than %s: look at its console and events in MAAS, or delete the Machine", v.says, limit)}
}

// wasProvisioned reports whether Cluster API was told that the machine runs. The provider ID survives the loss of the status.
func wasProvisioned(m *infrav1.MaasMachine) bool {
	return m.Spec.ProviderID != "" || ptr.Deref(m.Status.Initialization.Provisioned, false)
}

// reportState says in the conditions that the machine does not run, and why, and returns when to look again.
func (r *MaasMachineReconciler) reportState(l *life, v assessment) outcome {
	m, after := l.MaasMachine, safetyRetry
	limit := r.limit(v.phase)
	if limit == 0 {
		v.phase = ""
	}
	if left := limit - l.record.Enter(v.phase, time.Now()); v.phase != "" && left > 0 {
		after = min(after, left)
	} else if v.phase != "" {
		v = v.overdue(limit)
	}
	message := fmt.Sprintf("machine %s %s", m.Spec.SystemID, v.says)
	if v.then != moving && conditions.GetReason(m, infrav1.MachineDeployedCondition) != v.reason {
		r.Recorder.Eventf(m, nil, corev1.EventTypeWarning, v.reason, "Observe", "%s", message)
	}
	notDeployed(m, v.reason, "%s", message)
	m.Status.FailureReason, m.Status.FailureMessage = "", ""
	if v.then == replace {
		m.Status.FailureReason, m.Status.FailureMessage = v.reason, message
	}
	if v.lost {
		m.Status.Addresses = nil
	}
	return waitAtMost(after)
}

// limit is how long a phase may take; 0 is for ever.
func (r *MaasMachineReconciler) limit(phase string) time.Duration {
	return map[string]time.Duration{commissioning: r.CommissionTimeout, deploying: r.DeployTimeout}[phase]
}

// isOverdue reports whether MAAS should have ended the machine's phase by now.
func (r *MaasMachineReconciler) isOverdue(l *life) bool {
	p := l.record.Phase
	return p != nil && r.limit(p.Name) > 0 && time.Since(p.Since.Time) >= r.limit(p.Name)
}
