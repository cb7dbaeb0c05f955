// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"net/http"
	"net/url"
)

// IPAddress is an address that MAAS knows.
type IPAddress struct {
	IP string `json:"ip"`
}

// ReserveParams are the parameters of op=reserve.
type ReserveParams struct {
	// IP is the address, or Subnet (CIDR) is where MAAS chooses a free one.
	IP, Subnet string
	// FQDN is a name in a domain of MAAS that gets a DNS record with the address in the same call.
	FQDN string
}

// ReserveAddress takes an address out of circulation for the key's user (POST ipaddresses/ op=reserve). NotFound: the address is in
// use, or MAAS does not serve the domain. Forbidden: it lies in a dynamic range. Invalid: it lies in no subnet, or there is no such
// subnet. Unavailable with status 503: the subnet is full.
func (c *Client) ReserveAddress(ctx context.Context, p ReserveParams) (IPAddress, error) {
	form := url.Values{}
	set(form, "ip", p.IP)
	set(form, "subnet", p.Subnet)
	set(form, "hostname", p.FQDN)
	var address IPAddress
	err := c.do(ctx, call{method: http.MethodPost, endpoint: "ipaddresses/", op: "reserve", params: form}, &address)
	return address, err
}

// ReleaseAddress gives a reserved address back (POST ipaddresses/ op=release). Invalid: it is not reserved by the key's user.
func (c *Client) ReleaseAddress(ctx context.Context, ip string) error {
	return c.do(ctx, call{method: http.MethodPost, endpoint: "ipaddresses/", op: "release", params: url.Values{"ip": {ip}}}, nil)
}

// ListReservedAddresses answers those that the key's user reserved, of one address none or one (GET ipaddresses/).
func (c *Client) ListReservedAddresses(ctx context.Context, ip string) ([]IPAddress, error) {
	var addresses []IPAddress
	err := c.do(ctx, call{method: http.MethodGet, endpoint: "ipaddresses/", params: url.Values{"ip": {ip}}}, &addresses)
	return addresses, err
}
