// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"regexp"
	"strings"
)

var macPattern = regexp.MustCompile(`^([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}$`)

func validMAC(text string) bool { return macPattern.MatchString(text) }

// createMachine enlists a machine. By default, that of who may edit machines is commissioned at once.
func (rq *request) createMachine() (any, error) {
	commission, err := rq.data.boolean("commission", true)
	if err != nil {
		return nil, err
	}
	deployed, err := rq.data.boolean("deployed", false)
	if err != nil {
		return nil, err
	}
	edits := rq.may(rq.user, editGlobalEntities)
	if !edits { // Another form, which lacks these fields (get_machine_create_form in maasserver/forms/__init__.py).
		rq.data = rq.data.without("zone", "pool", "description", "cpu_count", "memory")
	}
	m, err := rq.enlist(deployed && edits)
	if err != nil {
		return nil, err
	}
	switch {
	case deployed && !edits: // Nor does it have this one.
		rq.publish(m, ChangeCreated, "", m.status.String())
	case deployed:
		m.owner, m.status, m.previous = rq.user, statusDeployed, statusNew
		rq.publish(m, ChangeCreated, "", m.status.String())
	case rq.may(rq.user, editMachines) && commission:
		rq.publish(m, ChangeCreated, "", m.status.String())
		rq.call.SystemID = m.systemID
		return rq.commissionNow(m)
	default:
		rq.publish(m, ChangeCreated, "", m.status.String())
	}
	rq.call.SystemID = m.systemID
	return rq.renderMachine(m), nil
}

// enlistMachine is for a machine that boots for the first time: without credentials, and it stays New.
func (rq *request) enlistMachine() (any, error) {
	m, err := rq.enlist(false)
	if err != nil {
		return nil, err
	}
	rq.publish(m, ChangeCreated, "", m.status.String())
	return object{
		"system_id": m.systemID, "hostname": m.hostname, "fqdn": m.fqdn(), "domain": rq.renderDomain(m.domain),
		"architecture": m.architecture, "status": m.status, "status_name": m.status.String(), "power_type": m.powerType,
		"power_state": m.powerState, "zone": renderZone(m.zone), "status_action": "", "status_message": nil, "node_type": 0,
		"resource_uri": machineURI(m),
	}, nil
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

// checkMACs complains about MAC addresses that are wrong or in use. The form of a machine with the lxd driver has no
// interfaces then, and complains about that, too.
func (rq *request) checkMACs(macs []string, errs formErrors) {
	for _, mac := range macs {
		if !validMAC(mac) {
			errs.add("mac_addresses", "One or more MAC addresses is invalid. ('%s' is not a valid MAC address.)", mac)
		} else if nic := rq.interfaceByMAC(strings.ToLower(mac)); nic != nil {
			errs.add("mac_addresses", "MAC address %s already in use on %s.", strings.ToLower(mac), nic.machine.hostname)
		}
	}
	if kind := rq.data.get("power_type"); len(errs["mac_addresses"]) > 0 && kind == lxdDriver {
		errs.add("power_type", "Can't set power type to %s without network interfaces", kind)
	}
}
