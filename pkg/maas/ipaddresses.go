// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"net/netip"
	"slices"
)

// IPAddress is an address that MAAS knows.
type IPAddress struct {
	IP string `json:"ip"`
}

// ReserveParams are the parameters of op=reserve.
type ReserveParams struct {
	// IP is the address; otherwise MAAS chooses a free one in Subnet (CIDR).
	IP, Subnet string
	// FQDN is a name in a domain of MAAS that gets a DNS record with the address in the same call.
	FQDN string
}

// ReserveAddress reserves an address for the key's user (POST ipaddresses/ op=reserve). NotFound: the address is in
// use, or in a reserved range, or MAAS does not serve the domain. Forbidden: it lies in a dynamic range, or the key's
// user may not use the domain. Invalid: it lies in no subnet, or there is no such subnet. Exhausted: the subnet is
// full.
func (c *Client) ReserveAddress(ctx context.Context, permit Permit, p ReserveParams) (IPAddress, error) {
	form := formOf("ip", p.IP, "subnet", p.Subnet, "hostname", p.FQDN)
	return ask[IPAddress](ctx, c, on("ipaddresses/").post(permit, "reserve", form))
}

// ReleaseAddress gives a reserved address back (POST ipaddresses/ op=release). Invalid: it is not reserved by the key's
// user. With force, which is for administrators, it may be another user's, or be used in another way. MAAS goes by the
// address alone: a late call frees that of whoever has reserved it by then.
func (c *Client) ReleaseAddress(ctx context.Context, permit ReleasePermit, ip string, force bool) error {
	form := formOf("ip", ip, "force", yes(force))
	return c.do(ctx, on("ipaddresses/").post(permit.Permit(), "release", form), nil)
}

// Types of an IPRange.
const (
	// IPRangeReserved: MAAS allocates no addresses there; machines may have static addresses.
	IPRangeReserved = "reserved"
	// IPRangeDynamic: MAAS hands the addresses out by DHCP.
	IPRangeDynamic = "dynamic"
)

// IPRange is a part of a subnet that an operator set aside.
type IPRange struct {
	Type  string `json:"type"`
	Start string `json:"start_ip"`
	End   string `json:"end_ip"`
}

// Contains reports whether an address lies in the range.
func (r IPRange) Contains(address string) bool { return isBetween(address, r.Start, r.End) }

// ListIPRanges returns the IP ranges of all subnets (GET ipranges/).
func (c *Client) ListIPRanges(ctx context.Context) ([]IPRange, error) {
	return askAll[IPRange](ctx, c, "ipranges/")
}

// AddressDiscovered is the type of a SubnetAddress that MAAS has only seen in the network. MAAS reserves such an
// address for a user, but does not link it as a static one (_link_subnet_static in maasserver/models/interface.py).
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
	// DNSResources have it.
	DNSResources []struct {
		ID int `json:"id"`
	} `json:"dns_records"`
	// BMCs have it.
	BMCs []struct{} `json:"bmcs"`
}

// IsReservedFor reports whether a user has reserved the address, and nothing has it but perhaps this DNS resource.
func (a SubnetAddress) IsReservedFor(dnsResource int) bool {
	isElsewhere := len(a.BMCs) > 0 || a.Node.SystemID != ""
	for _, resource := range a.DNSResources {
		isElsewhere = isElsewhere || resource.ID != dnsResource
	}
	return a.Type == allocUserReserved && !isElsewhere
}

// SubnetAddresses returns the addresses of a subnet that something has (GET subnets/{id}/ op=ip_addresses).
func (c *Client) SubnetAddresses(ctx context.Context, subnetID int) ([]SubnetAddress, error) {
	return ask[[]SubnetAddress](ctx, c, on("subnets/{id}/", subnetID).query("ip_addresses", nil))
}

// Range is a part of a subnet.
type Range struct {
	Start   string   `json:"start"`
	End     string   `json:"end"`
	Purpose []string `json:"purpose"` // what it is in use for
}

// GivesAway reports whether an address lies in the range, and MAAS hands it out by DHCP.
func (r Range) GivesAway(address string) bool {
	return slices.Contains(r.Purpose, IPRangeDynamic) && isBetween(address, r.Start, r.End)
}

// UsedRanges returns the used ranges of a subnet (GET subnets/{id}/ op=reserved_ip_ranges).
func (c *Client) UsedRanges(ctx context.Context, subnetID int) ([]Range, error) {
	return ask[[]Range](ctx, c, on("subnets/{id}/", subnetID).query("reserved_ip_ranges", nil))
}

// FreeRanges returns the free ranges of a subnet (GET subnets/{id}/ op=unreserved_ip_ranges).
func (c *Client) FreeRanges(ctx context.Context, subnetID int) ([]Range, error) {
	return ask[[]Range](ctx, c, on("subnets/{id}/", subnetID).query("unreserved_ip_ranges", nil))
}

func isBetween(address, start, end string) bool {
	ip, invalid := netip.ParseAddr(address)
	first, err := netip.ParseAddr(start)
	last, bad := netip.ParseAddr(end)
	return invalid == nil && err == nil && bad == nil && first.Compare(ip) <= 0 && ip.Compare(last) <= 0
}

// SameAddress reports whether two texts are the same IP address in any notation.
func SameAddress(a, b string) bool {
	left, err := netip.ParseAddr(a)
	right, bad := netip.ParseAddr(b)
	return err == nil && bad == nil && left == right
}
