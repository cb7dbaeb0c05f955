// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"regexp"
	"strings"
)

var macPattern = regexp.MustCompile(`^([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}$`)

func validMAC(text string) bool { return macPattern.MatchString(text) }

// createMachine makes a machine, and commissions it by default.
func (rq *request) createMachine() (any, error) {
	commission, err := rq.data.boolean("commission", true)
	if err != nil {
		return nil, err
	}
	deployed, err := rq.data.boolean("deployed", false)
	if err != nil {
		return nil, err
	}
	m, err := rq.enlist(deployed)
	if err != nil {
		return nil, err
	}
	if deployed {
		m.owner, m.status, m.previous = rq.user, statusDeployed, statusNew
	}
	rq.publish(m, ChangeCreated, "", m.status.String())
	rq.call.SystemID = m.systemID
	if commission && !deployed {
		return rq.commissionNow(m)
	}
	return rq.renderMachine(m), nil
}

// enlist makes the row of a new machine.
func (rq *request) enlist(deployed bool) (*machine, error) {
	errs := formErrors{}
	arch := rq.data.get("architecture")
	if arch == "" && !deployed {
		errs.add("architecture", "This field is required.")
	}
	macs := rq.data.list("mac_addresses")
	if len(macs) == 0 && !deployed && rq.data.get("power_type") != "ipmi" {
		errs.add("mac_addresses", "This field is required.")
	}
	rq.checkMACs(macs, errs)
	m := rq.newMachine("")
	m.architecture = arch
	apply := rq.planEdit(m, rq.data, errs)
	if err := errs.err(); err != nil {
		return nil, err
	}
	apply()
	if m.hostname == "" {
		m.hostname = rq.petname()
	}
	for _, mac := range macs {
		rq.addCard(m, strings.ToLower(mac))
	}
	m.status = statusNew
	rq.db.machines = append(rq.db.machines, m)
	return m, nil
}

// checkMACs complains about MAC addresses that are wrong or in use.
func (rq *request) checkMACs(macs []string, errs formErrors) {
	for _, mac := range macs {
		if !validMAC(mac) {
			errs.add("mac_addresses", "One or more MAC addresses is invalid. ('%s' is not a valid MAC address.)", mac)
		} else if nic := rq.interfaceByMAC(strings.ToLower(mac)); nic != nil {
			errs.add("mac_addresses", "MAC address %s already in use on %s.", strings.ToLower(mac), nic.machine.hostname)
		}
	}
}
