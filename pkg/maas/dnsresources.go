// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// implicitName is the id of all names that have no DNS resource of their own, as those of machines. MAAS lists them
// with all=true, and without addresses: ip_addresses is null.
const implicitName = -1

// DNSResource is a name and its addresses in MAAS's DNS.
type DNSResource struct {
	ID          int    `json:"id"`
	FQDN        string `json:"fqdn"`
	IPAddresses []struct {
		IP string `json:"ip"`
		// AllocType is how the address was allocated.
		AllocType int `json:"alloc_type"`
	} `json:"ip_addresses"`
}

// allocUserReserved is the type of addresses that a user reserved; putting an address into a DNS resource reserves it,
// too.
const allocUserReserved = 4

// Addresses returns the record's IP addresses, in MAAS's order.
func (r *DNSResource) Addresses() []string {
	return r.addresses(func(int) bool { return true })
}

// Reserved returns the addresses of the record that users reserved. The others belong to machines or were found on the
// network.
func (r *DNSResource) Reserved() []string {
	return r.addresses(func(allocated int) bool { return allocated == allocUserReserved })
}

func (r *DNSResource) addresses(wanted func(allocated int) bool) []string {
	addresses := []string{}
	for _, address := range r.IPAddresses {
		if address.IP != "" && wanted(address.AllocType) {
			addresses = append(addresses, address.IP)
		}
	}
	return addresses
}

// ListDNSResources returns the DNS resources of one fully qualified name (GET dnsresources/), without implicit names:
// those can't be changed. NotFound: MAAS does not serve the domain.
func (c *Client) ListDNSResources(ctx context.Context, fqdn string) ([]DNSResource, error) {
	all, err := ask[[]DNSResource](ctx, c, on("dnsresources/").query("", url.Values{"fqdn": {fqdn}}))
	return slices.DeleteFunc(all, func(r DNSResource) bool { return r.ID == implicitName }), err
}

// CreateDNSResource makes a record (POST dnsresources/, for administrators); ttl is in seconds. NotFound: MAAS does not
// serve the domain. Invalid: the name is taken.
func (c *Client) CreateDNSResource(
	ctx context.Context, permit Permit, fqdn string, addresses []string, ttl int,
) (*DNSResource, error) {
	form := url.Values{
		"fqdn": {fqdn}, "ip_addresses": {strings.Join(addresses, " ")}, "address_ttl": {strconv.Itoa(ttl)},
	}
	return askFor[DNSResource](ctx, c, on("dnsresources/").post(permit, "", form))
}

// UpdateDNSResource replaces a record's addresses (PUT dnsresources/{id}/).
func (c *Client) UpdateDNSResource(
	ctx context.Context, permit Permit, id int, addresses []string,
) (*DNSResource, error) {
	form := url.Values{"ip_addresses": {strings.Join(addresses, " ")}}
	return askFor[DNSResource](ctx, c, on("dnsresources/{id}/", id).put(permit, form))
}

// DeleteDNSResource removes a record (DELETE dnsresources/{id}/).
func (c *Client) DeleteDNSResource(ctx context.Context, permit Permit, id int) error {
	return c.do(ctx, on("dnsresources/{id}/", id).remove(permit), nil)
}
