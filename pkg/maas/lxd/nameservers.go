// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
)

// subnetsMaxAge is how old the list of MAAS's subnets may be.
const subnetsMaxAge = 30 * time.Second

// noteNameless notes MAAS's subnets without name servers on the direct hosts whose LXDHost names none. There, MAAS has
// machines ask its own controllers: at which addresses, it shows no client.
func noteNameless(ctx context.Context, inventory *inventory.Inventory, hosts []Host) error {
	namesNone := func(h Host) bool { return h.Reachable && len(h.Object.Nameservers) == 0 }
	if !slices.ContainsFunc(hosts, namesNone) {
		return nil
	}
	subnets, err := inventory.Subnets(ctx, subnetsMaxAge)
	if err != nil {
		return fmt.Errorf("listing MAAS's subnets: %w", err)
	}
	var nameless []netip.Prefix
	for i := range subnets {
		if cidr, err := netip.ParsePrefix(subnets[i].CIDR); err == nil && len(subnets[i].DNSServers) == 0 {
			nameless = append(nameless, cidr.Masked())
		}
	}
	for i := range hosts {
		if namesNone(hosts[i]) {
			hosts[i].Nameless = nameless
		}
	}
	return nil
}

// resolvesNothing refuses a VM that would have no name server on any network card; see networkConfig.
func (h *Host) resolvesNothing(s *VMSpec) reason {
	if len(h.Nameless) == 0 {
		return fits
	}
	subnets := list.Each(s.cards(), h.Object.subnetOf)
	resolves := func(p netip.Prefix) bool { return p.IsValid() && !slices.Contains(h.Nameless, p) }
	return when(!slices.ContainsFunc(subnets, resolves), withoutNameservers, subnets[0].String())
}
