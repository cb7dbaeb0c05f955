// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
)

// composition chooses a host, composes the VM there, and claims it.
func (r *Reconciler) composition(ctx context.Context, l *life) (outcome, error) {
	if l.maas != nil {
		return proceed, nil
	}
	spec, err := r.wantedVM(ctx, l)
	if err != nil {
		return proceed, err
	}
	placer := l.Machines.LXD()
	hosts, err := placer.GetAvailableLXDHosts(ctx, spec)
	if err != nil {
		return proceed, err
	}
	if err := lxd.Forbidden(hosts); err != nil {
		return proceed, err
	}
	spec.MayBeOn = list.Where(hosts, func(h lxd.Host) bool { return slices.ContainsFunc(l.record.Hosts, h.IsAt) })
	machines, err := clusters.Machines(ctx, r.Client, l.MaasMachine.Namespace, l.Cluster.Cluster.Name)
	if err != nil {
		return proceed, err
	}
	if l.noImage != nil && !slices.ContainsFunc(hosts, lxd.Registers) {
		return proceed, l.noImage
	}
	host, err := placer.SelectOptimalHost(hosts, spec,
		clusters.Peers(machines, l.OwnerID(), l.IsControlPlane(), l.MaasMachine.Name))
	if err != nil {
		return proceed, err
	}
	if err := r.unregister(ctx, l, host); err != nil {
		return proceed, err
	}
	vm, err := r.composeOn(ctx, l, host, spec)
	if err != nil {
		return proceed, err
	}
	status := &l.MaasMachine.Status
	status.LXDHost, status.FailureDomain, status.LXDProject = host.Name, host.Zone, vm.Project
	r.Tell(l.MaasMachine, "VMComposed", "Compose", "VM %s on host %s", spec.Hostname, host.Name)
	runs := ""
	if vm.HostFirst {
		runs = vm.HostRef
	}
	if err := r.store(ctx, l, vm.SystemID, runs); err != nil {
		return proceed, err
	}
	r.vmExists(l, spec.Resources)
	if vm.HostFirst {
		l.maas, l.proven = vm.Machine, true
		l.Inventory.Track(vm.Machine)
		return proceed, nil
	}
	l.Inventory.Observe(vm.SystemID, inventory.Changing)
	if vm.Commissions { // The inventory triggers a reconcile when it is Ready.
		return report.Wait(report.UnknownRetry, infrav1.CreatingReason, "VM %s (%s) was made on host %s", spec.Hostname,
			vm.SystemID, host.Name), nil
	}
	return r.claimNow(ctx, l, vm.SystemID)
}

// unregister deletes the device of a VM that is made where it needs none: its name would be taken. Nothing else of an
// earlier attempt runs, and nothing of one is pending.
func (r *Reconciler) unregister(ctx context.Context, l *life, host lxd.Host) error {
	if !l.record.Registers || lxd.Registers(host) {
		return nil
	}
	placer := l.Machines.LXD()
	device, err := placer.FindDevice(ctx, l.VM(""), l.Identity().AgentName)
	if err == nil && device != nil {
		err = placer.Forget(ctx, record.ChangeVM.Permit(), device, l.Identity().AgentName)
	}
	if err != nil {
		placer.Cancel(l.Identity().Hostname)
		return err
	}
	return l.record.Store(ctx, func() { l.record.Registers = false })
}

// wantedVM returns the spec of the VM, with all that is told to one that is made from an image.
func (r *Reconciler) wantedVM(ctx context.Context, l *life) (spec lxd.VMSpec, err error) {
	spec = l.VMSpec()
	if spec.NoMAASImage = l.noImage != nil; !spec.NoMAASImage {
		if spec.Processors, err = l.Machines.Processors(ctx, l.MaasMachine.Spec.Image); err != nil {
			return spec, err
		}
	}
	userData, err := l.UserData(ctx)
	if err != nil {
		return spec, err
	}
	spec.UserData = string(userData)
	if address := l.MaasMachine.Status.StaticIP; address != "" {
		if spec.Address, err = netip.ParseAddr(address); err != nil {
			return spec, fmt.Errorf("the static address of MaasMachine %s: %w", l.MaasMachine.Name, err)
		}
	}
	return spec, nil
}

// composeOn composes the VM on a host, after waiting for its turn there. The turn lasts until that to deploy has come,
// or the reconcile ends: in a MAAS that is slower the more it has to do, VMs would be composed faster than they are
// deployed, and the first of many would run as late as the last.
func (r *Reconciler) composeOn(ctx context.Context, l *life, host lxd.Host, spec lxd.VMSpec) (lxd.VM, error) {
	placer := l.Machines.LXD()
	ref := lxd.HostRef(host)
	if err := cmp.Or(tooManyHosts(l, ref), r.awaitLeft(ctx, l, ref)); err != nil {
		placer.Cancel(spec.Hostname)
		return lxd.VM{}, err
	}
	if err := l.takeTurn(ctx, turns.OnHost(guard.Key(host.Key()), host.Name), turns.Acquire); err != nil {
		placer.Cancel(spec.Hostname)
		return lxd.VM{}, err
	}
	known := slices.Contains(l.record.Hosts, ref) // An earlier attempt may have created a VM there all the same.
	l.record.Registers = l.record.Registers || lxd.Registers(host)
	l.record.AddHost(ref)
	var vm lxd.VM
	called := false
	err := l.record.Call(ctx, record.Compose, func(ctx context.Context, permit maas.Permit) (err error) {
		called = true
		if vm, err = placer.ComposeVM(ctx, permit, host, spec); err != nil && lxd.NotComposed(err) && !known {
			l.record.DropHost(ref)
		}
		return err
	}, l.recordOwner)
	if !called {
		placer.Cancel(spec.Hostname)
		if !known {
			l.record.DropHost(ref)
		}
	}
	return vm, err
}

// tooManyHosts returns an error if the VM may not be made on one more host: each may have one until it was asked, which
// recovery does.
func tooManyHosts(l *life, ref string) error {
	if l.record.MayAddHost(ref) {
		return nil
	}
	return report.Later(report.MendRetry, infrav1.VMHostUnreachableReason, "VM %s may be on one of %d hosts, none of "+
		"which can be asked: %s; it is made on no other one until then: make one reachable, or delete the Machine",
		l.Identity().Hostname, len(l.record.Hosts), text.List(l.record.Hosts, maxSkipped))
}

// vmExists reports in the conditions that the VM exists, with its resources.
func (r *Reconciler) vmExists(l *life, taken lxd.Resources) {
	report.SetTrue(l.MaasMachine, infrav1.LXDHostSelectedCondition, infrav1.HostSelectedReason)
	report.SetTrue(l.MaasMachine, infrav1.LXDResourcesAllocatedCondition, infrav1.AllocatedReason)
	report.SetTrue(l.MaasMachine, infrav1.LXDVMCreatedCondition, infrav1.CreatedReason)
	l.MaasMachine.Status.VMResourceUsage = &infrav1.VMResourceUsage{
		// From int32.
		AllocatedCores: int32(taken.Cores), AllocatedMemory: int32(taken.Memory), AllocatedDisk: int32(taken.Disk),
	}
}

// recovery looks for a VM that the host created although the compose call failed or timed out. Otherwise the machine
// would get another VM, and MAAS would register this one under another name, because its own would be taken.
func (r *Reconciler) recovery(ctx context.Context, l *life) (outcome, error) {
	if l.maas != nil {
		return proceed, nil
	}
	return search{namesakes: l.record.CleanupSoFar().Namesakes, follow: r.creating}.everywhere(ctx, l)
}

func (r *Reconciler) creating(ctx context.Context, l *life, _ string, found lxd.Presence) (next, error) {
	switch found.State {
	case lxd.Pending:
		return next{outcome: report.Wait(found.After, infrav1.CreatingReason,
			"the response to the request for a VM was lost; checking whether the host has it before retrying")}, nil
	case lxd.Present:
		out, err := r.adoption(ctx, l)
		if err != nil || out.Waits() || l.maas != nil || found.VM.SystemID != "" {
			return next{outcome: out, found: true}, err
		}
		// MAAS does not have it: the next one may be placed on another host.
		if err := deleteFound(ctx, l, found.VM); err != nil {
			return next{}, fmt.Errorf("deleting VM %s, which MAAS does not have: %w", found.VM.Hostname, err)
		}
		return next{done: true}, nil
	}
	return next{}, nil // It is searched again when the machine has a VM, or is deleted.
}
