// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/http"
	"time"
)

// powerOn switches a machine on; MAAS shows it when the BMC has responded.
func (rq *request) powerOn() (any, error) {
	m, err := rq.machineFor(mayEdit)
	if err != nil {
		return nil, err
	}
	if m.owner == nil {
		return nil, conflict("Can't start node: it hasn't been allocated.")
	}
	if m.status == statusAllocated {
		// Starting an acquired machine deploys it.
		return rq.deploy()
	}
	// What was stored before is gone, also if this call has none (NodeUserDataManager in models/nodeuserdata.py).
	if m.userData, err = decodeUserData(rq.data.get("user_data")); err != nil {
		return nil, err
	}
	if m.status == statusDeployed && m.ephemeral {
		// It is deployed anew, and stays Deployed (Node._start and _start_deployment in models/node.py).
		m.system = m.userData
		rq.addEvent(m, statusDeploying.String(), "")
	}
	rq.switchPower(m, true, func(error) {})
	return rq.renderMachine(m), nil
}

func (rq *request) powerOff() (any, error) {
	m, err := rq.machineFor(mayEdit)
	if err != nil {
		return nil, err
	}
	if m.powerType == "manual" {
		return nil, nil
	}
	rq.switchPower(m, false, func(error) {})
	return rq.renderMachine(m), nil
}

// queryPowerState asks the BMC, and stores the result.
func (rq *request) queryPowerState() (any, error) {
	m, err := rq.machineFor(mayView)
	if err != nil {
		return nil, err
	}
	if rq.isHung(m) { // Machine.power_query().wait(60) in maasserver/api/nodes.py, and APIRPCErrorsMiddleware.
		rq.unlocked(func() { rq.sleep(time.Minute) })
		return nil, textError(http.StatusGatewayTimeout, "Unexpected exception: TimeoutError.")
	}
	if hv, name := rq.behind(m); remote(hv) {
		on := false
		rq.unlocked(func() { on, err = hv.Power(name) })
		rq.setPowerFromHost(m, on, err)
	} else {
		rq.pollPower(m)
	}
	return object{"state": m.powerState}, nil
}

// setPowerFromHost stores the power state that a VM's host reported.
func (s *Simulator) setPowerFromHost(m *machine, on bool, err error) {
	if err != nil {
		s.setPowerState(m, "error")
		return
	}
	m.running = on
	s.setPowerState(m, onOff(on))
}

// pollPower reads the power state of the machine from its BMC or hypervisor.
func (s *Simulator) pollPower(m *machine) {
	if s.isHung(m) {
		s.setPowerState(m, "error")
		return
	}
	hv, name := s.behind(m)
	if hv == nil {
		if m.powerType != "manual" && m.powerType != "" {
			s.setPowerState(m, onOff(m.running))
		}
		return
	}
	if m.polling {
		return // a fast region polls again before a real host has responded
	}
	m.polling = true
	on, epoch := false, m.epoch
	s.onHost(hv, func() (err error) { on, err = hv.Power(name); return err }, func(err error) {
		m.polling = false
		if !m.gone && m.epoch == epoch {
			s.setPowerFromHost(m, on, err)
		}
	})
}

// pollAll is what MAAS does every few minutes.
func (s *Simulator) pollAll() {
	for _, m := range s.db.machines {
		switch m.status {
		case statusReady, statusAllocated, statusDeployed, statusBroken, statusFailedDeployment, statusNew:
			if m.powerState != "unknown" {
				s.pollPower(m)
			}
		}
	}
	s.in(s.timings.powerPoll(), s.pollAll)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func (rq *request) powerParameters() (any, error) {
	m, err := rq.machineFor(mayAdminRead)
	if err != nil {
		return nil, err
	}
	return m.parameters(), nil
}

// parameters returns what MAAS passes to its power driver.
func (m *machine) parameters() map[string]string {
	out := map[string]string{}
	for key, value := range m.powerParams {
		out[key] = value
	}
	if m.host != nil {
		for key, value := range m.host.params {
			out[key] = value
		}
		out[instanceName] = m.vm
	}
	return out
}

func (rq *request) allPowerParameters() (any, error) {
	if err := rq.check(editMachines, adminOnly()); err != nil {
		return nil, err
	}
	out := map[string]map[string]string{}
	wanted := rq.query.list("id")
	for _, m := range rq.db.machines {
		if len(wanted) == 0 || containsAny([]string{m.systemID}, wanted) {
			out[m.systemID] = m.parameters()
		}
	}
	return out, nil
}
