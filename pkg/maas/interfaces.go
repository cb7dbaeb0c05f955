// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
)

// Interface is the part of a network interface that the provider uses.
type Interface struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
	// Type is physical, bond, bridge or vlan.
	Type       string `json:"type"`
	MACAddress string `json:"mac_address"`
	Vendor     string `json:"vendor"`
	Product    string `json:"product"`
	LinkSpeed  int    `json:"link_speed"` // in Mbit/s; 0: not known, or no link
	// Tags that people gave the interface.
	Tags []string `json:"tags"`
	// Parents are the names of the interfaces that it contains, Children those of the bonds, bridges and VLANs on it.
	Parents  []string `json:"parents"`
	Children []string `json:"children"`
	// Params are its MTU (mtu), and the parameters of a bond (bond_mode and so on) or a bridge.
	Params InterfaceParams `json:"params"`
	Links  []Link          `json:"links"`
	// Discovered are addresses that MAAS found on the interface but did not assign.
	Discovered []Link `json:"discovered"`
	VLAN       *VLAN  `json:"vlan"`
}

// Subnets returns the subnets of the interface's addresses, those that MAAS assigned first.
func (i *Interface) Subnets() (subnets []netip.Prefix) {
	for _, link := range slices.Concat(i.Links, i.Discovered) {
		if link.Subnet == nil {
			continue
		}
		if subnet, err := netip.ParsePrefix(link.Subnet.CIDR); err == nil {
			subnets = append(subnets, subnet.Masked())
		}
	}
	return subnets
}

// VLAN is the part of MAAS's VLAN object that the provider uses.
type VLAN struct {
	ID       int `json:"id"`
	VID      int `json:"vid"` // 0: untagged
	FabricID int `json:"fabric_id"`
	// DHCP: MAAS serves DHCP there. Relay: the VLAN whose servers serve it, as MAAS shows it, or nil.
	DHCP  bool `json:"dhcp_on"`
	Relay any  `json:"relay_vlan"`
}

// Bootable reports whether machines can boot from the VLAN.
func (v *VLAN) Bootable() bool { return v != nil && (v.DHCP || v.Relay != nil) }

// Types of an Interface.
const (
	InterfacePhysical = "physical"
	InterfaceBond     = "bond"
	InterfaceVLAN     = "vlan"
	InterfaceBridge   = "bridge"
)

// InterfaceParams are parameters of an interface, each as text: numbers in digits, true or false.
type InterfaceParams map[string]string

// UnmarshalJSON reads MAAS's params: an object, or "" if there are none.
func (p *InterfaceParams) UnmarshalJSON(raw []byte) error {
	*p = nil
	values := map[string]any{}
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	if err := json.Unmarshal(raw, &values); err != nil {
		return fmt.Errorf("reading the parameters of an interface: %w", err)
	}
	for key, value := range values {
		switch v := value.(type) {
		case float64:
			p.set(key, strconv.FormatFloat(v, 'f', -1, 64))
		case bool, string:
			p.set(key, fmt.Sprint(v))
		}
	}
	return nil
}

func (p *InterfaceParams) set(key, value string) {
	if *p == nil {
		*p = InterfaceParams{}
	}
	(*p)[key] = value
}

// MTU returns the interface's own MTU; 0 if it has none, and so that of its VLAN.
func (i *Interface) MTU() int {
	mtu, _ := strconv.Atoi(i.Params["mtu"])
	return mtu
}

// InterfaceSpec is an interface to make.
type InterfaceSpec struct {
	Type    string // InterfaceBond, InterfaceVLAN or InterfaceBridge
	Name    string
	Parents []int // ids of interfaces; one for a VLAN and a bridge
	VLANID  int   // a tagged one; for a VLAN
	MTU     int   // 0: that of the VLAN
	Params  InterfaceParams
}

// CreateInterface makes a bond, a VLAN or a bridge (POST nodes/{id}/interfaces/ op=create_bond, create_vlan,
// create_bridge). The parts of a bond and of a bridge lose their links. A bridge on an Allocated machine gets the
// links instead, and MAAS removes it when the machine is released; bonds and VLANs stay. Forbidden: the key's user does
// not administer the machine. Invalid, with the field name: the machine has an interface of that name; parents or
// parent: a part is in use, or not fit. Conflict: the machine is not New, Ready, Allocated or Broken.
func (c *Client) CreateInterface(
	ctx context.Context, permit Permit, systemID string, spec InterfaceSpec,
) (*Interface, error) {
	form := formOf("name", spec.Name, "vlan", number(spec.VLANID), "mtu", number(spec.MTU))
	for _, id := range spec.Parents {
		if spec.Type == InterfaceBond {
			form.Add("parents", strconv.Itoa(id))
		} else {
			form.Set("parent", strconv.Itoa(id))
		}
	}
	setAll(form, spec.Params)
	return askFor[Interface](ctx, c, on("nodes/{id}/interfaces/", systemID).post(permit, "create_"+spec.Type, form))
}

// InterfaceUpdate is a change of an interface; nil leaves a value, 0 removes it.
type InterfaceUpdate struct {
	MTU    *int
	VLANID *int
	Params InterfaceParams
}

const interfaceEndpoint = "nodes/{id}/interfaces/{id}/"

// UpdateInterface changes an interface (PUT nodes/{id}/interfaces/{id}/). With another VLAN it loses its links. An MTU
// is also raised in what the interface contains, and lowered in what is on it. Errors: as with CreateInterface;
// NotFound: there is no such interface.
func (c *Client) UpdateInterface(
	ctx context.Context, permit Permit, systemID string, interfaceID int, update InterfaceUpdate,
) (*Interface, error) {
	form := url.Values{}
	for key, value := range map[string]*int{"mtu": update.MTU, "vlan": update.VLANID} {
		if value != nil {
			form.Set(key, number(*value))
		}
	}
	setAll(form, update.Params)
	return askFor[Interface](ctx, c, on(interfaceEndpoint, systemID, interfaceID).put(permit, form))
}

// DeleteInterface deletes an interface, and what contains nothing else (DELETE nodes/{id}/interfaces/{id}/). NotFound:
// there is no such interface. Conflict: the machine is not New, Ready, Allocated or Broken.
func (c *Client) DeleteInterface(ctx context.Context, permit Permit, systemID string, interfaceID int) error {
	return c.do(ctx, on(interfaceEndpoint, systemID, interfaceID).remove(permit), nil)
}

// Link connects an interface to a subnet.
type Link struct {
	ID int `json:"id"`
	// Mode is auto, static, dhcp or link_up.
	Mode string `json:"mode"`
	// IPAddress is "" while an auto link has none.
	IPAddress string  `json:"ip_address"`
	Subnet    *Subnet `json:"subnet"`
}

// Link modes of LinkParams and Link.
const (
	// LinkModeAuto: MAAS chooses an address of the subnet when the machine is deployed, and frees it when the machine
	// is released.
	LinkModeAuto = "auto"
	// LinkModeDHCP: the machine gets its address by DHCP.
	LinkModeDHCP = "dhcp"
	// LinkModeStatic: the interface has the address until the link is removed. A release keeps it.
	LinkModeStatic = "static"
	// LinkModeLinkUp: the interface is up, without an address.
	LinkModeLinkUp = "link_up"
)

// LinkParams are the parameters of op=link_subnet.
type LinkParams struct {
	Mode string
	// SubnetID must be given for auto and static links. Without Replace it must be on the interface's VLAN.
	SubnetID int
	// Subnet is the CIDR instead of the id; if several have it, MAAS refuses it.
	Subnet    string
	IPAddress string // for static links; "": MAAS chooses it
	// Replace removes all other links (force), and moves the interface to the subnet's VLAN. MAAS refuses to replace a
	// dhcp link by another dhcp link.
	Replace bool
}

// LinkSubnet gives an interface an address (POST nodes/{id}/interfaces/{id}/ op=link_subnet). NotFound: the address is
// in use, or the machine is gone. Conflict: the machine is not New, Ready, Allocated or Broken, or the address is
// reserved for another MAC address. Invalid, with the field ip_address: it lies in a dynamic range, or outside of the
// subnet.
func (c *Client) LinkSubnet(
	ctx context.Context, permit Permit, systemID string, interfaceID int, p LinkParams,
) (*Interface, error) {
	form := formOf("mode", p.Mode, "subnet", cmp.Or(p.Subnet, number(p.SubnetID)), "ip_address", p.IPAddress,
		"force", yes(p.Replace))
	return askFor[Interface](ctx, c, on(interfaceEndpoint, systemID, interfaceID).post(permit, "link_subnet", form))
}

// UnlinkSubnet removes a link (POST nodes/{id}/interfaces/{id}/ op=unlink_subnet). Invalid, with the field id: there is
// no such link.
func (c *Client) UnlinkSubnet(
	ctx context.Context, permit Permit, systemID string, interfaceID, linkID int,
) (*Interface, error) {
	form := url.Values{"id": {strconv.Itoa(linkID)}}
	return askFor[Interface](ctx, c, on(interfaceEndpoint, systemID, interfaceID).post(permit, "unlink_subnet", form))
}

// ListVLANs returns the VLANs of a fabric (GET fabrics/{id}/vlans/).
func (c *Client) ListVLANs(ctx context.Context, fabricID int) ([]VLAN, error) {
	return ask[[]VLAN](ctx, c, on("fabrics/{id}/vlans/", fabricID).get())
}
