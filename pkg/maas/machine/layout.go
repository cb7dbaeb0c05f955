// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// WantedInterface is an interface that a machine shall have before it is deployed.
type WantedInterface struct {
	// Name is its name in MAAS; that of a network card may be its MAC address, or a tag that only this one has.
	Name string
	// Type is maas.InterfaceBond, InterfaceVLAN or InterfaceBridge; "" is a network card, which the machine has.
	Type string
	// Parents are the parts, by name, MAC address or tag.
	Parents []string
	VID     int // of a VLAN
	MTU     int // 0: whatever it is
	Params  maas.InterfaceParams
}

// InterfaceChange is one call that changes the interfaces of a machine: it makes one, or does something to the one with
// the id Interface.
type InterfaceChange struct {
	Create    *maas.InterfaceSpec
	Interface int
	Update    *maas.InterfaceUpdate
	Link      *maas.LinkParams
	Unlink    int // the id of a link
	Delete    bool
	// About is the interface's name.
	About string
}

// NextInterface returns the next call that brings the machine closer to the wanted interfaces; nil: they are as wanted.
// It looks at all of them first: the error, a *NICError, is that the machine can't have one, whatever is done before.
// vlans are those of the machine's fabrics; they are needed only while a VLAN is missing.
func NextInterface(machine *maas.Machine, wanted []WantedInterface, vlans []maas.VLAN) (*InterfaceChange, error) {
	l := layoutOf(machine, vlans)
	var next *InterfaceChange
	for _, w := range wanted {
		change, err := l.place(w)
		if err != nil {
			return nil, err
		}
		if next == nil {
			next = change
		}
	}
	for _, n := range l.nodes {
		if err := n.checkMTU(n); err != nil {
			return nil, err
		}
	}
	return next, nil
}

// layout is a machine's interfaces, and those that it shall have.
type layout struct {
	nodes []*node
	vlans []maas.VLAN
}

type node struct {
	name, kind string
	iface      *maas.Interface // nil: still to be made
	vlan       *maas.VLAN
	parts, on  []*node // what it contains, and what contains it
	mtu        int     // the wanted one, or 0
}

func layoutOf(machine *maas.Machine, vlans []maas.VLAN) *layout {
	l := &layout{vlans: vlans}
	for _, iface := range interfacesOf(machine) {
		l.nodes = append(l.nodes, &node{name: iface.Name, kind: iface.Type, iface: iface, vlan: iface.VLAN})
	}
	for _, n := range l.nodes {
		for _, name := range n.iface.Parents {
			if part := l.named(name); part != nil && part != n {
				n.parts, part.on = append(n.parts, part), append(part.on, n)
			}
		}
	}
	return l
}

func (l *layout) named(name string) *node {
	return list.First(l.nodes, func(n *node) bool { return n.name == name })
}

// called returns the interfaces that a name, a MAC address or a tag means. A MAC address and a tag mean network cards:
// a bond has the MAC address of a part.
func (l *layout) called(name string) []*node {
	if n := l.named(name); n != nil {
		return []*node{n}
	}
	var found []*node
	for _, n := range l.nodes {
		if n.iface != nil && n.kind == maas.InterfacePhysical &&
			(strings.EqualFold(n.iface.MACAddress, name) || slices.Contains(n.iface.Tags, name)) {
			found = append(found, n)
		}
	}
	return found
}

func refuse(name, format string, args ...any) error {
	return &NICError{NIC: name, Message: fmt.Sprintf(format, args...)}
}

// place compares one wanted interface with what there is, and adds it if it is missing.
func (l *layout) place(w WantedInterface) (*InterfaceChange, error) {
	if w.Type == "" {
		return l.placeCard(w)
	}
	parts, err := l.partsOf(w)
	if err != nil {
		return nil, err
	}
	if there := l.named(w.Name); there != nil {
		return there.compare(w, parts)
	}
	made := &node{name: w.Name, kind: w.Type, parts: parts, mtu: w.MTU}
	if err := l.check(w, made); err != nil {
		return nil, err
	}
	spec := &maas.InterfaceSpec{Type: w.Type, Name: w.Name, MTU: w.MTU, Params: w.Params}
	if w.Type == maas.InterfaceVLAN {
		spec.VLANID = made.vlan.ID
	}
	ready := true
	for _, part := range parts {
		part.on = append(part.on, made)
		if ready = ready && part.iface != nil; ready {
			spec.Parents = append(spec.Parents, part.iface.ID)
		}
	}
	l.nodes = append(l.nodes, made)
	if !ready {
		return nil, nil // A part is made first.
	}
	return &InterfaceChange{Create: spec, About: w.Name}, nil
}

func (l *layout) placeCard(w WantedInterface) (*InterfaceChange, error) {
	found := l.called(w.Name)
	switch {
	case len(found) == 0:
		return nil, refuse(w.Name, "is missing: the machine has no interface of that name, MAC address or tag")
	case len(found) > 1:
		return nil, refuse(w.Name, "is not clear: the interfaces %s have that tag", names(found))
	}
	card := found[0]
	card.mtu = w.MTU
	return card.update(w), nil
}

func (l *layout) partsOf(w WantedInterface) ([]*node, error) {
	var parts []*node
	for _, name := range w.Parents {
		found := l.called(name)
		if len(found) == 0 {
			return nil, refuse(w.Name, "shall contain %s: the machine has no interface of that name, MAC address or tag", name)
		}
		for _, n := range found {
			if !slices.Contains(parts, n) {
				parts = append(parts, n)
			}
		}
	}
	if w.Type != maas.InterfaceBond && len(parts) != 1 {
		return nil, refuse(w.Name, "shall contain one interface: %s have the tag %s", names(parts), w.Parents[0])
	}
	return parts, nil
}

// names lists interfaces, sorted.
func names(nodes []*node) string {
	sorted := list.Each(nodes, func(n *node) string { return n.name })
	slices.Sort(sorted)
	return strings.Join(sorted, ", ")
}

// check returns why an interface can't be made, as MAAS would, and finds its VLAN.
func (l *layout) check(w WantedInterface, made *node) error {
	for _, part := range made.parts {
		switch {
		case w.Type == maas.InterfaceBond && part.kind != maas.InterfacePhysical:
			return refuse(w.Name, "can't contain %s, a %s: a bond contains network cards", part.name, part.kind)
		case w.Type != maas.InterfaceBond && part.kind == w.Type:
			return refuse(w.Name, "can't contain %s, which is a %s, too", part.name, part.kind)
		}
		for _, user := range part.on {
			if w.Type == maas.InterfaceBond || user.kind == maas.InterfaceBond ||
				(w.Type == maas.InterfaceBridge && user.kind == maas.InterfaceBridge) {
				return refuse(w.Name, "can't contain %s, which is a part of %s", part.name, user.name)
			}
		}
		if w.Type == maas.InterfaceBond && vlanID(part) != vlanID(made.parts[0]) {
			return refuse(w.Name, "can't contain %s and %s, which are on different VLANs in MAAS", made.parts[0].name, part.name)
		}
	}
	if made.vlan = made.parts[0].vlan; w.Type != maas.InterfaceVLAN {
		return nil
	}
	if made.vlan == nil {
		return refuse(w.Name, "can't be on %s, which is connected to no VLAN in MAAS", made.parts[0].name)
	}
	fabric := made.vlan.FabricID
	at := slices.IndexFunc(l.vlans, func(v maas.VLAN) bool { return v.VID == w.VID && v.FabricID == fabric })
	if at < 0 {
		return refuse(w.Name, "shall be on VLAN %d, which MAAS does not have in the fabric of %s: add it there", w.VID,
			made.parts[0].name)
	}
	made.vlan = &l.vlans[at]
	return nil
}

func vlanID(n *node) int {
	if n.vlan == nil {
		return 0
	}
	return n.vlan.ID
}

// compare returns how an interface that there is becomes the wanted one, or why it can't. Its parts are not changed:
// another user may have made it.
func (n *node) compare(w WantedInterface, parts []*node) (*InterfaceChange, error) {
	const remedy = "use another name, or delete it in MAAS"
	switch {
	case n.kind != w.Type:
		return nil, refuse(w.Name, "is a %s interface already, and no %s: %s", n.kind, w.Type, remedy)
	case names(n.parts) != names(parts):
		return nil, refuse(w.Name, "contains %s already, and not %s: %s", cmp.Or(names(n.parts), "nothing"), names(parts),
			remedy)
	case w.Type == maas.InterfaceVLAN && (n.vlan == nil || n.vlan.VID != w.VID):
		return nil, refuse(w.Name, "is on another VLAN already, and not on %d: %s", w.VID, remedy)
	}
	n.mtu = w.MTU
	return n.update(w), nil
}

// update returns the change of the MTU and the parameters; nil if there is none.
func (n *node) update(w WantedInterface) *InterfaceChange {
	if n.iface == nil {
		return nil
	}
	update := &maas.InterfaceUpdate{}
	if w.MTU != 0 && n.iface.MTU() != w.MTU {
		update.MTU = &w.MTU
	}
	for key, value := range w.Params {
		if !sameParam(n.iface.Params[key], value) {
			if update.Params == nil {
				update.Params = maas.InterfaceParams{}
			}
			update.Params[key] = value
		}
	}
	if update.MTU == nil && update.Params == nil {
		return nil
	}
	return &InterfaceChange{Interface: n.iface.ID, Update: update, About: n.name}
}

// sameParam compares the values of a parameter; numbers and booleans have several spellings.
func sameParam(a, b string) bool {
	if a == b {
		return true
	}
	m, err1 := strconv.Atoi(a)
	n, err2 := strconv.Atoi(b)
	if err1 == nil && err2 == nil {
		return m == n
	}
	yes, err1 := strconv.ParseBool(a)
	too, err2 := strconv.ParseBool(b)
	return err1 == nil && err2 == nil && yes == too
}

// checkMTU refuses an MTU that is larger than a wanted one of a part, however far below: MAAS would change one of the
// two each time the other one is set.
func (n *node) checkMTU(below *node) error {
	for _, part := range below.parts {
		if n.mtu != 0 && part.mtu != 0 && n.mtu > part.mtu {
			return refuse(n.name, "shall have the MTU %d, and %s, which it contains, a smaller one, %d", n.mtu, part.name,
				part.mtu)
		}
		if err := n.checkMTU(part); err != nil {
			return err
		}
	}
	return nil
}
