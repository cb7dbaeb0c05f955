// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"net/netip"
)

// Subnet is the part of MAAS's subnet object that the provider uses.
type Subnet struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
	CIDR string `json:"cidr"`
	// GatewayIP is "" if there is none.
	GatewayIP  string   `json:"gateway_ip"`
	DNSServers []string `json:"dns_servers"`
	VLAN       struct {
		ID int `json:"id"`
		// DHCP: MAAS serves DHCP there, so that machines can boot from it.
		DHCP bool `json:"dhcp_on"`
	} `json:"vlan"`
}

// Contains reports whether an address lies in the subnet.
func (s Subnet) Contains(address string) bool {
	subnet, err := netip.ParsePrefix(s.CIDR)
	ip, bad := netip.ParseAddr(address)
	return err == nil && bad == nil && subnet.Contains(ip)
}

// Domain is a DNS domain that MAAS has.
type Domain struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
	// Authoritative: MAAS's DNS has a zone for the domain. It does not serve names in any other.
	Authoritative bool `json:"authoritative"`
}

// ListZones returns the zones (GET zones/).
func (c *Client) ListZones(ctx context.Context) ([]Ref, error) {
	return askAll[Ref](ctx, c, "zones/")
}

// ListSubnets returns the subnets (GET subnets/).
func (c *Client) ListSubnets(ctx context.Context) ([]Subnet, error) {
	return askAll[Subnet](ctx, c, "subnets/")
}

// ListDomains returns the DNS domains (GET domains/).
func (c *Client) ListDomains(ctx context.Context) ([]Domain, error) {
	return askAll[Domain](ctx, c, "domains/")
}

// ListResourcePools returns the resource pools (GET resourcepools/).
func (c *Client) ListResourcePools(ctx context.Context) ([]Ref, error) {
	return askAll[Ref](ctx, c, "resourcepools/")
}

// User is the MAAS user that an API key belongs to.
type User struct {
	Username string `json:"username"`
	// Administrator: up to MAAS 3.7, only administrators may change VM hosts and DNS and delete machines.
	Administrator bool `json:"is_superuser"`
}

// WhoAmI returns the user of the API key (GET users/ op=whoami).
func (c *Client) WhoAmI(ctx context.Context) (User, error) {
	return ask[User](ctx, c, on("users/").query("whoami", nil))
}

type versionAnswer struct {
	Version Version `json:"version"`
}

const versionEndpoint = "version/"

// Version returns MAAS's version (GET version/, which needs no key).
func (c *Client) Version(ctx context.Context) (Version, error) {
	version, err := ask[versionAnswer](ctx, c, on(versionEndpoint).get())
	return version.Version, err
}

func askAll[T any](ctx context.Context, c *Client, endpoint string) ([]T, error) {
	return ask[[]T](ctx, c, on(endpoint).get())
}
