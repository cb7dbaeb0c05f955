// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"slices"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
)

// markForbidden marks VM hosts on which the API key's user may not make VMs of a spec. Everybody may make the devices
// that VMs on other hosts need.
func markForbidden(ctx context.Context, asker rights.Asker, hosts []Host, spec *VMSpec) error {
	for i := range hosts {
		host := &hosts[i]
		pool := func(context.Context) ([]maas.Ref, error) { return []maas.Ref{{ID: host.PoolID, Name: host.Pool}}, nil }
		err := rights.Require(ctx, asker, "a VM (spec.provisioningMode)", rights.VMs, pool)
		if err == nil && spec.Address.IsValid() {
			err = rights.Require(ctx, asker, "spec.staticIP or spec.staticIPPoolRef", rights.StaticAddresses, pool)
		}
		if err != nil && !errors.As(err, &host.Forbidden) {
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
