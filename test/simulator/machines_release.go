// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// release releases a machine. A machine that is Ready or on its way there is not changed.
func (rq *request) release() (any, error) {
	m, err := rq.machineFor(mayEdit)
	if err != nil {
		return nil, err
	}
	erase, err := rq.requestedErasing()
	if err != nil {
		return nil, err
	}
	force, err := rq.releaseFlag("force", false)
	if err != nil {
		return nil, err
	}
	if err := rq.refuseErasing(m); err != nil {
		return nil, err
	}
	if m.status != statusReady && m.status != statusReleasing {
		if !slices.Contains(releasable, m.status) {
			return nil, conflict("Machine cannot be released in its current state ('%s').", m.status)
		}
		if err := rq.refuseWhileHost(m, force); err != nil {
			return nil, err
		}
		if err := rq.failToStop(m, erase); err != nil {
			return nil, err
		}
		rq.startRelease(m, erase)
	}
	return rq.renderMachine(m), nil
}

// refuseErasing refuses to erase a DPU (clean of ReleaseForm in maasserver/forms/ephemeral.py): from 3.8 on with an error
// that MAAS does not expect. Erasing that its settings require is not asked for here.
func (rq *request) refuseErasing(m *machine) error {
	const text = "Erasing disk is disabled for DPUs. For more information, refer to the documentation."
	asks := func(key string) bool { return rq.data.checkbox(key, false) }
	switch {
	case !m.isDPU || !asks("erase") && !asks("secure_erase") && !asks("quick_erase"):
		return nil
	case rq.version.AtLeast(3, 8, 0):
		return textError(http.StatusInternalServerError, text)
	}
	return invalidField("__all__", text)
}

// failToStop is a release whose machine can't be switched off: MAAS restores the status and returns the error, but not
// the data that it removed before, the agent name among it.
func (rq *request) failToStop(m *machine, erase erasing) error {
	if erase.kind != "" || m.powerState == "off" || m.powerType == "manual" || m.isDPU {
		return nil
	}
	text := rq.takeFailure(m, failPower)
	if text == "" {
		text = rq.noDriver(m)
	}
	if text == "" {
		return nil
	}
	before := m.status
	rq.letGo(m)
	rq.setStatus(m, statusReleasing)
	rq.setStatus(m, before)
	return textError(http.StatusInternalServerError, "%s", text)
}

// noDriver returns why the driver of a machine that is no VM of a VM host can't reach it; "" if it can.
func (rq *request) noDriver(m *machine) string {
	hv, name := rq.behind(m)
	if m.host != nil || hv == nil {
		return ""
	}
	var err error
	rq.unlocked(func() { _, err = hv.Power(name) })
	if err != nil {
		return err.Error()
	}
	return ""
}

// releaseFlag parses a flag of op=release, which has been a form since 3.5.
func (rq *request) releaseFlag(key string, fallback bool) (bool, error) {
	if rq.version.AtLeast(3, 5, 0) {
		return rq.data.checkbox(key, false), nil
	}
	return rq.data.boolean(key, fallback)
}

// erasing is how a release erases disks first.
type erasing struct {
	kind string // "" (not at all), quick, secure or full
	// asReleasing: the machine is Releasing meanwhile, and a failure is one of the release.
	asReleasing bool
}

func erasingOf(erase, secure, quick bool) erasing {
	switch {
	case !erase:
		return erasing{}
	case secure:
		return erasing{kind: "secure"}
	case quick:
		return erasing{kind: "quick"}
	}
	return erasing{kind: "full"}
}

// configuredErasing returns the erasing that MAAS's settings add to any release.
func (rq *request) configuredErasing() erasing {
	return erasingOf(rq.configBool("enable_disk_erasing_on_release"),
		rq.configBool("disk_erase_with_secure_erase"), rq.configBool("disk_erase_with_quick_erase"))
}

// requestedErasing parses how to erase disks. Before 3.5 the settings replace missing parameters, one by one. Since
// then erasing is a script of the release. Each of the three flags adds it, and the settings, if they require erasing,
// add it once more with their own flags; a release with more than this one script counts as Releasing.
func (rq *request) requestedErasing() (erasing, error) {
	configured := rq.configuredErasing()
	erase, err := rq.releaseFlag("erase", false)
	if err != nil {
		return erasing{}, err
	}
	secure, err := rq.releaseFlag("secure_erase", rq.configBool("disk_erase_with_secure_erase"))
	if err != nil {
		return erasing{}, err
	}
	quick, err := rq.releaseFlag("quick_erase", rq.configBool("disk_erase_with_quick_erase"))
	if err != nil {
		return erasing{}, err
	}
	if !rq.version.AtLeast(3, 5, 0) {
		return erasingOf(erase || configured.kind != "", secure, quick), nil
	}
	asked := erasingOf(erase || secure || quick, secure, quick)
	if configured.kind == "" {
		return asked, nil
	}
	configured.asReleasing = asked.kind != ""
	return configured, nil
}

// refuseWhileHost refuses to remove a machine on which VM hosts run, unless forced: then they are deleted, too.
func (rq *request) refuseWhileHost(m *machine, force bool) error {
	hosts := rq.hostsOn(m)
	if len(hosts) == 0 {
		return nil
	}
	if !force {
		names := make([]string, 0, len(hosts))
		for _, h := range hosts {
			names = append(names, h.name)
		}
		return badRequest("The following VM hosts must be removed first: %s", strings.Join(names, ", "))
	}
	for _, h := range hosts {
		rq.forgetHost(h)
	}
	return nil
}

// abort stops the machine's operation.
func (rq *request) abort() (any, error) {
	m, err := rq.machineFor(mayEdit)
	if err != nil {
		return nil, err
	}
	if m.epoch > 0 && m.aborting == m.epoch {
		return rq.renderMachine(m), nil // It is being switched off.
	}
	switch m.status {
	case statusDeploying:
		rq.stopAnd(m, func() { rq.setStatus(m, statusAllocated) })
	case statusCommissioning:
		m.owner = nil
		rq.endTests(m, scriptAborted)
		rq.stopAnd(m, func() { rq.setStatus(m, statusNew) })
	case statusTesting:
		next := m.previous
		if next == statusCommissioning {
			next = statusReady // The tests that follow commissioning are skipped.
		}
		rq.endTests(m, scriptAborted)
		rq.stopAnd(m, func() { rq.setStatus(m, next) })
	case statusDiskErasing:
		rq.stopAnd(m, func() { rq.setStatus(m, statusFailedDiskErasing) })
	default:
		return nil, conflict("Cannot abort in current state: node %s is in state %s.", m.systemID, m.status)
	}
	return rq.renderMachine(m), nil
}

// stopAnd switches the machine off, whatever its operation, and then calls then.
func (s *Simulator) stopAnd(m *machine, then func()) {
	m.epoch++
	m.aborting = m.epoch
	s.switchPower(m, false, func(err error) {
		if err != nil {
			s.fail(m, fmt.Sprintf("Power off for the node failed: %v", err))
			return
		}
		then()
		if !slices.Contains(keepsAutoAddresses, m.status) {
			s.releaseAutoAddresses(m)
		}
	})
}
