// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
)

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
	return c.interfaceCall(ctx, permit, systemID, interfaceID, "link_subnet", form)
}

// UnlinkSubnet removes a link (POST nodes/{id}/interfaces/{id}/ op=unlink_subnet). Invalid, with the field id: there is
// no such link.
func (c *Client) UnlinkSubnet(
	ctx context.Context, permit Permit, systemID string, interfaceID, linkID int,
) (*Interface, error) {
	return c.interfaceCall(ctx, permit, systemID, interfaceID, "unlink_subnet", url.Values{"id": {strconv.Itoa(linkID)}})
}

func (c *Client) interfaceCall(
	ctx context.Context, permit Permit, systemID string, interfaceID int, op string, form url.Values,
) (*Interface, error) {
	return askFor[Interface](ctx, c, call{
		method: http.MethodPost, endpoint: "nodes/{id}/interfaces/{id}/", args: []string{systemID, strconv.Itoa(interfaceID)},
		op: op, params: form, permit: permit,
	})
}

// AddressDiscovered is the type of a SubnetAddress that MAAS has only seen in the network. It gives such an address
// away.
const AddressDiscovered = 6

// SubnetAddress is an address of a subnet that something has.
type SubnetAddress struct {
	IP   string `json:"ip"`
	Type int    `json:"alloc_type"`
	// User has reserved it; "" if it is a machine's.
	User string `json:"user"`
	// Node has it; the zero value if it is reserved.
	Node struct {
		SystemID string `json:"system_id"`
		Hostname string `json:"hostname"`
	} `json:"node_summary"`
}

// SubnetAddresses returns the addresses of a subnet that something has (GET subnets/{id}/ op=ip_addresses).
func (c *Client) SubnetAddresses(ctx context.Context, subnetID int) ([]SubnetAddress, error) {
	return ask[[]SubnetAddress](ctx, c, call{
		method: http.MethodGet, endpoint: "subnets/{id}/", args: []string{strconv.Itoa(subnetID)}, op: "ip_addresses",
	})
}

// PurposeDynamic is a purpose of a Range: MAAS hands its addresses out by DHCP.
const PurposeDynamic = "dynamic"

// Range is a part of a subnet.
type Range struct {
	Start   string   `json:"start"`
	End     string   `json:"end"`
	Purpose []string `json:"purpose"` // what it is in use for
}

// Contains reports whether an address lies in the range.
func (r Range) Contains(ip netip.Addr) bool { return isBetween(ip, r.Start, r.End) }

// UsedRanges returns the used ranges of a subnet (GET subnets/{id}/ op=reserved_ip_ranges).
func (c *Client) UsedRanges(ctx context.Context, subnetID int) ([]Range, error) {
	return c.ranges(ctx, subnetID, "reserved_ip_ranges")
}

// FreeRanges returns the free ranges of a subnet (GET subnets/{id}/ op=unreserved_ip_ranges).
func (c *Client) FreeRanges(ctx context.Context, subnetID int) ([]Range, error) {
	return c.ranges(ctx, subnetID, "unreserved_ip_ranges")
}

func (c *Client) ranges(ctx context.Context, subnetID int, op string) ([]Range, error) {
	return ask[[]Range](ctx, c, call{method: http.MethodGet, endpoint: "subnets/{id}/",
		args: []string{strconv.Itoa(subnetID)}, op: op})
}
