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
	*images
}

// NewComposer returns a Composer for the hosts of one MAAS. All composers must share refresher and servers.
func NewComposer(
	inventory *inventory.Inventory, refresher *HostRefresher, objects HostObjects, servers *lxdhost.Connections,
) Composer {
	objects = &current{objects: objects, inventory: inventory}
	return &both{
		objects: objects, vmHosts: &vmHosts{inventory, refresher},
		images: &images{
			objects: objects, servers: servers, refresher: refresher,
			registrar: &registrar{client: inventory.Client()}, imagesMaxAge: imagesMaxAge,
		},
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
	if err := markForbidden(ctx, b.vmHosts.inventory, hosts, &spec); err != nil {
		return nil, err
	}
	direct := b.list(ctx, objects, &spec, maxAge)
	if err := noteNameless(ctx, b.vmHosts.inventory, direct); err != nil {
		return nil, err
	}
	if gone && len(direct) == 0 {
		return nil, listed
	}
	return append(hosts, direct...), nil
}

func (b *both) Project(ctx context.Context, host Host) (string, error) {
	if host.IsDirect() {
		return host.Object.Server.Project, nil
	}
	return b.vmHosts.Project(ctx, host)
}

func (b *both) Compose(ctx context.Context, permit maas.Permit, host Host, spec VMSpec) (VM, error) {
	if host.IsDirect() {
		return b.images.Compose(ctx, permit, host, spec)
	}
	return b.vmHosts.Compose(ctx, permit, host, spec)
}

func (b *both) Decompose(ctx context.Context, permit maas.VMPermit, vm VM) error {
	if vm.HostFirst {
		return b.images.Decompose(ctx, permit, vm)
	}
	return b.vmHosts.Decompose(ctx, permit, vm)
}

// Find asks MAAS about a VM host, and where MAAS has none any more, the LXD of what was that VM host.
func (b *both) Find(ctx context.Context, vm VM) (Presence, error) {
	if isDirectRef(vm.HostRef) {
		return b.images.Find(ctx, vm)
	}
	found, err := b.vmHosts.Find(ctx, vm)
	if err != nil || !errors.Is(found.Why, maas.Gone) {
		return found, err
	}
	b.vmHosts.inventory.DropVMHosts()
	return b.findFormer(ctx, vm, found)
}

// Adopt marks a VM in LXD that MAAS composed on what was a VM host. Its interfaces must have the addresses.
func (b *both) Adopt(ctx context.Context, vm VM, recorded, addresses []string) (string, *Host, error) {
	if _, has, err := b.vmHosts.inventory.AnyVMHosts(ctx, hostsMaxAge); err != nil || has {
		return "", nil, err
	}
	return b.images.Adopt(ctx, vm, recorded, addresses)
}
