// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
)

// rights tells what the key may be used for: in one resource pool, or, without one, in which.
func (c *checks) rights(ctx context.Context, client *maas.Client, pool string) {
	pools, err := client.ListResourcePools(ctx)
	if err != nil {
		c.refused("rights", err)
		return
	}
	if pool != "" {
		pools = slices.DeleteFunc(pools, func(p maas.Ref) bool { return p.Name != pool })
	}
	asker := rights.Direct{Client: client}
	version, err := client.Version(ctx)
	if err != nil {
		c.refused("rights", err)
		return
	}
	found, err := rights.Survey(ctx, asker, pools)
	if err != nil {
		c.refused("rights", err)
		return
	}
	for _, one := range found {
		c.right(one, pool, version)
	}
}

func (c *checks) right(f rights.Finding, pool string, version maas.Version) {
	name, where := f.Name, ""
	if len(f.Pools) > 0 {
		where = " in " + strings.Join(f.Pools, ", ")
	}
	switch {
	case f.Answer == rights.Yes:
		c.ok(name, "the key may: %s%s", f.What, where)
	case f.Answer == rights.Unknown:
		c.unknown(name, "%s%s: no machine there is free, so MAAS does not tell whether the key may", f.What, where)
	case f.Answer == rights.Absent:
		c.no(name, "for VMs, give the LXDs to the provider as LXDHosts", "MAAS %s has no VM hosts", version)
	case len(f.Missing) == 0:
		c.no(name, "for this, use the key of an administrator", "the key may not: %s", f.What)
	default:
		c.no(name, "for this, give a group of the user "+rights.Describe(f.Missing, pool), "the key may not: %s", f.What)
	}
}
