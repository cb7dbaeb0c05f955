// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Kinds of interfaces that contain others, beside NetworkBridge.
const (
	interfaceBond = "bond"
	interfaceVLAN = "vlan"
)

// leastMTU is the least MTU that MAAS accepts (InterfaceForm in forms/interface.py).
const leastMTU = 552

// interfaceParam is a parameter of a bond or a bridge: one of the choices, or a number between 0 and most (0: no
// limit). MAAS fills in initial when the interface is made.
type interfaceParam struct {
	name    string
	choices []string
	most    int
	initial any
}

// interfaceParams are the parameters of BondInterfaceForm and BridgeInterfaceForm in forms/interface.py.
var interfaceParams = map[string][]interfaceParam{
	interfaceBond: {
		{name: "bond_mode", initial: "balance-rr", choices: []string{
			"balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb",
		}},
		{name: "bond_miimon", initial: 100}, {name: "bond_downdelay", initial: 0}, {name: "bond_updelay", initial: 0},
		{name: "bond_num_grat_arp", initial: 1, most: 255},
		{name: "bond_lacp_rate", initial: "fast", choices: []string{"fast", "slow"}},
		{name: "bond_xmit_hash_policy", initial: "layer2", choices: []string{"layer2", "layer2+3", "layer3+4", "encap2+3", "encap3+4"}},
	},
	NetworkBridge: {
		{name: "bridge_type", initial: "standard", choices: []string{"standard", "ovs"}},
		{name: "bridge_stp", initial: false}, {name: "bridge_fd", initial: 15},
	},
}

// interfaceDraft is an interface that a form describes, and the complaints about it.
type interfaceDraft struct {
	nic     *iface
	parents []*iface
	errs    formErrors
}

// machineForInterface returns the machine of the path, on which an administrator may make an interface.
func (rq *request) machineForInterface(what string) (*machine, error) {
	m := rq.machineByID(rq.vars[0])
	if m == nil {
		return nil, notFound("Machine")
	}
	if !rq.allowed(rq.user, m, mayAdmin) {
		return nil, forbidden("")
	}
	return m, refuseInterfaces(m, what)
}

// draft reads what the forms of all interfaces have: the parents, the name, the VLAN, the MTU and the parameters. field
// is the name under which complaints about the parents are reported.
func (rq *request) draft(m *machine, kind, field string) *interfaceDraft {
	d := &interfaceDraft{errs: formErrors{}, nic: &iface{
		name: rq.data.get("name"), kind: kind, mac: strings.ToLower(rq.data.get("mac_address")), enabled: true, machine: m, params: object{},
	}}
	for _, id := range rq.data.list("parents") {
		at := slices.IndexFunc(m.ifaces, func(nic *iface) bool { return strconv.Itoa(nic.id) == id })
		if at < 0 {
			d.errs.add(field, "Select a valid choice. %s is not one of the available choices.", id)
			continue
		}
		d.parents = append(d.parents, m.ifaces[at])
	}
	slices.SortFunc(d.parents, func(a, b *iface) int { return a.id - b.id }) // Whatever the order in the request.
	for _, parent := range d.parents {
		d.nic.ports = append(d.nic.ports, parent.name)
	}
	d.nic.vlan = rq.vlanForm(d.errs)
	d.nic.mtu = rq.mtuForm(d.errs)
	rq.paramsForm(d.nic, d.errs)
	return d
}

func (rq *request) vlanForm(errs formErrors) *vlan {
	text := rq.data.get("vlan")
	if text == "" {
		return nil
	}
	at := slices.IndexFunc(rq.db.vlans, func(v *vlan) bool { return strconv.Itoa(v.id) == text })
	if at < 0 {
		errs.add("vlan", noSuchChoice)
		return nil
	}
	return rq.db.vlans[at]
}

func (rq *request) mtuForm(errs formErrors) int {
	mtu := rq.data.integer("mtu", 0, errs)
	if mtu != 0 && mtu < leastMTU {
		errs.add("mtu", "Ensure this value is greater than or equal to %d.", leastMTU)
	}
	return mtu
}

// paramsForm reads the parameters of a bond or a bridge; what is not sent stays, or is MAAS's initial value.
func (rq *request) paramsForm(nic *iface, errs formErrors) {
	for _, p := range interfaceParams[nic.kind] {
		text := rq.data.get(p.name)
		if _, has := nic.params[p.name]; !has {
			nic.params[p.name] = p.initial
		}
		_, isFlag := p.initial.(bool)
		switch {
		case strings.TrimSpace(text) == "":
		case p.choices != nil && !slices.Contains(p.choices, text):
			errs.add(p.name, "'%s' is not a valid %s.  It should be one of: '%s'.", text, p.name, strings.Join(p.choices, "', '"))
		case p.choices != nil:
			nic.params[p.name] = text
		case isFlag:
			nic.params[p.name] = rq.data.checkbox(p.name, false)
		default:
			n := rq.data.integer(p.name, 0, errs)
			if n < 0 {
				errs.add(p.name, "Ensure this value is greater than or equal to 0.")
			}
			if p.most > 0 && n > p.most {
				errs.add(p.name, "Ensure this value is less than or equal to %d.", p.most)
			}
			nic.params[p.name] = n
		}
	}
}

// interfaceName is INTERFACE_NAME_REGEXP of models/interface.py; MAAS 3.6 limits the length.
var interfaceName = regexp.MustCompile(`^[\w\-_.:]+$`)

// checkName complains about a name that is missing, wrong or in use.
func (rq *request) checkName(nic *iface, errs formErrors) {
	limited := rq.version.AtLeast(3, 6, 0)
	switch other := nic.machine.interfaceNamed(nic.name); {
	case nic.name == "":
		errs.add("name", "This field is required.")
	case limited && (!interfaceName.MatchString(nic.name) || len(nic.name) > 15):
		errs.add("name", "The interface name must be 1 to 15 characters long and can only contain alphanumeric characters, "+
			"hyphens ('-'), underscores ('_'), periods ('.'), and colons (':').")
	case !interfaceName.MatchString(nic.name):
		errs.add("name", "Enter a valid value.")
	case other != nil && other != nic && nic.kind == interfaceBond && nic.id == 0: // Found when the bond is saved.
		errs.add("__all__", "Interface with this Node config and Name already exists.")
	case other != nil && other != nic:
		errs.add("name", "Node %s already has an interface named '%s'.", nic.machine.systemID+" ("+nic.machine.hostname+")", nic.name)
	}
}

// checkContainer does what the forms of bonds and bridges have in common: the MAC address and the VLAN are those of the
// first parent unless they are given (ChildInterfaceForm in forms/interface.py).
func (d *interfaceDraft) checkContainer(field string) {
	if len(d.errs[field]) > 0 {
		if d.nic.mac == "" {
			d.errs.add("mac_address", "This field cannot be blank.")
		}
		return
	}
	d.nic.mac = orDefault(d.nic.mac, d.parents[0].mac)
	if d.nic.vlan == nil {
		d.nic.vlan = d.parents[0].vlan
	}
}

// inUse complains about parents that are parts of other interfaces, except those that but accepts.
func (d *interfaceDraft) inUse(field string, but func(child *iface) bool) {
	var used []string
	for _, parent := range d.parents {
		if slices.ContainsFunc(parent.children(), func(child *iface) bool { return !but(child) }) {
			used = append(used, parent.name)
		}
	}
	if slices.Sort(used); len(used) > 0 {
		d.errs.add(field, "Interfaces already in-use: %s.", strings.Join(used, ", "))
	}
}

// createBond is BondInterfaceForm of forms/interface.py; that only cards can be bonded is found out when the bond is
// saved (models/interface.py).
func (rq *request) createBond() (any, error) {
	m, err := rq.machineForInterface("create bond")
	if err != nil {
		return nil, err
	}
	d := rq.draft(m, interfaceBond, "parents")
	rq.checkName(d.nic, d.errs)
	if len(d.parents) == 0 && len(d.errs["parents"]) == 0 {
		d.errs.add("parents", "A bond interface must have one or more parents.")
	}
	d.checkContainer("parents")
	if len(d.errs["parents"]) == 0 {
		d.inUse("parents", func(*iface) bool { return false })
		if slices.ContainsFunc(d.parents, func(p *iface) bool { return p.vlan != d.nic.vlan }) {
			d.errs.add("parents", "All parents must belong to the same VLAN.")
		}
	}
	if err := d.errs.err(); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(d.parents, func(p *iface) bool { return p.kind != NetworkPhysical }) {
		return nil, invalidField("parents", "Only physical interfaces can be bonded.")
	}
	return rq.make(d), nil
}

// createVLAN is VLANInterfaceForm of forms/interface.py.
func (rq *request) createVLAN() (any, error) {
	m, err := rq.machineForInterface("create VLAN")
	if err != nil {
		return nil, err
	}
	rq.parentAsParents()
	d := rq.draft(m, interfaceVLAN, "parent")
	switch {
	case len(d.errs["parent"]) > 0:
	case len(d.parents) != 1:
		d.errs.add("parent", "A VLAN interface must have exactly one parent.")
	case d.parents[0].kind == interfaceVLAN:
		d.errs.add("parent", "A VLAN interface can't have another VLAN interface as parent.")
	case slices.ContainsFunc(d.parents[0].children(), func(child *iface) bool { return child.kind == interfaceBond }):
		d.errs.add("parent", "A VLAN interface can't have a parent that is already in a bond.")
	}
	switch {
	case len(d.errs["vlan"]) > 0:
	case d.nic.vlan == nil:
		d.errs.add("vlan", "A VLAN interface must be connected to a tagged VLAN.")
	case d.nic.vlan.vid == 0:
		d.errs.add("vlan", "A VLAN interface can only belong to a tagged VLAN.")
	case len(d.errs["parent"]) > 0:
	case d.parents[0].vlan == nil:
		return nil, textError(500, "'NoneType' object has no attribute 'fabric_id'")
	case d.parents[0].vlan.fabricID != d.nic.vlan.fabricID:
		d.errs.add("vlan", "A VLAN interface can only belong to a tagged VLAN on the same fabric as its parent interface.")
	}
	if len(d.errs["parent"]) == 0 && len(d.errs["vlan"]) == 0 {
		d.nic.mac = d.parents[0].mac
		d.nic.name = orDefault(d.nic.name, fmt.Sprintf("%s.%d", d.parents[0].name, d.nic.vlan.vid))
		rq.checkName(d.nic, d.errs)
	}
	if err := d.errs.err(); err != nil {
		return nil, err
	}
	return rq.make(d), nil
}

// parentAsParents reads parent as parents, as the calls for one parent do (api/interfaces.py).
func (rq *request) parentAsParents() {
	if rq.data.has("parent") {
		id := rq.data.get("parent")
		rq.data = rq.data.without("parent", "parents")
		rq.data.add("parents", id)
	}
}

// createBridge makes a bridge on an interface, which loses its links. On an Allocated machine they move to the bridge,
// which is deleted with the machine's release (AcquiredBridgeInterfaceForm in forms/interface.py).
func (rq *request) createBridge() (any, error) {
	m, err := rq.machineForInterface("create bridge")
	if err != nil {
		return nil, err
	}
	if rq.severalPorts() && rq.data.has("parent") && rq.data.has("parents") {
		return nil, badRequest("Cannot specify both parent and parents fields.")
	}
	rq.parentAsParents()
	acquired := m.status == statusAllocated
	if acquired {
		rq.data = rq.data.without("vlan")
	}
	d := rq.draft(m, NetworkBridge, "parent")
	d.nic.acquired = acquired
	rq.checkName(d.nic, d.errs)
	rq.checkPorts(d)
	d.checkContainer("parent")
	if len(d.errs["parent"]) == 0 {
		d.inUse("parent", func(child *iface) bool { return child.kind == interfaceVLAN })
	}
	if err := d.errs.err(); err != nil {
		return nil, err
	}
	return rq.make(d), nil
}

// severalPorts reports whether a bridge may contain several interfaces: not yet in a release.
func (rq *request) severalPorts() bool { return rq.version.AtLeast(3, 8, 0) }

// checkPorts complains about a bridge's parents (BridgeInterfaceForm.clean_parents in forms/interface.py).
func (rq *request) checkPorts(d *interfaceDraft) {
	inContainer := func(child *iface) bool { return child.kind == interfaceBond || child.kind == NetworkBridge }
	switch {
	case len(d.errs["parent"]) > 0:
	case rq.severalPorts() && len(d.parents) == 0:
		d.errs.add("parent", "A bridge interface must have at least one parent.")
	case !rq.severalPorts() && len(d.parents) != 1:
		d.errs.add("parent", "A bridge interface must have exactly one parent.")
	case slices.ContainsFunc(d.parents, func(p *iface) bool { return p.kind == NetworkBridge }):
		d.errs.add("parent", "A bridge interface can't have another bridge interface as parent.")
	case slices.ContainsFunc(d.parents, func(p *iface) bool { return slices.ContainsFunc(p.children(), inContainer) }):
		d.errs.add("parent", "A bridge interface can't have a parent that is already in a bond or a bridge.")
	}
}

// checkMAC complains about a network card's MAC address (PhysicalInterface.clean in models/interface.py).
func (rq *request) checkMAC(nic *iface, errs formErrors) {
	switch other := rq.interfaceByMAC(nic.mac); {
	case nic.mac == "":
		errs.add("mac_address", "This field is required.")
	case !validMAC(nic.mac):
		errs.add("mac_address", "'%s' is not a valid MAC address.", nic.mac)
	case other != nil && other != nic && other.kind == NetworkPhysical:
		errs.add("mac_address", "This MAC address is already in use by %s (%s) on %s.", other.name, other.kind, other.machine.hostname)
	}
}

// make adds the interface to its machine. The parents of a bond and of a bridge lose their links; those of a bridge on
// an Allocated machine move to it.
func (rq *request) make(d *interfaceDraft) any {
	nic, m := d.nic, d.nic.machine
	before := joinAddrs(m.addresses())
	nic.id = rq.db.next("interface")
	mtu := nic.mtu
	nic.mtu = 0
	m.ifaces = append(m.ifaces, nic)
	if nic.acquired {
		rq.dropLease(d.parents[0])
		rq.moveLinks(d.parents[0], nic)
	}
	rq.alignParents(nic)
	if mtu != 0 {
		nic.setMTU(mtu)
	}
	rq.ensureLinkUp(nic)
	rq.publish(m, ChangeAddresses, before, joinAddrs(m.addresses()))
	return renderInterface(nic)
}

// alignParents removes the links of the parts of a bond or a bridge, and puts them on its VLAN (_update_parents in
// models/interface.py).
func (s *Simulator) alignParents(nic *iface) {
	if nic.kind != interfaceBond && nic.kind != NetworkBridge {
		return
	}
	for _, parent := range nic.parents() {
		for _, link := range slices.Clone(parent.links) {
			s.dropAddress(link)
		}
		parent.vlan = nic.vlan
		s.alignParents(parent)
	}
}

// ensureLinkUp gives an interface that has no link one without an address (models/interface.py).
func (s *Simulator) ensureLinkUp(nic *iface) {
	if len(nic.links) == 0 && nic.vlan != nil {
		s.addLink(nic, allocSticky, nil, noAddress)
	}
}

// setMTU sets an interface's MTU. Those on it get no larger one, those below it no smaller one
// (interface_mtu_params_update in models/signals/interfaces.py).
func (nic *iface) setMTU(mtu int) {
	if nic.mtu == mtu {
		return
	}
	nic.mtu = mtu
	if mtu == 0 {
		return
	}
	for _, child := range nic.children() {
		if child.mtu > mtu {
			child.setMTU(mtu)
		}
	}
	for _, parent := range nic.parents() {
		if parent.mtu < mtu {
			parent.setMTU(mtu)
		}
	}
}
