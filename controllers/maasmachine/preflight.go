// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
)

// preflight stops, before a machine is taken, at what MAAS refuses afterwards, or what Kubernetes lacks: other clusters
// could use the machine that would wait for it.
func (r *Reconciler) preflight(ctx context.Context, l *life) (outcome, error) {
	if isTaken(l) || wasProvisioned(l.MaasMachine) {
		return proceed, nil
	}
	for _, check := range []func(context.Context, *life) error{rights, names, connections, bootstrapData, r.pause} {
		if err := check(ctx, l); err != nil {
			return proceed, err
		}
	}
	return proceed, nil
}

// isTaken reports whether the machine is there already: a VM, or bare metal that is not free.
func isTaken(l *life) bool { return l.maas != nil && (l.IsLXD() || l.maas.Status != maas.StatusReady) }

// rights checks that MAAS lets the API key's user do what the spec needs.
func rights(ctx context.Context, l *life) error {
	switch {
	case l.IsLXD():
		return l.Inventory.NeedAdministrator(ctx, "a VM (spec.provisioningMode)")
	case len(l.MaasMachine.Spec.Interfaces) > 0:
		return l.Inventory.NeedAdministrator(ctx, "spec.interfaces")
	}
	return nil
}

// names checks that MAAS has the zone, the pool and the tags of bare metal. For VMs, the choice of a host names what it
// lacks.
func names(ctx context.Context, l *life) error {
	if l.IsLXD() {
		return nil
	}
	return l.Machines.CheckNames(ctx, l.Constraints())
}

// connections checks the static address, and the subnets of the interfaces of bare metal. For VMs, the choice of a host
// names those that it lacks.
func connections(ctx context.Context, l *life) error {
	field, own := "spec.staticIP", ""
	if l.MaasMachine.Spec.StaticIPPoolRef != nil {
		field = "spec.staticIPPoolRef"
	}
	if l.maas != nil {
		own = l.maas.SystemID
	}
	nics := l.NICs(l.MaasMachine.Status.StaticIP)
	if l.IsLXD() {
		nics = slices.DeleteFunc(nics, func(nic machine.NIC) bool { return nic.Address == "" })
	}
	err := l.Machines.CheckNICs(ctx, nics, own)
	if address := (*machine.AddressError)(nil); errors.As(err, &address) {
		return fmt.Errorf("%s: %w", field, err)
	}
	return err
}

// bootstrapData checks that the user data are there.
func bootstrapData(ctx context.Context, l *life) error {
	_, err := l.UserData(ctx)
	return err
}
