// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
)

// Composition chooses a host, composes the VM there, and claims it.
func (s *Steps) Composition(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MAAS != nil {
		return life.Proceed, nil
	}
	spec, err := s.wantedVM(ctx, l)
	if err != nil {
		return life.Proceed, err
	}
	placer := l.Machines.LXD()
	hosts, err := placer.GetAvailableLXDHosts(ctx, spec)
	if err != nil {
		return life.Proceed, err
	}
	if err := lxd.Forbidden(hosts); err != nil {
		return life.Proceed, err
	}
	spec.MayBeOn = list.Where(hosts, func(h lxd.Host) bool { return slices.ContainsFunc(l.Record.Hosts, h.IsAt) })
	host, vm, err := s.compose(ctx, l, hosts, spec)
	if err != nil {
		return life.Proceed, s.discard(ctx, l, err)
	}
	status := &l.MaasMachine.Status
	status.LXDHost, status.FailureDomain, status.LXDProject = host.Name, host.Zone, vm.Project
	s.Tell(l.MaasMachine, "VMComposed", "Compose", "VM %s on host %s", spec.Hostname, host.Name)
	runs := ""
	if vm.HostFirst {
		runs = vm.HostRef
	}
	if err := s.Store(ctx, l, vm.SystemID, runs, l.Record.Acquired); err != nil {
		return life.Proceed, err
	}
	s.VMExists(l, spec.Resources)
	if vm.HostFirst {
		l.MAAS, l.Proven = vm.Machine, true
		l.Inventory.Track(vm.Machine)
		return life.Proceed, nil
	}
	l.Inventory.Observe(vm.SystemID, inventory.Changing)
	if vm.Commissions { // The inventory triggers a reconcile when it is Ready.
		return report.Wait(report.UnknownRetry, infrav1.CreatingReason, "VM %s (%s) was made on host %s", spec.Hostname,
			vm.SystemID, host.Name), nil
	}
	return s.ClaimNow(ctx, l, vm.SystemID)
}

// compose composes the VM on the best of the hosts; or on the one that has it from an earlier try, which is finished
// there.
func (s *Steps) compose(ctx context.Context, l *life.Life, hosts []lxd.Host, spec lxd.VMSpec) (
	host lxd.Host, vm lxd.VM, err error,
) {
	switch placer := l.Machines.LXD(); {
	case s.begun != nil:
		host, err = placer.Again(hosts, spec, s.begun.HostRef)
	case s.noImage != nil && !slices.ContainsFunc(hosts, lxd.Registers):
		err = s.noImage
	default:
		var machines []infrav1.MaasMachine
		machines, err = clusters.MachinesOf(ctx, s.Client, l.Cluster.Cluster, l.MaasCluster)
		if err == nil {
			host, err = placer.SelectOptimalHost(hosts, spec,
				clusters.Peers(machines, l.OwnerID(), l.IsControlPlane(), l.MaasMachine.Name))
		}
	}
	if err == nil {
		err = s.unregister(ctx, l, host)
	}
	if err == nil {
		vm, err = s.composeOn(ctx, l, host, spec)
	}
	return host, vm, err
}

// discard deletes the VM of an earlier try, which never ran, if it can't become the one that is wanted: the next one
// may be placed on another host. It returns err, which is why.
func (s *Steps) discard(ctx context.Context, l *life.Life, err error) error {
	if s.begun == nil || !lxd.Unfit(err) {
		return err
	}
	if failed := deleteFound(ctx, l, s.begun); failed != nil {
		return fmt.Errorf("deleting VM %s of an earlier try: %w", s.begun.Hostname, failed)
	}
	l.Record.DropHost(s.begun.HostRef)
	return err
}

// unregister deletes the MAAS device before the VM is made on a VM host, which would find its name taken. Nothing else
// of an earlier attempt runs, and nothing of one is pending.
func (s *Steps) unregister(ctx context.Context, l *life.Life, host lxd.Host) error {
	if !l.Record.Registers || lxd.Registers(host) {
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
	return l.Record.Store(ctx, func() { l.Record.Registers = false })
}

// wantedVM returns the spec of the VM, with all that one made from an image is given.
func (s *Steps) wantedVM(ctx context.Context, l *life.Life) (spec lxd.VMSpec, err error) {
	spec = l.VMSpec()
	if spec.NoMAASImage = s.noImage != nil; !spec.NoMAASImage {
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
func (s *Steps) composeOn(ctx context.Context, l *life.Life, host lxd.Host, spec lxd.VMSpec) (lxd.VM, error) {
	placer := l.Machines.LXD()
	ref, formerBoot := lxd.HostRef(host), s.FormerBoot(ctx, l)
	if err := cmp.Or(tooManyHosts(l, ref), s.awaitLeft(ctx, l, ref)); err != nil {
		placer.Cancel(spec.Hostname)
		return lxd.VM{}, err
	}
	if err := l.TakeTurn(ctx, turns.OnHost(guard.Key(host.Key()), host.Name), turns.Acquire); err != nil {
		placer.Cancel(spec.Hostname)
		return lxd.VM{}, err
	}
	known := slices.Contains(l.Record.Hosts, ref) // An earlier attempt may have created a VM there all the same.
	l.Record.Registers = l.Record.Registers || lxd.Registers(host)
	l.Record.AddHost(ref)
	l.NoteFormerNode(formerBoot)
	var vm lxd.VM
	called := false
	err := s.Ask(ctx, l, record.Compose, func(ctx context.Context, permit maas.Permit) (err error) {
		called = true
		if vm, err = placer.ComposeVM(ctx, permit, host, spec); err != nil && lxd.NotComposed(err) && !known {
			l.Record.DropHost(ref)
		}
		return err
	}, l.RecordOwner)
	if !called {
		placer.Cancel(spec.Hostname)
		if !known {
			l.Record.DropHost(ref)
		}
	}
	return vm, err
}

// tooManyHosts returns an error if the VM may not be made on one more host: each may have one until it was asked, which
// recovery does.
func tooManyHosts(l *life.Life, ref string) error {
	if l.Record.MayAddHost(ref) {
		return nil
	}
	return report.Later(report.MendRetry, infrav1.VMHostUnreachableReason, "VM %s may be on one of %d hosts, none of "+
		"which can be asked: %s; it is made on no other one until then: make one reachable, or delete the Machine",
		l.Identity().Hostname, len(l.Record.Hosts), text.List(l.Record.Hosts, life.MaxSkipped))
}

// Recovery looks for a VM that the host created although the compose call failed or timed out. Otherwise the machine
// would get another VM, and MAAS would register this one under another name, because its own would be taken.
func (s *Steps) Recovery(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MAAS != nil {
		return life.Proceed, nil
	}
	return search{namesakes: l.Record.CleanupSoFar().Namesakes, follow: s.creating}.everywhere(ctx, l)
}

func (s *Steps) creating(ctx context.Context, l *life.Life, _ string, found lxd.Presence) (next, error) {
	switch found.State {
	case lxd.Pending:
		return next{Outcome: report.Wait(found.After, infrav1.CreatingReason,
			"the response to the request for a VM was lost; checking whether the host has it before retrying")}, nil
	case lxd.Present:
		out, err := s.Adoption(ctx, l)
		if err != nil || out.Waits() || l.MAAS != nil || found.VM.SystemID != "" {
			return next{Outcome: out, found: true}, err
		}
		s.begun = found.VM
		return next{found: true}, nil
	}
	return next{}, nil // It is searched again when the machine has a VM, or is deleted.
}

// Preflight stops, before a VM is made, at what its host or MAAS refuses afterwards, or what Kubernetes lacks. What the
// API key may do is up to the host.
func (s *Steps) Preflight(ctx context.Context, l *life.Life) (life.Outcome, error) {
	return s.Before(ctx, l, life.Names, life.Connections, life.BootstrapData)
}

// Image checks that MAAS has the image; some hosts may have it themselves.
func (s *Steps) Image(ctx context.Context, l *life.Life) (life.Outcome, error) {
	out, err := s.Steps.Image(ctx, l)
	if guard.Is[*machine.ImageError](err) {
		s.noImage, err = err, nil
	}
	return out, err
}
