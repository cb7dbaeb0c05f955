// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"slices"
	"strings"
)

// A device is what MAAS knows of a computer that it does not manage: names, network cards and addresses. It is a machine
// here, in a list of its own.

func (s *Simulator) deviceByID(id string) *machine {
	at := slices.IndexFunc(s.db.devices, func(d *machine) bool { return d.systemID == id })
	if at < 0 {
		return nil
	}
	return s.db.devices[at]
}

// nodeByID returns a machine or a device.
func (s *Simulator) nodeByID(id string) *machine {
	if m := s.machineByID(id); m != nil {
		return m
	}
	return s.deviceByID(id)
}

// nodes returns all machines and devices.
func (s *Simulator) nodes() []*machine { return slices.Concat(s.db.machines, s.db.devices) }

// deviceFor returns the device of the path for a user who may view or edit it.
func (rq *request) deviceFor(want permission) (*machine, error) {
	d := rq.deviceByID(rq.vars[0])
	if d == nil {
		return nil, notFound("Device")
	}
	if !rq.allowed(rq.user, d, want) {
		return nil, forbidden("")
	}
	return d, nil
}

// nodeType is MAAS's number for a machine or a device.
func (m *machine) nodeType() int {
	if m.device {
		return 1
	}
	return 0
}

func (rq *request) listDevices() (any, error) {
	filter, err := rq.machineFilter(rq.query, listFilters) // NodesHandler.read in maasserver/api/nodes.py is one for all.
	if err != nil {
		return nil, err
	}
	out := []any{}
	for _, d := range rq.db.devices {
		if rq.amongDevices(rq.user, d) && filter.matches(d) {
			out = append(out, rq.renderDevice(d))
		}
	}
	return out, nil
}

func (rq *request) createDevice() (any, error) {
	errs := formErrors{}
	macs := rq.data.list("mac_addresses")
	if len(macs) == 0 {
		errs.add("mac_addresses", "This field is required.")
	}
	rq.checkMACs(macs, errs)
	d := rq.newMachine("")
	d.device = true
	apply := rq.planEdit(d, rq.data.without("pool", "power_type"), errs)
	if err := errs.err(); err != nil {
		return nil, err
	}
	apply()
	if d.hostname == "" {
		d.hostname = rq.petname()
	}
	for _, mac := range macs {
		rq.addCard(d, strings.ToLower(mac))
	}
	d.owner = rq.user
	rq.call.SystemID = d.systemID
	rq.db.devices = append(rq.db.devices, d)
	return rq.renderDevice(d), nil
}

func (rq *request) readDevice() (any, error) {
	d, err := rq.deviceFor(mayView)
	if err != nil {
		return nil, err
	}
	return rq.renderDevice(d), nil
}

func (rq *request) updateDevice() (any, error) {
	d, err := rq.deviceFor(mayEdit)
	if err != nil {
		return nil, err
	}
	errs := formErrors{}
	apply := rq.planEdit(d, rq.data.without("pool", "power_type"), errs)
	if err := errs.err(); err != nil {
		return nil, err
	}
	apply()
	return rq.renderDevice(d), nil
}

func (rq *request) deleteDevice() (any, error) {
	d, err := rq.deviceFor(mayEdit)
	if err != nil {
		return nil, err
	}
	for _, nic := range slices.Clone(d.ifaces) {
		rq.removeInterface(nic)
	}
	rq.db.devices = slices.DeleteFunc(rq.db.devices, func(other *machine) bool { return other == d })
	return noContent{}, nil
}

func (rq *request) annotateDevice() (any, error) {
	d, err := rq.deviceFor(mayEdit)
	if err != nil {
		return nil, err
	}
	if d.owner != rq.user {
		return nil, conflict("Cannot set workload annotation: it hasn't been acquired.")
	}
	if err := rq.annotate(d); err != nil {
		return nil, err
	}
	return rq.renderDevice(d), nil
}

func (s *Simulator) renderDevice(d *machine) object {
	out := object{
		"system_id": d.systemID, "hostname": d.hostname, "fqdn": d.fqdn(), "domain": s.renderDomain(d.domain),
		"description": d.description, "owner": nil, "owner_data": d.ownerData, "workload_annotations": d.ownerData,
		"zone": renderZone(d.zone), "parent": nil, "tag_names": tagNames(d.tags), "address_ttl": nil,
		"node_type": d.nodeType(), "node_type_name": "Device", "resource_uri": apiRoot + "devices/" + d.systemID + "/",
	}
	if d.owner != nil {
		out["owner"] = d.owner.name
	}
	network := object{}
	s.renderMachineNetwork(d, network)
	out["interface_set"], out["ip_addresses"] = network["interface_set"], network["ip_addresses"]
	return out
}
