// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"fmt"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Rekey compares how MAAS switches the VM (GET machines/{id}/ op=power_parameters) with its LXDHost. A pair that came
// into the Secret meanwhile is left for later: it is not known yet that LXD trusts it.
func (d *direct) Rekey(ctx context.Context, vm VM, fingerprint string, put func(maas.LXDPower) error) (bool, error) {
	object, err := d.object(ctx, vm.HostRef)
	if err != nil || object == nil || object.Problem != nil {
		return false, err
	}
	if has, _ := object.Server.Client(); has != fingerprint {
		return false, nil
	}
	has, err := d.inventory.Client().PowerParameters(ctx, vm.SystemID)
	if err != nil {
		return false, fmt.Errorf("reading how MAAS switches machine %s: %w", vm.SystemID, err)
	}
	if wanted := object.power(vm.Hostname); !has.SwitchesAs(wanted) {
		if err := put(wanted); err != nil {
			return false, err
		}
	}
	d.remember(vm.SystemID, vm.HostRef)
	return true, nil
}

// Rekey does nothing: MAAS has the key pair of a VM host itself.
func (v *vmHosts) Rekey(context.Context, VM, string, func(maas.LXDPower) error) (bool, error) {
	return true, nil
}
