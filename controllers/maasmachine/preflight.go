// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
)

const (
	// poolsMaxAge is how old the list of resource pools may be in which the API key's rights are looked for.
	poolsMaxAge = 10 * time.Minute
	// bridgeField is the field of the MaasCluster with the bridge that a node of a host cluster needs.
	bridgeField = "lxdConfig.networkBridge of the MaasCluster"
)

// preflight stops, before a machine is taken, at what MAAS refuses afterwards, or what Kubernetes lacks: other clusters
// could use the machine that would wait for it.
func (r *Reconciler) preflight(ctx context.Context, l *life) (outcome, error) {
	if isTaken(l) || wasProvisioned(l.MaasMachine) {
		return proceed, nil
	}
	for _, check := range []func(context.Context, *life) error{mayDo, names, connections, bootstrapData, r.pause} {
		if err := check(ctx, l); err != nil {
			return proceed, err
		}
	}
	return proceed, nil
}

// image checks that MAAS has the image, before a machine is acquired or composed for it.
func (r *Reconciler) image(ctx context.Context, l *life) (outcome, error) {
	if isTaken(l) {
		return proceed, nil
	}
	err := l.Machines.CheckImage(ctx, l.MaasMachine.Spec.Image, l.MaasMachine.Spec.Architecture)
	if l.IsLXD() && guard.Is[*machine.ImageError](err) {
		l.noImage, err = err, nil // Some hosts may have it themselves.
	}
	return proceed, err
}

// isTaken reports whether the machine is there already: a VM, or bare metal that is not free.
func isTaken(l *life) bool { return l.maas != nil && (l.IsLXD() || l.maas.Status != maas.StatusReady) }

// mayDo checks that MAAS lets the API key's user do what the spec of bare metal needs. What a VM needs is up to its
// host.
func mayDo(ctx context.Context, l *life) error {
	if l.IsLXD() {
		return nil
	}
	// In one pool: MAAS chooses among those in which the key may take machines.
	if err := rights.RequireOne(ctx, l.Inventory, "bare metal", rights.BareMetal, l.pools); err != nil {
		return err
	}
	spec, pools := l.MaasMachine.Spec, rights.Where(l.Inventory, rights.BareMetal, l.pools)
	for _, also := range []struct {
		what   string
		wanted bool
		use    rights.Use
	}{
		{"spec.interfaces", len(spec.Interfaces) > 0, rights.Interfaces},
		{bridgeField, l.maas != nil && lacksBridge(l, l.maas), rights.HostBridge},
		{"spec.storage", spec.Storage != nil, rights.Storage},
		{"spec.staticIP", spec.StaticIP != "", rights.StaticAddresses},
		{"spec.staticIPPoolRef", spec.StaticIPPoolRef != nil, rights.StaticAddresses},
	} {
		if !also.wanted {
			continue
		}
		if err := rights.Require(ctx, l.Inventory, also.what, also.use, pools); err != nil {
			return err
		}
	}
	return nil
}

// pools are the resource pools that the machine may be of: its own, that of the spec, or else all.
func (l *life) pools(ctx context.Context) ([]maas.Ref, error) {
	if l.maas != nil {
		return []maas.Ref{l.maas.Pool}, nil
	}
	all, err := l.Inventory.ResourcePools(ctx, poolsMaxAge)
	if wanted := l.MaasMachine.Spec.ResourcePool; wanted != "" {
		all = slices.DeleteFunc(slices.Clone(all), func(pool maas.Ref) bool { return pool.Name != wanted })
	}
	return all, err
}

// names checks that MAAS has the zone, the pool and the tags of a machine. The tags of VM hosts are their own.
func names(ctx context.Context, l *life) error {
	wanted := l.Constraints()
	if l.IsLXD() {
		wanted.Tags = nil
	}
	return l.Machines.CheckNames(ctx, wanted)
}

// connections checks the static address, and the subnets of the interfaces of bare metal. For VMs, the choice of a host
// names those that it lacks.
func connections(ctx context.Context, l *life) error {
	field := "spec.staticIP"
	if l.MaasMachine.Spec.StaticIPPoolRef != nil {
		field = "spec.staticIPPoolRef"
	}
	nics := l.NICs(l.MaasMachine.Status.StaticIP)
	if l.IsLXD() {
		nics = slices.DeleteFunc(nics, func(nic machine.NIC) bool { return nic.Address == "" })
	}
	err := l.Machines.CheckNICs(ctx, nics, l.isOwn)
	if guard.Is[*machine.AddressError](err) {
		return fmt.Errorf("%s: %w", field, err)
	}
	return err
}

// isOwn reports whether the machine has an address already. Whether a device of the VM's name is ours is proven before
// it is used.
func (l *life) isOwn(a maas.SubnetAddress) bool {
	if l.maas != nil {
		return a.Node.SystemID == l.maas.SystemID
	}
	return l.record.Registers && a.Node.Hostname == l.Identity().Hostname
}

// bootstrapData checks that the user data are there.
func bootstrapData(ctx context.Context, l *life) error {
	_, err := l.UserData(ctx)
	return err
}
