// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"slices"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
)

// markForbidden marks VM hosts on which the API key's user may not make VMs. From MAAS 3.8 on that depends on a host's
// pool, and MAAS tells the project of a host only those who may. Everybody may make the devices that VMs on other hosts
// need.
func markForbidden(ctx context.Context, known *inventory.Inventory, hosts []Host) error {
	if len(hosts) == 0 {
		return nil
	}
	entitled, err := known.HasEntitlements(ctx)
	if err != nil {
		return err
	}
	for i := range hosts {
		host := &hosts[i]
		if entitled {
			_, err = known.VMHostProject(ctx, host.ID, projectMaxAge)
			if host.Forbidden = rights.Refusal(err); host.Forbidden != nil {
				host.Forbidden.Pool = host.Pool
			}
		} else {
			err = rights.Require(ctx, known, "a VM (spec.provisioningMode)", rights.VMs)
			if errors.As(err, &host.Forbidden) {
				err = nil
			}
		}
		if err != nil && host.Forbidden == nil && !errors.Is(err, maas.NotFound) { // MAAS removed it a moment ago.
			return err
		}
	}
	return nil
}

// Forbidden returns a *rights.Error if there are hosts, and the API key's user may make VMs on none.
func Forbidden(hosts []Host) error {
	if len(hosts) == 0 || slices.ContainsFunc(hosts, func(h Host) bool { return h.Forbidden == nil }) {
		return nil
	}
	return hosts[0].Forbidden
}
