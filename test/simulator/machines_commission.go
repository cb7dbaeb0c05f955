// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"slices"
)

// commissionable are the statuses in which MAAS offers commissioning.
var commissionable = []status{
	statusNew, statusFailedCommissioning, statusReady, statusBroken, statusFailedTesting, statusMissing,
}

func (rq *request) commission() (any, error) {
	m, err := rq.machineFor(mayAdmin)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(commissionable, m.status) {
		return nil, invalidField("__all__", "Commission is not available because of the current state of the node.")
	}
	return rq.commissionNow(m)
}

// commissionNow starts commissioning, and returns the machine.
func (rq *request) commissionNow(m *machine) (any, error) {
	errs := formErrors{}
	names := rq.scriptNames()
	if slices.Contains(names, "none") {
		names = []string{""}
	} else if rq.checkScripts(names, errs); len(names) == 0 {
		names = []string{commissioningTag}
	}
	if err := errs.err(); err != nil {
		return nil, err
	}
	rq.startCommission(m, rq.user, rq.data.checkbox("skip_networking", false), names)
	return rq.renderMachine(m), nil
}

func (rq *request) markBroken() (any, error) {
	m, err := rq.machineFor(mayEdit)
	if err != nil {
		return nil, err
	}
	if m.owner != rq.user {
		return nil, forbidden("")
	}
	reason := orDefault(rq.data.get("comment"), rq.data.get("error_description"))
	if m.status != statusBroken {
		if err := m.refuseTransition(statusBroken); err != nil {
			return nil, err
		}
		rq.breakMachine(m)
	}
	rq.addEvent(m, "User marking node broken", fmt.Sprintf("(%s) - %s", rq.user.name, reason))
	m.errorDescription = reason
	return rq.renderMachine(m), nil
}

// breakMachine marks a machine broken, and releases it first. A machine that is on is switched off later, and keeps its
// owner.
func (s *Simulator) breakMachine(m *machine) {
	release := slices.Contains(releasable, m.status)
	if release {
		s.letGo(m)
		if m.powerState == "off" {
			s.clearOwnership(m)
		}
	}
	s.setStatus(m, statusBroken)
	if release && m.powerState != "off" {
		s.switchPower(m, false, func(error) {})
	}
}

func (rq *request) markFixed() (any, error) {
	m, err := rq.machineFor(mayAdmin)
	if err != nil {
		return nil, err
	}
	if m.status != statusBroken {
		return nil, conflict("Can't mark a non-broken node as 'Ready'.")
	}
	m.osystem, m.series, m.hweKernel, m.installResult, m.errorDescription = "", "", "", 0, ""
	if m.previous == statusDeployed {
		rq.setStatus(m, statusDeployed)
	} else {
		rq.setStatus(m, statusReady)
	}
	return rq.renderMachine(m), nil
}

func (rq *request) lockMachine() (any, error) {
	m, err := rq.machineFor(mayLock)
	if err != nil {
		return nil, err
	}
	if m.locked {
		return nil, conflict("Machine is already locked")
	}
	if m.status != statusDeployed && m.status != statusDeploying {
		return nil, conflict("Can't lock, node is not deployed or deploying")
	}
	m.locked = true
	rq.addEvent(m, "Locking", rq.data.get("comment"))
	return rq.renderMachine(m), nil
}

func (rq *request) unlockMachine() (any, error) {
	m, err := rq.machineFor(mayLock)
	if err != nil {
		return nil, err
	}
	if !m.locked {
		return nil, conflict("Machine is not locked")
	}
	m.locked = false
	rq.addEvent(m, "Unlocking", rq.data.get("comment"))
	return rq.renderMachine(m), nil
}

func (rq *request) rescueMode() (any, error) {
	m, err := rq.machineFor(mayAdmin)
	if err != nil {
		return nil, err
	}
	if err := m.refuseTransition(statusEnteringRescueMode); err != nil {
		return nil, err
	}
	before := m.status
	rq.setStatus(m, statusEnteringRescueMode)
	m.owner = rq.user
	rq.switchPower(m, true, func(err error) {
		if err != nil {
			rq.fail(m, err.Error())
			return
		}
		rq.later(m, rq.timings.rescueMode(), func() {
			rq.setStatus(m, statusRescueMode)
			m.previous = before
		})
	})
	return rq.renderMachine(m), nil
}

func (rq *request) exitRescueMode() (any, error) {
	m, err := rq.machineFor(mayAdmin)
	if err != nil {
		return nil, err
	}
	if err := m.refuseTransition(statusExitingRescueMode); err != nil {
		return nil, err
	}
	back := m.previous
	rq.setStatus(m, statusExitingRescueMode)
	on := back == statusDeployed
	rq.switchPower(m, on, func(err error) {
		if err != nil {
			rq.fail(m, err.Error())
			return
		}
		if !on {
			m.owner = nil
		}
		rq.setStatus(m, back)
	})
	return rq.renderMachine(m), nil
}
