// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func parseIP(text string) (netip.Addr, error) { return netip.ParseAddr(strings.TrimSpace(text)) }

func (rq *request) listInterfaces() (any, error) {
	m := rq.nodeByID(rq.vars[0])
	if m == nil {
		return nil, notFound("Node")
	}
	if !rq.allowed(rq.user, m, mayView) {
		return nil, forbidden("")
	}
	out := []any{}
	for _, nic := range m.ifaces {
		out = append(out, renderInterface(nic))
	}
	return out, nil
}

// interfaceFor returns the interface of the path.
func (rq *request) interfaceFor(want permission) (*iface, error) {
	m := rq.nodeByID(rq.vars[0])
	if m == nil {
		return nil, notFound("Node")
	}
	id, err := strconv.Atoi(rq.vars[1])
	at := slices.IndexFunc(m.ifaces, func(nic *iface) bool { return nic.id == id && err == nil || nic.name == rq.vars[1] })
	if at < 0 {
		return nil, notFound("Interface")
	}
	if !rq.allowed(rq.user, m, interfacePermission(m, want)) {
		return nil, forbidden("")
	}
	return m.ifaces[at], nil
}

// interfacePermission returns what a user must be allowed for a node's interface: its owner may change those of a device.
func interfacePermission(node *machine, want permission) permission {
	if node.device && want == mayAdmin {
		return mayEdit
	}
	return want
}

// changeable returns the interface, or a refusal if the machine's status forbids changing it.
func (rq *request) changeable(what string) (*iface, error) {
	nic, err := rq.interfaceFor(mayAdmin)
	if err != nil {
		return nil, err
	}
	return nic, refuseInterfaces(nic.machine, what)
}

func refuseInterfaces(m *machine, what string) error {
	switch m.status { // A device is always New.
	case statusNew, statusReady, statusAllocated, statusBroken, statusFailedTesting:
		return nil
	}
	return conflict("Cannot %s interface because the machine is not New, Ready, Allocated, or Broken.", what)
}

func (rq *request) linkSubnet() (any, error) {
	force, err := rq.data.boolean("force", false)
	if err != nil {
		return nil, err
	}
	nic, err := rq.changeable("link subnet")
	if err != nil {
		return nil, err
	}
	kind, sn, ip, err := rq.linkForm(nic, force)
	if err != nil {
		return nil, err
	}
	m := nic.machine
	before := joinAddrs(m.addresses())
	if force {
		for _, link := range slices.Clone(nic.links) {
			rq.dropAddress(link)
		}
	} else {
		for _, link := range slices.Clone(nic.links) {
			if link.mode() == "link_up" {
				rq.dropAddress(link)
			}
		}
	}
	link := rq.addLink(nic, kind, sn, ip)
	link.user = rq.user
	if kind != allocSticky {
		link.user = nil
	}
	if sn != nil {
		nic.vlan = sn.vlan
	}
	if rq.data.checkbox("default_gateway", false) {
		m.gatewayLink = link
	}
	rq.publish(m, ChangeAddresses, before, joinAddrs(m.addresses()))
	return renderInterface(nic), nil
}

// linkForm reads and checks the wanted link.
func (rq *request) linkForm(nic *iface, force bool) (kind allocType, sn *subnet, ip netip.Addr, err error) {
	errs, f := formErrors{}, rq.data
	for _, child := range nic.children() {
		if child.kind == interfaceBond {
			errs.add("bond", "Cannot link interface(%s) when interface is in a bond(%s).", nic.name, child.name)
		}
	}
	mode := strings.ToLower(f.get("mode"))
	kind, wrong := linkMode(nic.machine, mode)
	if wrong != "" {
		errs.add("mode", "%s", wrong)
	}
	if spec := f.get("subnet"); spec != "" {
		if sn = rq.subnetBySpecifier(spec); sn != nil && !force && nic.vlan != nil && sn.vlan != nic.vlan {
			sn = nil
		}
		if sn == nil {
			errs.add("subnet", "%s", noSuchSubnet(spec))
		}
	}
	if sn == nil && (mode == "auto" || mode == "static") {
		errs.add("subnet", "This field is required.")
	}
	if len(errs) > 0 {
		return 0, nil, noAddress, errs.err()
	}
	if mode == "link_up" && !force && slices.ContainsFunc(nic.links, func(a *address) bool { return a.mode() != "link_up" }) {
		errs.add("mode", "Cannot configure interface to link up (with no IP address) while other links are already configured. Specify force=True to override this behavior and delete all links.")
		return 0, nil, noAddress, errs.err()
	}
	if at := slices.IndexFunc(nic.links, func(a *address) bool { return a.kind == allocDHCP }); mode == "dhcp" && at >= 0 {
		from := ""
		if sn := nic.links[at].subnet; sn != nil {
			from = " from '" + subnetLabel(sn) + "'"
		}
		errs.add("mode", "Interface is already set to DHCP%s.", from)
	}
	if mode != "static" {
		return kind, sn, noAddress, errs.err()
	}
	ip, err = rq.staticAddress(nic, sn, f.get("ip_address"), force)
	return kind, sn, ip, err
}

// linkMode returns the kind of address of a mode, or MAAS's complaint. A device has only static addresses.
func linkMode(node *machine, mode string) (kind allocType, complaint string) {
	kinds := map[string]allocType{"auto": allocAuto, "dhcp": allocDHCP, "static": allocSticky, "link_up": allocSticky}
	allowed := []string{"'auto'", "'dhcp'", "'static'", "'link_up'"}
	if node.device {
		allowed = []string{"'static'"}
	}
	switch {
	case mode == "":
		return 0, "This field is required."
	case !slices.Contains(allowed, "'"+mode+"'"):
		return 0, fmt.Sprintf("'%s' is not a valid mode.  It should be one of: %s.", mode, strings.Join(allowed, ", "))
	}
	return kinds[mode], ""
}

// staticAddress checks the address for a STATIC link, or finds a free one.
func (rq *request) staticAddress(nic *iface, sn *subnet, text string, force bool) (netip.Addr, error) {
	if text == "" {
		ip, free := rq.freeAddress(sn)
		if !free {
			return noAddress, unavailable("No more IPs available in subnet: %s.", sn.cidr)
		}
		return ip, nil
	}
	ip, err := parseIP(text)
	if err != nil {
		return noAddress, invalidField("ip_address", "Enter a valid IPv4 or IPv6 address.")
	}
	if !sn.cidr.Contains(ip) {
		return noAddress, invalidField("ip_address", "IP address is not in the given subnet '%s'.", subnetLabel(sn))
	}
	if rq.dynamicRangeOf(ip) != nil {
		return noAddress, invalidField("ip_address", "IP address is inside a dynamic range %s.", rq.dynamicRangeText(ip))
	}
	if err := rq.refuseReservedIP(nic, ip); err != nil {
		return noAddress, err
	}
	if other := rq.addressInUse(ip); other != nil && !(force && slices.Contains(nic.links, other)) {
		return noAddress, notFoundText("IP address is already in use.")
	}
	return ip, nil
}

func (rq *request) dynamicRangeText(ip netip.Addr) string {
	r := rq.dynamicRangeOf(ip)
	return r.start.String() + " to " + r.end.String()
}

// subnetNumber is the pattern of a subnet's id.
var subnetNumber = regexp.MustCompile(`^\s*(subnet-)?\d+\s*$`)

// noSuchSubnet returns MAAS's message for a subnet that does not exist or is not accessible
// (SpecifierOrModelChoiceField in maasserver/fields.py).
func noSuchSubnet(specifier string) string {
	if subnetNumber.MatchString(specifier) {
		return "None found with id=" + specifier + "."
	}
	return noSuchChoice
}

// subnetLabel returns a subnet as MAAS prints it in messages (__str__ in maasserver/models/subnet.py).
func subnetLabel(sn *subnet) string {
	return fmt.Sprintf("%s:%s(vid=%d)", sn.name, sn.cidr, sn.vlan.vid)
}

func (rq *request) linkOf(nic *iface, text string) *address {
	id, err := strconv.Atoi(text)
	if err != nil {
		return nil
	}
	for _, link := range nic.links {
		if link.id == id {
			return link
		}
	}
	return nil
}

func (rq *request) unlinkSubnet() (any, error) {
	nic, err := rq.changeable("unlink subnet")
	if err != nil {
		return nil, err
	}
	if rq.data.get("id") == "" {
		return nil, invalidField("id", "This field is required.")
	}
	link := rq.linkOf(nic, rq.data.get("id"))
	if link == nil {
		return nil, invalidField("id", "'%s' is not a valid id.  It should be one of: %s.", rq.data.get("id"), linkIDs(nic))
	}
	rq.unlink(nic, []*address{link})
	rq.ensureLinkUp(nic)
	return renderInterface(nic), nil
}

func linkIDs(nic *iface) string {
	ids := []string{}
	for _, link := range nic.links {
		ids = append(ids, "'"+strconv.Itoa(link.id)+"'")
	}
	return strings.Join(ids, ", ")
}

// unlink removes links.
func (rq *request) unlink(nic *iface, links []*address) {
	before := joinAddrs(nic.machine.addresses())
	for _, link := range links {
		rq.dropAddress(link)
	}
	rq.publish(nic.machine, ChangeAddresses, before, joinAddrs(nic.machine.addresses()))
}
