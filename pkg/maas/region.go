// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"net/http"
)

// Subnet is what the provider uses of MAAS's subnet object.
type Subnet struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
	CIDR string `json:"cidr"`
}

// Domain is a DNS domain that MAAS serves.
type Domain struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
}

// ListZones answers GET zones/.
func (c *Client) ListZones(ctx context.Context) ([]Ref, error) {
	return list[Ref](ctx, c, "zones/")
}

// ListSubnets answers GET subnets/.
func (c *Client) ListSubnets(ctx context.Context) ([]Subnet, error) {
	return list[Subnet](ctx, c, "subnets/")
}

// ListDomains answers GET domains/.
func (c *Client) ListDomains(ctx context.Context) ([]Domain, error) {
	return list[Domain](ctx, c, "domains/")
}

func list[T any](ctx context.Context, c *Client, endpoint string) ([]T, error) {
	var items []T
	err := c.do(ctx, call{method: http.MethodGet, endpoint: endpoint}, &items)
	return items, err
}
