// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
)

// both composes on the VM hosts of MAAS, as long as it has them, and on the LXDHosts whose VMs are made through LXD's
// own API.
type both struct {
	objects HostObjects
	vmHosts *vmHosts
	direct  *direct
}

// NewComposer returns a Composer for the hosts of one MAAS. All composers must share refresher and servers.
func NewComposer(inventory *inventory.Inventory, refresher *HostRefresher, objects HostObjects, servers *lxdhost.Connections) Composer {
	objects = &current{objects: objects, inventory: inventory}
	return &both{
		objects: objects, vmHosts: newVMHosts(inventory, refresher),
		direct: &direct{inventory: inventory, objects: objects, servers: servers, refs: map[string]string{}},
	}
}

// Hosts returns the hosts of both kinds for VMs of a spec. A MAAS that no longer has VM hosts has none.
func (b *both) Hosts(ctx context.Context, spec VMSpec, maxAge time.Duration) ([]Host, error) {
	objects, err := b.objects.HostObjects(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing LXDHosts: %w", err)
	}
	hosts, listed := b.vmHosts.Hosts(ctx, spec, maxAge)
	gone := errors.Is(listed, maas.Gone)
	if listed != nil && !gone {
		return nil, listed
	}
	describe(hosts, objects)
	entitled, err := b.direct.inventory.HasEntitlements(ctx) // Before LXDs are waited for.
	if err != nil {
		return nil, err
	}
	direct := b.direct.list(ctx, objects, &spec, maxAge)
	hosts = append(hosts, direct...)
	switch {
	case gone && len(direct) == 0:
		return nil, listed
	case !entitled:
		return hosts, nil
	}
	return hosts, markForbidden(ctx, b.direct.inventory, hosts)
}

// on returns the composer for a host.
func (b *both) on(isDirect bool) Composer {
	if isDirect {
		return b.direct
	}
	return b.vmHosts
}

func (b *both) Project(ctx context.Context, host Host) (string, error) {
	return b.on(host.IsDirect()).Project(ctx, host)
}

func (b *both) Compose(ctx context.Context, permit maas.Permit, host Host, spec VMSpec) (VM, error) {
	return b.on(host.IsDirect()).Compose(ctx, permit, host, spec)
}

func (b *both) Decompose(ctx context.Context, permit maas.VMPermit, vm VM) error {
	return b.on(isDirectRef(vm.HostRef)).Decompose(ctx, permit, vm)
}

func (b *both) Stop(ctx context.Context, permit maas.VMPermit, vm VM) error {
	return b.on(isDirectRef(vm.HostRef)).Stop(ctx, permit, vm)
}

func (b *both) HostRef(host Host) string { return b.on(host.IsDirect()).HostRef(host) }

func (b *both) HostOf(ctx context.Context, machine *maas.Machine) (*Host, error) {
	return b.on(machine.Pod == nil).HostOf(ctx, machine)
}

// Find asks MAAS about a VM host, and where MAAS has none any more, the LXD of what was that VM host.
func (b *both) Find(ctx context.Context, vm VM) (Presence, error) {
	if isDirectRef(vm.HostRef) {
		return b.direct.Find(ctx, vm)
	}
	found, err := b.vmHosts.Find(ctx, vm)
	if err != nil || !errors.Is(found.Why, maas.Gone) {
		return found, err
	}
	b.vmHosts.inventory.DropVMHosts()
	return b.direct.findFormer(ctx, vm, found)
}

// Adopt marks a VM in LXD that MAAS composed on what was a VM host. Its interfaces must have the addresses.
func (b *both) Adopt(ctx context.Context, vm VM, recorded, addresses []string) (string, *Host, error) {
	if _, has, err := b.vmHosts.inventory.AnyVMHosts(ctx, hostsMaxAge); err != nil || has {
		return "", nil, err
	}
	return b.direct.Adopt(ctx, vm, recorded, addresses)
}

func (b *both) Rekey(ctx context.Context, vm VM, fingerprint string, put func(maas.LXDPower) error) (bool, error) {
	return b.on(isDirectRef(vm.HostRef)).Rekey(ctx, vm, fingerprint, put)
}
