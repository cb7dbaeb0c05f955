// SPDX-License-Identifier: Apache-2.0

package simulator

import "slices"

// status is a machine's status, with the numbers that MAAS's API shows.
type status int

const (
	statusNew                  status = 0
	statusCommissioning        status = 1
	statusFailedCommissioning  status = 2
	statusMissing              status = 3
	statusReady                status = 4
	statusReserved             status = 5
	statusDeployed             status = 6
	statusRetired              status = 7
	statusBroken               status = 8
	statusDeploying            status = 9
	statusAllocated            status = 10
	statusFailedDeployment     status = 11
	statusReleasing            status = 12
	statusFailedReleasing      status = 13
	statusDiskErasing          status = 14
	statusFailedDiskErasing    status = 15
	statusRescueMode           status = 16
	statusEnteringRescueMode   status = 17
	statusFailedEnteringRescue status = 18
	statusExitingRescueMode    status = 19
	statusFailedExitingRescue  status = 20
	statusTesting              status = 21
	statusFailedTesting        status = 22
)

// statusInfo is MAAS's data of a status: the name that objects show, the short name for filters, the status after a
// failure, and the possible next ones.
type statusInfo struct {
	name   string
	short  string
	failed status
	next   []status
}

// noFailure marks a status in which nothing can fail.
const noFailure status = -1

// statuses is the state machine. MAAS refuses any other change.
var statuses = map[status]statusInfo{
	statusNew: {"New", "new", noFailure, []status{
		statusCommissioning, statusTesting, statusMissing, statusReady, statusRetired, statusBroken, statusEnteringRescueMode}},
	statusCommissioning: {"Commissioning", "commissioning", statusFailedCommissioning, []status{
		statusFailedCommissioning, statusReady, statusRetired, statusMissing, statusNew, statusBroken, statusTesting}},
	statusFailedCommissioning: {"Failed commissioning", "failed_commissioning", noFailure, []status{
		statusCommissioning, statusMissing, statusRetired, statusBroken, statusEnteringRescueMode, statusTesting}},
	statusMissing: {"Missing", "missing", noFailure, []status{
		statusNew, statusReady, statusAllocated, statusCommissioning, statusBroken, statusEnteringRescueMode, statusTesting}},
	statusReady: {"Ready", "ready", noFailure, []status{
		statusEnteringRescueMode, statusCommissioning, statusAllocated, statusReserved, statusRetired, statusMissing,
		statusBroken, statusTesting}},
	statusReserved: {"Reserved", "reserved", noFailure, []status{
		statusReady, statusAllocated, statusRetired, statusMissing, statusBroken, statusDiskErasing, statusReleasing,
		statusEnteringRescueMode, statusTesting}},
	statusDeployed: {"Deployed", "deployed", noFailure, []status{
		statusAllocated, statusMissing, statusBroken, statusReady, statusDiskErasing, statusReleasing,
		statusEnteringRescueMode, statusTesting}},
	statusRetired: {"Retired", "retired", noFailure, []status{
		statusNew, statusReady, statusMissing, statusBroken, statusEnteringRescueMode, statusTesting}},
	statusBroken: {"Broken", "broken", noFailure, []status{
		statusCommissioning, statusReady, statusDiskErasing, statusReleasing, statusEnteringRescueMode, statusTesting,
		statusDeployed}},
	statusDeploying: {"Deploying", "deploying", statusFailedDeployment, []status{
		statusAllocated, statusMissing, statusBroken, statusFailedDeployment, statusDeployed, statusReady,
		statusDiskErasing, statusReleasing}},
	statusAllocated: {"Allocated", "allocated", noFailure, []status{
		statusReady, statusRetired, statusMissing, statusBroken, statusDeploying, statusDiskErasing, statusReleasing,
		statusEnteringRescueMode, statusTesting}},
	statusFailedDeployment: {"Failed deployment", "failed_deployment", noFailure, []status{
		statusAllocated, statusMissing, statusBroken, statusReady, statusDiskErasing, statusReleasing,
		statusEnteringRescueMode, statusTesting}},
	statusReleasing: {"Releasing", "releasing", statusFailedReleasing, []status{
		statusNew, statusAllocated, statusReserved, statusDeployed, statusReady, statusBroken, statusMissing,
		statusFailedDeployment, statusFailedDiskErasing, statusFailedReleasing}},
	statusFailedReleasing: {"Releasing failed", "failed_releasing", noFailure, []status{
		statusReleasing, statusDiskErasing, statusReady, statusBroken, statusTesting}},
	statusDiskErasing: {"Disk erasing", "disk_erasing", statusFailedDiskErasing, []status{
		statusBroken, statusDiskErasing, statusFailedDiskErasing, statusReady, statusReleasing}},
	statusFailedDiskErasing: {"Failed disk erasing", "failed_disk_erasing", noFailure, []status{
		statusDiskErasing, statusReleasing, statusBroken, statusAllocated, statusReady, statusEnteringRescueMode,
		statusTesting}},
	statusRescueMode: {"Rescue mode", "rescue_mode", noFailure, []status{
		statusBroken, statusExitingRescueMode, statusTesting}},
	statusEnteringRescueMode: {"Entering rescue mode", "entering_rescue_mode", statusFailedEnteringRescue, []status{
		statusReady, statusBroken, statusDeployed, statusRescueMode, statusFailedEnteringRescue,
		statusExitingRescueMode}},
	statusFailedEnteringRescue: {"Failed to enter rescue mode", "failed_entering_rescue_mode", noFailure, []status{
		statusBroken, statusEnteringRescueMode, statusExitingRescueMode, statusTesting}},
	statusExitingRescueMode: {"Exiting rescue mode", "exiting_rescue_mode", statusFailedExitingRescue, []status{
		statusNew, statusBroken, statusFailedCommissioning, statusReady, statusReserved, statusAllocated,
		statusFailedDeployment, statusDeployed, statusMissing, statusRetired, statusFailedReleasing,
		statusFailedDiskErasing, statusRescueMode, statusFailedEnteringRescue, statusFailedExitingRescue,
		statusFailedTesting}},
	statusFailedExitingRescue: {"Failed to exit rescue mode", "failed_exiting_rescue_mode", noFailure, []status{
		statusBroken, statusExitingRescueMode, statusTesting}},
	statusTesting: {"Testing", "testing", statusFailedTesting, []status{
		statusBroken, statusNew, statusReady, statusReserved, statusAllocated, statusDeployed, statusCommissioning,
		statusFailedDeployment, statusMissing, statusRetired, statusFailedReleasing, statusFailedDiskErasing,
		statusFailedEnteringRescue, statusFailedExitingRescue, statusFailedTesting}},
	statusFailedTesting: {"Failed testing", "failed_testing", noFailure, []status{
		statusCommissioning, statusBroken, statusMissing, statusEnteringRescueMode, statusTesting, statusReady,
		statusDeployed}},
}

// releasable are the statuses in which op=release does something.
var releasable = []status{
	statusAllocated, statusReserved, statusBroken, statusDeploying, statusDeployed, statusFailedDeployment,
	statusFailedDiskErasing, statusFailedReleasing,
}

// keepsAutoAddresses are the statuses in which a machine that is switched off keeps the addresses of its AUTO links.
var keepsAutoAddresses = []status{
	statusCommissioning, statusTesting, statusDeploying, statusDeployed, statusDiskErasing, statusRescueMode,
	statusEnteringRescueMode,
}

func (st status) String() string { return statuses[st].name }

// mayBecome reports whether MAAS allows the change.
func (st status) mayBecome(next status) bool { return slices.Contains(statuses[st].next, next) }

// refuseTransition returns MAAS's refusal of a change that the table does not have, or nil.
func (m *machine) refuseTransition(next status) error {
	if m.status == next || m.status.mayBecome(next) {
		return nil
	}
	return conflict("Invalid transition: %s -> %s.", m.status, next)
}

// rememberedNever are the statuses that MAAS does not store as a machine's previous one.
var rememberedNever = []status{
	statusRescueMode, statusEnteringRescueMode, statusFailedEnteringRescue, statusExitingRescueMode,
	statusFailedExitingRescue, statusTesting,
}

// statusByShortName returns the status with the name that filters use.
func statusByShortName(short string) (status, bool) {
	for st, info := range statuses {
		if info.short == short {
			return st, true
		}
	}
	return 0, false
}
