// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"slices"
	"time"
)

// nodeTimeout is how long a machine may commission or deploy before MAAS fails it.
const nodeTimeout = 30 * time.Minute

// releaseTimeout is how long a machine may be Releasing (NODE_FAILURE_MONITORED_STATUS_TIMEOUTS in
// maasserver/node_status.py).
const releaseTimeout = 5 * time.Minute

// setStatus changes a machine's status. Handlers check before whether that is allowed.
func (s *Simulator) setStatus(m *machine, next status) {
	from := m.status
	if !slices.Contains(rememberedNever, from) {
		m.previous = from
	}
	m.status = next
	if next == statusNew || next == statusReady {
		m.owner, m.nodeKey = nil, apiKey{}
	}
	m.epoch++
	s.addEvent(m, next.String(), "")
	s.publish(m, ChangeStatus, from.String(), next.String())
}

// setPowerState stores MAAS's view of the machine's power, and its consequences.
func (s *Simulator) setPowerState(m *machine, state string) {
	from := m.powerState
	m.powerState = state
	s.publish(m, ChangePower, from, state)
	if state == "off" && !slices.Contains(keepsAutoAddresses, m.status) {
		s.releaseAutoAddresses(m)
		if from != state { // release_auto_ips in maasserver/models/signals/nodes.py
			s.removeAcquired(m)
		}
	}
}

// onHost calls a VM host and then calls then. The caller holds s.mu, and so will then: a simulated host is called at
// once, a real one in the background.
func (s *Simulator) onHost(hv hypervisor, call func() error, then func(error)) {
	if !remote(hv) {
		then(call())
		return
	}
	if s.closed {
		return
	}
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		err := call()
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed {
			then(err)
		}
	}()
}

// onHostFor is onHost for an operation of the machine: then is not called if the machine has another operation by then,
// or is gone.
func (s *Simulator) onHostFor(m *machine, hv hypervisor, call func() error, then func(error)) {
	epoch := m.epoch
	s.onHost(hv, call, func(err error) {
		if !m.gone && m.epoch == epoch {
			then(err)
		}
	})
}

// switchPower makes the BMC switch the machine, and calls then with the result.
func (s *Simulator) switchPower(m *machine, on bool, then func(error)) {
	took, state := s.timings.powerOff(), "off"
	if on {
		took, state = s.timings.powerOn(), "on"
	}
	if s.isHung(m) {
		s.tryAgain(m, on, s.powerTries()-1, then)
		return
	}
	s.later(m, took, func() {
		s.flip(m, on, func(err error) {
			if err != nil {
				s.setPowerState(m, "error")
			} else {
				s.setPowerState(m, state)
			}
			then(err)
		})
	})
}

// cyclePower makes the BMC switch the machine on, and off before if MAAS shows it as on: what runs there ends (_start with
// allow_power_cycle in maasserver/models/node.py).
func (s *Simulator) cyclePower(m *machine, then func(error)) {
	if m.powerState != "on" {
		s.switchPower(m, true, then)
		return
	}
	s.switchPower(m, false, func(err error) {
		if err != nil {
			then(err)
			return
		}
		s.switchPower(m, true, then)
	})
}

// powerTimeout is how long MAAS waits for a BMC in each try (POWER_ACTION_ACTIVITY_TIMEOUT in
// maastemporalworker/workflow/power.py; CHANGE_POWER_STATE_TIMEOUT in provisioningserver/rpc/power.py before 3.5).
const powerTimeout = 5 * time.Minute

// powerTries is how often MAAS tries to switch a machine.
func (s *Simulator) powerTries() int {
	if s.version.AtLeast(3, 5, 0) {
		return 3
	}
	return 1
}

// HangBMC lets the BMC of a bare-metal machine respond to nothing for a while of the region's time.
func (s *Simulator) HangBMC(systemID string, lasts time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.machineByID(systemID); m != nil {
		m.hungTo = s.time.now() + lasts
	}
}

// isHung reports whether the machine's BMC responds to nothing.
func (s *Simulator) isHung(m *machine) bool { return s.time.now() < m.hungTo }

// tryAgain switches a machine whose BMC does not respond in a try that begins now, if it responds in one of the others,
// whatever becomes of the request and of the machine meanwhile: another user's is switched, too. then is only called for
// the operation that the machine had.
func (s *Simulator) tryAgain(m *machine, on bool, others int, then func(error)) {
	epoch := m.epoch
	s.in(powerTimeout, func() {
		current := func(err error) {
			if m.epoch == epoch {
				then(err)
			}
		}
		switch {
		case m.gone:
		case others == 0:
			s.setPowerState(m, "error")
			current(fmt.Errorf("the BMC does not respond"))
		case s.isHung(m):
			s.tryAgain(m, on, others-1, current)
		default:
			m.running = on
			s.setPowerState(m, onOff(on))
			current(nil)
		}
	})
}

// flip really switches the machine.
func (s *Simulator) flip(m *machine, on bool, then func(error)) {
	if text := s.takeFailure(m, failPower); text != "" {
		then(fmt.Errorf("%s", text))
		return
	}
	if on {
		m.boots++
	}
	hv, name := s.behind(m)
	if hv == nil {
		m.running = on
		then(nil)
		return
	}
	s.onHostFor(m, hv, func() error { return hv.SetPower(name, on) }, func(err error) {
		if err == nil {
			m.running = on
		}
		then(err)
	})
}

// Operations that can be made to fail.
const (
	failDeploy     = "deploy"
	failCommission = "commission"
	failRelease    = "release"
	failErase      = "erase"
	failPower      = "power"
	failTest       = "test"
)

var failable = []string{failDeploy, failCommission, failRelease, failErase, failPower, failTest}

// takeFailure returns the message of a failure that a tester set for the operation, or "".
func (s *Simulator) takeFailure(m *machine, operation string) string {
	if text, ok := m.failing[operation]; ok {
		delete(m.failing, operation)
		return text
	}
	text := s.failNext[operation]
	delete(s.failNext, operation)
	return text
}

// fail puts the machine into the failure status of the present one.
func (s *Simulator) fail(m *machine, reason string) {
	next := statuses[m.status].failed
	if next == noFailure {
		return
	}
	was := m.status
	s.setStatus(m, next)
	m.errorDescription = reason
	s.addEvent(m, "Marking node failed", reason)
	switch was {
	case statusCommissioning:
		m.commissionStatus = scriptFailed
		s.endTests(m, scriptAborted)
	case statusTesting:
		s.endTests(m, scriptFailed)
	}
}

// failSoon lets the operation under way time out.
func (s *Simulator) failSoon(m *machine) {
	s.later(m, nodeTimeout, func() {
		s.fail(m, fmt.Sprintf("Node operation '%s' timed out after 30 minutes.", m.status))
	})
}

// acquire gives a Ready machine to a user.
func (s *Simulator) acquire(m *machine, u *user, agentName string) {
	m.owner, m.agentName, m.nodeKey = u, agentName, apiKey{}
	s.setStatus(m, statusAllocated)
}

// startDeploy deploys an acquired machine with its settings.
func (s *Simulator) startDeploy(m *machine) {
	s.setStatus(m, statusDeploying)
	m.errorDescription = ""
	if !m.ephemeral {
		m.erased = ""
	}
	m.installResult = s.db.next("scriptset")
	s.switchPower(m, true, func(err error) {
		if err != nil {
			s.fail(m, fmt.Sprintf("Power on for the node failed: %v", err))
			return
		}
		s.addEvent(m, "Loading ephemeral", "")
		s.later(m, s.timings.deploy(m.isVM()), func() { s.finishDeploy(m) })
	})
}

// takeDeploymentBack ends a deployment that could not begin: the machine is Allocated again, without the bridges that were
// made in that state (_start_bmc_unavailable and release_interface_config in maasserver/models/node.py).
func (s *Simulator) takeDeploymentBack(m *machine) {
	s.setStatus(m, statusAllocated)
	s.addEvent(m, "Failed to query node's BMC", fmt.Sprintf(
		"(%s) - Aborting DEPLOYING and reverting to ALLOCATED. Unable to power control the node. Please check power credentials.", m.owner.name))
	s.releaseAutoAddresses(m)
	s.removeAcquired(m)
}

func (s *Simulator) finishDeploy(m *machine) {
	if text := s.takeFailure(m, failDeploy); text != "" {
		s.fail(m, text)
		return
	}
	if !m.running {
		s.failSoon(m)
		return
	}
	if text := s.installComplaint(m); text != "" {
		s.fail(m, text)
		return
	}
	m.install()
	m.netboot = false
	s.leaseDHCP(m)
	if im := s.imageOf(m); im != nil {
		im.lastDeployed = s.time.clock.Now().UTC()
	}
	s.addEvent(m, "Image Deployed", fmt.Sprintf("deployed %s/%s/%s", m.osystem, m.series, m.architecture))
	s.setStatus(m, statusDeployed)
}

// startRelease releases an acquired machine.
func (s *Simulator) startRelease(m *machine, erase erasing) {
	if erase.kind != "" {
		s.startErase(m, erase)
		return
	}
	s.stopAndFinish(m)
}

// startErase boots the machine into an environment that erases its disks, and releases it afterwards. Only a power
// failure ends it early: MAAS has no time limit for it.
func (s *Simulator) startErase(m *machine, erase erasing) {
	if erase.asReleasing {
		s.setStatus(m, statusReleasing)
	} else {
		s.setStatus(m, statusDiskErasing)
	}
	took := map[string]time.Duration{
		"quick": s.timings.eraseQuick(), "secure": s.timings.eraseSecure(), "full": s.timings.eraseFull(),
	}[erase.kind]
	s.switchPower(m, true, func(err error) {
		if err != nil {
			s.fail(m, fmt.Sprintf("Power cycle for the node failed: %v", err))
			return
		}
		s.later(m, took, func() {
			if text := s.takeFailure(m, failErase); text != "" {
				s.fail(m, text)
				return
			}
			m.erased = erase.kind
			m.eraseAll()
			s.stopAndFinish(m)
		})
	})
}

// stopAndFinish switches the machine off, if it is on, and finishes its release.
func (s *Simulator) stopAndFinish(m *machine) {
	s.letGo(m)
	wasOn := m.powerState != "off"
	s.setStatus(m, statusReleasing)
	if !wasOn || m.powerType == "manual" || m.isDPU { // A DPU goes on running (_release in maasserver/models/node.py).
		s.finishRelease(m)
		return
	}
	if text := s.takeFailure(m, failRelease); text != "" {
		s.later(m, s.timings.powerOff(), func() { s.fail(m, text) })
		return
	}
	if s.isHung(m) {
		s.later(m, releaseTimeout, func() { s.fail(m, "Node operation 'Releasing' timed out after 5 minutes.") })
	}
	s.switchPower(m, false, func(err error) {
		if err != nil {
			s.fail(m, fmt.Sprintf("Power off for the node failed: %v", err))
			return
		}
		s.finishRelease(m)
	})
}

// finishRelease ends a release: the machine is Ready for the next user, New if it was never commissioned, or deleted if
// an allocation had made it.
func (s *Simulator) finishRelease(m *machine) {
	if m.dynamic {
		s.deleteMachine(m)
		return
	}
	s.clearOwnership(m)
	next := statusReady
	if !m.commissioned {
		next = statusNew
	}
	s.setStatus(m, next)
	s.addEvent(m, "Released", "")
}

// clearOwnership removes the owner's data from a machine when its release has finished.
func (s *Simulator) clearOwnership(m *machine) {
	s.releaseAutoAddresses(m)
	s.removeAcquired(m)
	m.owner, m.ownerData = nil, map[string]string{}
}

// letGo removes the data of a machine's acquisition and deployment when its release starts. The owner stays until the
// machine is Ready.
func (s *Simulator) letGo(m *machine) {
	m.agentName, m.osystem, m.series, m.hweKernel, m.userData, m.system = "", "", "", "", nil, nil
	m.netboot = true
	for _, nic := range m.ifaces {
		s.dropLease(nic)
	}
}

// startCommission commissions a machine, and tests it with scripts of these names or tags; u owns it meanwhile. Its links
// are removed, unless keepNetwork is set: it gets new ones at the end.
func (s *Simulator) startCommission(m *machine, u *user, keepNetwork bool, tests []string) {
	m.owner = u
	s.setStatus(m, statusCommissioning)
	if !keepNetwork {
		s.clearLinks(m)
	}
	m.commissionStatus, m.commissionResult = scriptPending, s.db.next("scriptset")
	w := s.wantedOf(m, tests, nil)
	m.toTest = len(w.scripts) > 0
	if m.toTest {
		_, _ = s.beginTests(m, w) // It has no parameters.
		m.testSet.wasOn = false   // What the machine does at the end is decided while it is commissioned.
	}
	m.errorDescription = ""
	s.cyclePower(m, func(err error) {
		if err != nil {
			s.fail(m, fmt.Sprintf("Power cycle for the node failed: %v", err))
			return
		}
		m.commissionStatus = scriptRunning
		s.later(m, s.timings.commission(), func() { s.finishCommission(m) })
	})
}

func (s *Simulator) finishCommission(m *machine) {
	if text := s.takeFailure(m, failCommission); text != "" {
		s.fail(m, text)
		return
	}
	if !m.running {
		s.failSoon(m)
		return
	}
	s.discover(m, func() {
		s.learnBoot(m)
		s.finishScripts(m)
	})
}

// finishScripts continues commissioning when the machine's data is known.
func (s *Simulator) finishScripts(m *machine) {
	m.commissioned, m.commissionStatus = true, scriptPassed
	s.setCommissionedLayout(m)
	s.connectInterfaces(m)
	if !m.toTest {
		s.becomeReady(m)
		return
	}
	s.regenerate(m)
	s.setStatus(m, statusTesting)
	s.runTests(m, func(failed int) { s.concludeTests(m, failed) })
}

// becomeReady ends commissioning: the machine has no owner and is switched off.
func (s *Simulator) becomeReady(m *machine) {
	m.owner = nil
	s.setStatus(m, statusReady)
	s.switchPower(m, false, func(error) {})
}

// clearLinks removes all links from a machine.
func (s *Simulator) clearLinks(m *machine) {
	before := joinAddrs(m.addresses())
	for _, nic := range m.ifaces {
		for _, link := range slices.Clone(nic.links) {
			s.dropAddress(link)
		}
		s.dropLease(nic)
	}
	s.publish(m, ChangeAddresses, before, joinAddrs(m.addresses()))
}

// connectInterfaces gives links to interfaces that have none, as commissioning does: AUTO on the boot interface, or
// DHCP where MAAS knows no subnet; the others are just up.
func (s *Simulator) connectInterfaces(m *machine) {
	for _, nic := range m.ifaces {
		if len(nic.links) > 0 {
			continue
		}
		sn := s.subnetOn(nic.vlan)
		switch {
		case nic != m.bootIface():
			s.addLink(nic, allocSticky, sn, noAddress)
		case sn != nil:
			s.addLink(nic, allocAuto, sn, noAddress)
		default:
			s.addLink(nic, allocDHCP, nil, noAddress)
		}
	}
}

// subnetOn returns the first subnet on the VLAN, or nil.
func (s *Simulator) subnetOn(v *vlan) *subnet {
	for _, sn := range s.db.subnets {
		if v != nil && sn.vlan == v {
			return sn
		}
	}
	return nil
}

// removeMachine deletes the row in MAAS, and those of the machines that it is the parent of.
func (s *Simulator) removeMachine(m *machine) {
	for _, child := range slices.Clone(s.db.machines) {
		if child.parent == m {
			s.removeMachine(child)
		}
	}
	for _, nic := range slices.Clone(m.ifaces) {
		s.removeInterface(nic)
	}
	s.db.machines = slices.DeleteFunc(s.db.machines, func(other *machine) bool { return other == m })
	m.epoch++
	m.gone = true
	s.publish(m, ChangeDeleted, m.status.String(), "")
}

// deleteMachine deletes a machine in MAAS and, if it is a VM, on its host.
func (s *Simulator) deleteMachine(m *machine) {
	s.removeMachine(m)
	s.decompose(m)
}

// decompose deletes a VM on its host. MAAS ignores failures: its row is already gone.
func (s *Simulator) decompose(m *machine) {
	h := m.host
	if h == nil {
		return
	}
	s.onHost(h.hv, func() error { return h.hv.Delete(m.vm) }, func(err error) {
		s.reportDecompose(h, m, err)
		s.recount(h)
	})
}

// reportDecompose is all that MAAS does about a VM that it could not delete.
func (s *Simulator) reportDecompose(h *vmHost, m *machine, err error) {
	if err != nil {
		s.log.Info("Decomposing failed; the VM stays on its host", "host", h.name, "vm", m.vm, "reason", err.Error())
	}
}
