// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/internal/states"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

const (
	// requestWait is how long a machine may take to follow a request to switch it.
	requestWait = time.Minute
	// maxRequests is how often MAAS is asked to switch a machine before that counts as failed.
	maxRequests = 3
)

// facts are what is known of an unhealthy Machine and its machine.
type facts struct {
	spec     infrav1.MaasRemediationSpec
	progress infrav1.RemediationProgress
	healthy  bool
	// held is why a person wants nothing done; "": nobody does.
	held string
	// joined: the machine has been a Node.
	joined bool
	// machine is the machine in MAAS; nil: MAAS has none that is ours.
	machine *maas.Machine
	vm      bool
	// quorum is why the rest of the control plane can't do without the machine; "": it can, or it is no control plane.
	quorum string
	// published: the address of the machine may be in the endpoint's DNS record.
	published bool
}

// verdict is what comes next, and what people read about it.
type verdict struct {
	// step that begins; "": none.
	step infrav1.RemediationStep
	// condition says why, with a reason and a message.
	condition, reason, message string
}

func begins(step infrav1.RemediationStep, reason, format string, args ...any) *verdict {
	return &verdict{step, infrav1.PowerCycledCondition, reason, fmt.Sprintf(format, args...)}
}

func waits(condition, reason, format string, args ...any) *verdict {
	return &verdict{"", condition, reason, fmt.Sprintf(format, args...)}
}

// start decides whether the machine is switched off and on, now or later, or the Machine is replaced, where withoutMAAS
// does not.
func start(f facts) *verdict {
	if v := unfit(f); v != nil {
		return v
	}
	if f.quorum != "" {
		return waits(infrav1.PowerCycledCondition, infrav1.WaitingForQuorumReason,
			"%s: the machine is switched off when they are healthy", f.quorum)
	}
	if f.published {
		return begins(infrav1.RemediationLeaveEndpoint, infrav1.LeavingEndpointReason,
			"the control plane leaves the API endpoint before it is switched off")
	}
	return begins(infrav1.RemediationPowerOff, infrav1.PoweringOffReason, "machine %s is being switched off", f.machine)
}

// withoutMAAS is what is decided whatever MAAS says of the machine; nil if that matters.
func withoutMAAS(f facts) *verdict {
	tries := ptr.Deref(f.spec.PowerCycle.Tries, infrav1.DefaultPowerCycleTries)
	switch {
	case f.healthy:
		return waits(infrav1.PowerCycledCondition, infrav1.MachineHealthyReason, "the Machine is healthy: nothing is done")
	case f.held != "":
		return waits(infrav1.PowerCycledCondition, infrav1.RemediationHeldReason, "%s", f.held)
	case tries == 0:
		return begins(infrav1.RemediationReplace, infrav1.PowerCycleOmittedReason, "spec.powerCycle.tries is 0")
	case f.progress.PowerCycles >= tries:
		return &verdict{step: infrav1.RemediationReplace}
	case !f.joined:
		return begins(infrav1.RemediationReplace, infrav1.PowerCycleOmittedReason,
			"the machine was never a Node: its bootstrap does not run again after a restart")
	}
	return nil
}

// unfit returns why a machine is not switched, now or at all; nil if it may be.
func unfit(f facts) *verdict {
	if f.machine == nil {
		return begins(infrav1.RemediationReplace, infrav1.PowerCycleOmittedReason,
			"MAAS has no machine that is proven to be this Machine's")
	}
	state := states.Assess(f.machine, true, f.vm)
	switch {
	case state.Then == states.Replace:
		return begins(infrav1.RemediationReplace, infrav1.PowerCycleOmittedReason, "machine %s %s", f.machine, state.Message)
	case f.machine.Status != maas.StatusDeployed:
		return waits(infrav1.PowerCycledCondition, infrav1.RemediationHeldReason, "machine %s %s", f.machine, state.Message)
	case f.machine.Locked:
		return waits(infrav1.PowerCycledCondition, infrav1.RemediationHeldReason,
			"machine %s is locked: unlock it in MAAS, or delete the Machine", f.machine)
	case f.machine.PowerState == maas.PowerUnknown && !f.machine.Device: // That one is switched by its host.
		return begins(infrav1.RemediationReplace, infrav1.PowerCycleOmittedReason,
			"MAAS does not control the power of machine %s", f.machine.SystemID)
	}
	return nil
}

// switching decides how a power cycle goes on, given what the BMC or the host says of the power now. ask: MAAS is to be
// asked to switch the machine. settling is how much longer an earlier request may take effect.
func switching(
	p infrav1.RemediationProgress, systemID, power string, settling time.Duration, now time.Time,
) (v *verdict, ask bool) {
	off := p.Step == infrav1.RemediationPowerOff
	doing, reason := maas.PowerOn, infrav1.PoweringOnReason
	if off {
		doing, reason = maas.PowerOff, infrav1.PoweringOffReason
	}
	v = waits(infrav1.PowerCycledCondition, reason, "machine %s is being switched %s", systemID, doing)
	switch {
	case off && power == doing && p.Requests > 1 && settling > 0:
		return v, false // The other request could switch the machine off when it is on again.
	case off && power == doing:
		return begins(infrav1.RemediationPowerOn, infrav1.PoweringOnReason, "machine %s is off, and is being switched on",
			systemID), false
	case power == doing:
		return begins(infrav1.RemediationRecover, infrav1.PowerCycledReason, "machine %s was switched off and on",
			systemID), false
	case p.Requests == 0:
		return v, true
	case now.Sub(p.Requested.Time) < requestWait, settling > 0:
		return v, false // MAAS may still do it; to be switched on restarts some machines that are on already.
	case p.Requests < maxRequests:
		return v, true
	}
	return begins(infrav1.RemediationReplace, infrav1.PowerCycleFailedReason,
		"MAAS was asked %d times to switch machine %s %s, and says that its power is %s: check its power settings in MAAS",
		p.Requests, systemID, doing, power), false
}

// recovering decides whether the Node gets more time after a power cycle; nil: it has had enough.
func recovering(f facts, now time.Time) *verdict {
	if f.healthy {
		return waits(infrav1.HandedOverCondition, infrav1.MachineHealthyReason,
			"the Machine is healthy again: nothing more is done")
	}
	limit := time.Duration(cmp.Or(f.spec.PowerCycle.TimeoutSeconds, infrav1.DefaultPowerCycleTimeoutSeconds)) * time.Second
	until := f.progress.Since.Add(limit)
	if !now.Before(until) {
		return nil
	}
	return waits(infrav1.HandedOverCondition, infrav1.WaitingForNodeReason,
		"the machine was switched on; its Node has until %s to be healthy", until.UTC().Format(time.RFC3339))
}

// replacing decides whether the Machine is handed over to Cluster API; nil: it is.
func replacing(f facts) *verdict {
	switch {
	case f.healthy:
		return waits(infrav1.HandedOverCondition, infrav1.MachineHealthyReason, "the Machine is healthy: nothing is done")
	case f.held != "":
		return waits(infrav1.HandedOverCondition, infrav1.RemediationHeldReason, "%s", f.held)
	case f.quorum != "":
		return waits(infrav1.HandedOverCondition, infrav1.WaitingForQuorumReason,
			"%s: the Machine is replaced when they are healthy", f.quorum)
	}
	return nil
}

// isHealthy reports whether a Machine is healthy: a MachineHealthCheck says so or, if there is none, its Node.
func isHealthy(m *clusterv1.Machine) bool {
	if checked := conditions.Get(m, clusterv1.MachineHealthCheckSucceededCondition); checked != nil {
		return checked.Status == metav1.ConditionTrue
	}
	return conditions.IsTrue(m, clusterv1.MachineNodeHealthyCondition)
}

// after returns the progress when a step begins.
func after(p infrav1.RemediationProgress, step infrav1.RemediationStep, now time.Time) infrav1.RemediationProgress {
	next := infrav1.RemediationProgress{Step: step, Since: ptr.To(metav1.NewTime(now).Rfc3339Copy()),
		PowerCycles: p.PowerCycles}
	begun := p.Step == infrav1.RemediationLeaveEndpoint
	if step == infrav1.RemediationLeaveEndpoint || (step == infrav1.RemediationPowerOff && !begun) {
		next.PowerCycles++
	}
	return next
}
