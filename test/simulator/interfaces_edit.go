// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"slices"
	"strconv"
	"strings"
)

// updateInterface is PUT of an interface: all but the parents. That of a Deployed machine changes the name and the MAC
// address alone (DeployedInterfaceForm in forms/interface.py).
func (rq *request) updateInterface() (any, error) {
	nic, err := rq.interfaceFor(mayAdmin)
	if err != nil {
		return nil, err
	}
	m := nic.machine
	if m.status != statusDeployed {
		if err := refuseInterfaces(m, "update interface"); err != nil {
			return nil, err
		}
	}
	changed, errs := *nic, formErrors{}
	changed.name = orDefault(rq.data.get("name"), nic.name)
	changed.mac = strings.ToLower(orDefault(rq.data.get("mac_address"), nic.mac))
	if changed.name != nic.name {
		rq.checkName(&changed, errs)
	}
	if changed.mac != nic.mac && nic.kind == NetworkPhysical {
		rq.checkMAC(&changed, errs)
	}
	if m.status == statusDeployed {
		if err := errs.err(); err != nil {
			return nil, err
		}
		rq.rename(nic, changed.name)
		nic.mac = changed.mac
		return renderInterface(nic), nil
	}
	return rq.change(nic, &changed, errs)
}

// change applies the changes of an interface's form.
func (rq *request) change(nic, changed *iface, errs formErrors) (any, error) {
	if rq.data.has("vlan") {
		changed.vlan = rq.vlanForm(errs)
	}
	mtu := nic.mtu
	if rq.data.has("mtu") {
		mtu = rq.mtuForm(errs)
	}
	if nic.kind == interfaceVLAN && len(errs["vlan"]) == 0 {
		checkTagged(nic, changed.vlan, errs)
	}
	changed.params = object{}
	for key, value := range nic.params {
		changed.params[key] = value
	}
	rq.paramsForm(changed, errs)
	if rq.data.has("tags") {
		changed.tags = splitList(rq.data.get("tags"))
	}
	if err := errs.err(); err != nil {
		return nil, err
	}
	before := joinAddrs(nic.machine.addresses())
	rq.rename(nic, changed.name)
	nic.mac, nic.tags, nic.params = changed.mac, changed.tags, changed.params
	if nic.vlan != changed.vlan { // interface_vlan_update in models/signals/interfaces.py
		for _, link := range slices.Clone(nic.links) {
			rq.dropAddress(link)
		}
		nic.vlan = changed.vlan
	}
	nic.setMTU(mtu)
	rq.alignParents(nic)
	for _, child := range nic.children() {
		rq.alignParents(child)
	}
	rq.publish(nic.machine, ChangeAddresses, before, joinAddrs(nic.machine.addresses()))
	return renderInterface(nic), nil
}

func checkTagged(nic *iface, wanted *vlan, errs formErrors) {
	parents := nic.parents()
	switch {
	case wanted == nil:
		errs.add("vlan", "A VLAN interface must be connected to a tagged VLAN.")
	case wanted.vid == 0:
		errs.add("vlan", "A VLAN interface can only belong to a tagged VLAN.")
	case len(parents) > 0 && parents[0].vlan != nil && parents[0].vlan.fabricID != wanted.fabricID:
		errs.add("vlan", "A VLAN interface can only belong to a tagged VLAN on the same fabric as its parent interface.")
	}
}

// rename renames an interface, also where others contain it.
func (s *Simulator) rename(nic *iface, name string) {
	for _, child := range nic.children() {
		child.ports[slices.Index(child.ports, nic.name)] = name
	}
	nic.name = name
}

// deleteInterface deletes an interface, and what has no other part than it.
func (rq *request) deleteInterface() (any, error) {
	nic, err := rq.changeable("delete interface")
	if err != nil {
		return nil, err
	}
	before := joinAddrs(nic.machine.addresses())
	rq.removeInterface(nic)
	rq.publish(nic.machine, ChangeAddresses, before, joinAddrs(nic.machine.addresses()))
	return noContent{}, nil
}

// vlansOf returns the VLANs of the fabric of the path.
func (rq *request) vlansOf() ([]*vlan, error) {
	var out []*vlan
	for _, v := range rq.db.vlans {
		if strconv.Itoa(v.fabricID) == rq.vars[0] || v.fabric == rq.vars[0] {
			out = append(out, v)
		}
	}
	if len(out) == 0 { // A fabric has at least its untagged VLAN.
		return nil, notFound("Fabric")
	}
	return out, rq.need(viewGlobalEntities)
}

func (rq *request) listVLANs() (any, error) {
	vlans, err := rq.vlansOf()
	if err != nil {
		return nil, err
	}
	out := []any{}
	for _, v := range vlans {
		out = append(out, renderVLAN(v))
	}
	return out, nil
}

// createTaggedVLAN is VLANForm of forms/vlan.py.
func (rq *request) createTaggedVLAN() (any, error) {
	vlans, err := rq.vlansOf()
	if err != nil {
		return nil, err
	}
	if err := rq.need(editGlobalEntities); err != nil {
		return nil, err
	}
	errs := formErrors{}
	vid := rq.data.integer("vid", -1, errs)
	switch {
	case len(errs) > 0:
	case vid < 0:
		errs.add("vid", "This field is required.")
	case vid > 4094:
		errs.add("vid", "VID must be between 0 and 4094.")
	case slices.ContainsFunc(vlans, func(v *vlan) bool { return v.vid == vid }):
		errs.add("__all__", "A VLAN with the specified VID already exists in the destination fabric.")
	}
	if err := errs.err(); err != nil {
		return nil, err
	}
	v := &vlan{
		id: rq.db.next("vlan"), vid: vid, fabricID: vlans[0].fabricID, fabric: vlans[0].fabric, mtu: 1500, space: "undefined",
		name: rq.data.get("name"),
	}
	if vid == 0 {
		v.name = untaggedName
	}
	rq.db.vlans = append(rq.db.vlans, v)
	return renderVLAN(v), nil
}

func (rq *request) deleteVLAN() (any, error) {
	vlans, err := rq.vlansOf()
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(vlans, func(v *vlan) bool { return strconv.Itoa(v.vid) == rq.vars[1] })
	switch {
	case at < 0:
		return nil, notFound("VLAN")
	case !rq.may(rq.user, editGlobalEntities):
		return nil, forbidden("")
	}
	rq.db.vlans = slices.DeleteFunc(rq.db.vlans, func(v *vlan) bool { return v == vlans[at] })
	return noContent{}, nil
}
