// SPDX-License-Identifier: Apache-2.0

// Package states is the table of MAAS's machine states, with the meaning of each for a MaasMachine.
package states

import (
	"fmt"
	"time"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// consequence is what follows from a machine's state in MAAS.
type consequence int

const (
	// Deploy means that the machine can be deployed.
	Deploy consequence = iota
	// Runs means that the machine is deployed and on.
	Runs
	// Moving means that MAAS leaves the state without help.
	Moving
	// Person means that an operator must do something in MAAS; the machine continues without further help after that.
	Person
	// Replace means that this machine won't run again; a MachineHealthCheck or the user deletes the Machine.
	Replace
)

// Phases that MAAS should end in time.
const (
	Commissioning = "commissioning"
	Deploying     = "deploying"
)

// Assessment is the meaning of a machine's state in MAAS.
type Assessment struct {
	Then   consequence
	Reason string
	// Message continues "machine ID".
	Message string
	// Phase has a deadline, unless it is "".
	Phase string
	// Lost: MAAS may have given the machine's addresses to another user, so the endpoint may not contain them any more.
	Lost bool
}

var released = Assessment{Then: Replace, Reason: infrav1.MachineReleasedReason, Message: "was released in MAAS",
	Lost: true}

// states has an assessment for each state, for a machine that never ran (first) and for one that was provisioned
// (later). The table of docs/machine-states.md is made of it.
var states = map[maas.Status]struct{ first, later Assessment }{
	maas.StatusNew: {
		Assessment{Then: Moving, Reason: infrav1.CommissioningReason, Message: "is not commissioned yet",
			Phase: Commissioning}, released},
	maas.StatusCommissioning: {
		Assessment{Then: Moving, Reason: infrav1.CommissioningReason, Message: "is being commissioned", Phase: Commissioning},
		released},
	maas.StatusFailedCommissioning: both(Assessment{Then: Replace, Reason: infrav1.CommissioningFailedReason, Lost: true,
		Message: "failed commissioning; see its script results in MAAS"}),
	maas.StatusTesting: {
		Assessment{Then: Moving, Reason: infrav1.TestingReason, Message: "is being tested", Phase: Commissioning},
		Assessment{Then: Moving, Reason: infrav1.TestingReason,
			Message: "is being tested by another user; when the test ends, it returns to its earlier state"}},
	maas.StatusFailedTesting: {
		Assessment{Then: Replace, Reason: infrav1.TestingFailedReason,
			Message: "failed its tests; see their results in MAAS"},
		Assessment{Then: Person, Reason: infrav1.TestingFailedReason,
			Message: "failed tests that another user ran: override their result in MAAS, or delete the Machine"}},
	maas.StatusReady:     {Assessment{Then: Deploy}, released},
	maas.StatusAllocated: {Assessment{Then: Deploy}, released},
	maas.StatusReserved: {
		Assessment{Then: Person, Reason: infrav1.MachineReservedReason, Message: "is reserved by another user in MAAS"},
		Assessment{Then: Replace, Reason: infrav1.MachineReservedReason,
			Message: "was released, and is reserved by another user in MAAS", Lost: true}},
	maas.StatusDeploying: both(Assessment{Then: Moving, Reason: infrav1.DeployingReason, Message: "is being deployed",
		Phase: Deploying}),
	maas.StatusDeployed: both(Assessment{Then: Runs}),
	maas.StatusFailedDeployment: both(Assessment{Then: Replace, Reason: infrav1.DeployFailedReason,
		Message: "failed to deploy; see its events in MAAS"}),
	maas.StatusReleasing: {Assessment{Then: Moving, Reason: infrav1.ReleasingReason,
		Message: "is being released by another user"}, released},
	maas.StatusDiskErasing: {Assessment{Then: Moving, Reason: infrav1.ErasingDisksReason,
		Message: "is being erased by another user"}, released},
	maas.StatusReleasingFailed: both(Assessment{Then: Replace, Reason: infrav1.ReleaseFailedReason, Lost: true,
		Message: "was released by another user, and MAAS failed to release it"}),
	maas.StatusFailedDiskErasing: both(Assessment{Then: Replace, Reason: infrav1.EraseFailedReason, Lost: true,
		Message: "was released by another user, and MAAS failed to erase its disks"}),
	// MAAS releases a machine when it is marked broken.
	maas.StatusBroken: both(Assessment{Then: Replace, Reason: infrav1.MachineBrokenReason,
		Message: "is marked broken in MAAS", Lost: true}),
	maas.StatusMissing: both(Assessment{Then: Replace, Reason: infrav1.MachineMissingReason,
		Message: "is reported as Missing by MAAS"}),
	maas.StatusRetired: both(Assessment{Then: Replace, Reason: infrav1.MachineRetiredReason,
		Message: "is retired in MAAS", Lost: true}),
	maas.StatusEnteringRescueMode: both(Assessment{Then: Moving, Reason: infrav1.RescueModeReason,
		Message: "enters rescue mode"}),
	maas.StatusRescueMode: both(Assessment{Then: Person, Reason: infrav1.RescueModeReason,
		Message: "is in rescue mode: exit it in MAAS"}),
	maas.StatusExitingRescueMode: both(Assessment{Then: Moving, Reason: infrav1.RescueModeReason,
		Message: "exits rescue mode"}),
	maas.StatusFailedToEnterRescue:    both(rescueFailed),
	maas.StatusFailedToExitRescueMode: both(rescueFailed),
}

var rescueFailed = Assessment{Then: Person, Reason: infrav1.RescueModeFailedReason,
	Message: "failed to enter or exit rescue mode: exit rescue mode in MAAS"}

var (
	// Vanished is for a machine that MAAS does not have.
	Vanished = Assessment{Then: Replace, Reason: infrav1.MachineMissingReason,
		Message: "is no longer in MAAS: delete the Machine", Lost: true}
	// VMVanished is for a VM that its host does not have, and did not delete for us: nothing is made anew, because its
	// disk is gone.
	VMVanished = Assessment{Then: Replace, Reason: infrav1.MachineMissingReason,
		Message: "is no longer on its LXD host: delete the Machine", Lost: true}
	// NoAddress is for a machine without addresses: MAAS reports them a moment after Deployed.
	NoAddress = Assessment{Then: Moving, Reason: infrav1.DeployingReason, Message: "has no address", Phase: Deploying}
)

// DeployedByOthers is for a machine that is ours, and that another call than ours had deployed.
func DeployedByOthers(m *maas.Machine) Assessment {
	v := Assessment{Then: Replace, Reason: infrav1.DeploymentNotOursReason, Lost: true,
		Message: "was deployed by another call than this MaasMachine's, so what it runs is not known: delete the Machine"}
	if m.Locked {
		v.Message += ", and unlock the machine in MAAS"
	}
	return v
}

// ChecksFailed is for a machine that did not pass the tests of spec.checks; why continues "machine ID".
func ChecksFailed(m *maas.Machine, why string) Assessment {
	v := Assessment{Then: Replace, Reason: infrav1.ChecksFailedReason, Message: why + ": delete the Machine"}
	if m.Locked {
		v.Message += ", and unlock the machine in MAAS"
	}
	return v
}

// NotOurs returns the assessment of a machine that was not acquired for this MaasMachine. Its MAAS user may be ours:
// other clusters and people may use the same one.
func NotOurs(m *maas.Machine, ran bool) Assessment {
	v := Assessment{Then: Person, Reason: infrav1.MachineNotOursReason, Lost: true,
		Message: fmt.Sprintf("was acquired for something else (MAAS user %q, not with this cluster's owner id); it is not "+
			"changed", m.Owner)}
	if ran {
		v.Then = Replace
		v.Message += ": delete the Machine"
	}
	return v
}

func both(v Assessment) struct{ first, later Assessment } {
	return struct{ first, later Assessment }{v, v}
}

// Assess returns the meaning of a machine's state. ran means that it was provisioned before, vm that it is a VM which
// we composed.
func Assess(m *maas.Machine, ran, vm bool) Assessment {
	state, known := states[m.Status]
	v := state.first
	if ran {
		v = state.later
	}
	switch {
	case !known:
		v = Assessment{Then: Person, Reason: infrav1.MachineNotUsableReason,
			Message: fmt.Sprintf("is in the unknown state %q", m.StatusName)}
	case m.Status == maas.StatusNew && !ran && !vm:
		// MAAS commissions on its own only machines that it composed.
		v = Assessment{Then: Person, Reason: infrav1.NotCommissionedReason, Message: "is New: commission it in MAAS"}
	case v.Then == Runs && m.PowerState == maas.PowerOff && m.InMemory:
		v = Assessment{Then: Replace, Reason: infrav1.PoweredOffReason,
			Message: "is powered off, and what it ran in memory is lost"}
	case v.Then == Runs && m.PowerState == maas.PowerOff:
		v = Assessment{Then: Person, Reason: infrav1.PoweredOffReason,
			Message: "is deployed, but powered off: switch it on in MAAS, or delete the Machine"}
		if m.Device {
			v.Message = "is powered off: start it on its LXD host, or delete the Machine"
		}
	case m.Status == maas.StatusDeploying && m.IsSwitchedByHand():
		v.Message += ", and MAAS can't switch this machine (power type manual): a person must switch it on, or off and on"
	case v.Then == Deploy && m.Locked:
		v = Assessment{Then: Person, Reason: infrav1.MachineLockedReason,
			Message: "is locked, and can't be deployed: unlock it in MAAS"}
	}
	if v.Then == Replace {
		v.Message += ": delete the Machine"
		if m.Locked {
			v.Message += ", and unlock the machine in MAAS"
		}
	}
	return v
}

// Overdue returns the assessment after the deadline of a phase. Nothing is aborted or released: an operator may want to
// examine the machine, and MAAS may still finish.
func (v Assessment) Overdue(limit time.Duration) Assessment {
	reasons := map[string]string{Commissioning: infrav1.CommissioningTimedOutReason,
		Deploying: infrav1.DeployTimedOutReason}
	return Assessment{Then: Person, Reason: reasons[v.Phase], Phase: v.Phase,
		Message: fmt.Sprintf("%s, for more than %s: look at its console and events in MAAS, or delete the Machine", v.Message,
			limit)}
}
