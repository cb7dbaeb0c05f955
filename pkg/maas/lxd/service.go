// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/cooldown"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
)

// supportedProfile is the LXD profile that MAAS gives to each VM on a VM host, if the host has it. No other can be
// chosen there.
const supportedProfile = "maas"

// Service places and composes VMs on the LXD hosts of one MAAS, as one identity sees it. All users of that identity
// must share it, because it records which hosts failed.
type Service struct {
	VMs
	composer     Composer
	reservations *Reservations
	// VM hosts, and direct hosts, that could not compose.
	failures, directFailures *cooldown.Cooldowns[HostKey]
}

// NewService makes a service on a composer, with the reservations of its MAAS.
func NewService(composer Composer, reservations *Reservations) *Service {
	return &Service{
		VMs: composer, composer: composer, reservations: reservations,
		failures: cooldown.New[HostKey](cooldowns), directFailures: cooldown.New[HostKey](directCooldowns),
	}
}

// GetAvailableLXDHosts returns the hosts on which VMs of this spec may be placed: those with the wanted LXD project.
// Others are not asked: with another zone, for example, a spec has other hosts. See VMSpec.Anywhere.
func (s *Service) GetAvailableLXDHosts(ctx context.Context, spec VMSpec) ([]Host, error) {
	return s.hosts(ctx, spec, hostsMaxAge)
}

// KnownLXDHosts is GetAvailableLXDHosts for reports: the figures are as whoever read them last, unless that is longer
// ago than reservations are kept.
func (s *Service) KnownLXDHosts(ctx context.Context, spec VMSpec) ([]Host, error) {
	return s.hosts(ctx, spec, figuresMaxAge)
}

func (s *Service) hosts(ctx context.Context, spec VMSpec, maxAge time.Duration) ([]Host, error) {
	hosts, err := s.composer.Hosts(ctx, spec, maxAge)
	if err != nil {
		return nil, err
	}
	if spec.Profile != "" && spec.Profile != supportedProfile {
		hosts = slices.DeleteFunc(hosts, func(h Host) bool { return !h.IsDirect() })
		if len(hosts) == 0 {
			return nil, &LXDError{Type: ProfileNotFound, Message: "MAAS gives VMs on its VM hosts the LXD profile maas and no " +
				"other: set spec.lxdConfig.profile to maas, or remove it, or add LXDHosts"}
		}
	}
	s.markCoolingDown(hosts)
	if spec.Project == "" {
		return hosts, nil
	}
	var with []Host
	for _, host := range hosts {
		if host.Forbidden != nil { // MAAS does not show its project, and placement leaves it out.
			with = append(with, host)
			continue
		}
		project, err := s.composer.Project(ctx, host)
		if errors.Is(err, maas.NotFound) {
			continue // MAAS removed it a moment ago.
		}
		if err != nil {
			return nil, err
		}
		if project == spec.Project {
			with = append(with, host)
		}
	}
	if len(with) == 0 && len(hosts) > 0 {
		return nil, &LXDError{Type: ProjectNotFound, Message: "no host uses the LXD project " + spec.Project +
			", as in spec.lxdConfig.project: name another, or add a host with it"}
	}
	return with, nil
}

// SelectOptimalHost chooses the host for a VM and reserves its room there, until ComposeVM or Cancel.
func (s *Service) SelectOptimalHost(hosts []Host, spec VMSpec, peers []Peer) (Host, error) {
	return s.reservations.Place(hosts, spec, peers)
}

// Again returns the host of a reference, which has the VM of an earlier try. Its room does not matter, which the VM has
// already. An error for which Unfit is true: the spec wants another one.
func (s *Service) Again(hosts []Host, spec VMSpec, ref string) (Host, error) {
	if host := list.Find(hosts, func(h Host) bool { return h.IsAt(ref) }); host != nil && isWanted(host, &spec) {
		return *host, nil
	}
	other := &NotAllowedError{"it is none of the hosts that the spec asks for any more"}
	return Host{}, &LXDError{Type: HostUnavailable, Host: nameIn(ref), Message: other.Error(), cause: other}
}

// Room returns the room of each zone for more VMs of a spec, beside the peers and the VMs for which room is reserved.
// Zones without a suitable host are left out.
func (s *Service) Room(hosts []Host, spec VMSpec, peers []Peer) map[string]Room {
	return s.reservations.Room(hosts, spec, peers)
}

// Trial returns Reservations to find out where VMs would be placed, beside those for which room is reserved now.
func (s *Service) Trial() *Reservations {
	r := s.reservations
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget()
	ledger := &Ledger{byVM: maps.Clone(r.byVM), clock: r.clock}
	return ledger.Of(r.server)
}

// Cancel returns the room that SelectOptimalHost reserved.
func (s *Service) Cancel(vm string) { s.reservations.cancel(vm) }

// ComposeVM creates a VM on the host that was selected for it. Errors are *LXDError or of package maas. The VM may
// exist even if MAAS refuses the call: MAAS creates it on the host before its own part is done, and leaves it there if
// that fails.
func (s *Service) ComposeVM(ctx context.Context, permit maas.Permit, host Host, spec VMSpec) (VM, error) {
	vm, err := s.composer.Compose(ctx, permit, host, spec)
	switch {
	case err == nil:
		s.reservations.settle(spec.Hostname)
		s.failuresOf(&host).Clear(host.Key())
		return vm, nil
	case errors.Is(err, maas.Unavailable) && !maas.NotSent(err):
		s.reservations.doubt(spec.Hostname)
	default:
		s.reservations.cancel(spec.Hostname)
	}
	if guard.Is[*guard.LaterError](err) || guard.Is[*NotAllowedError](err) { // Not the host's fault.
		return VM{}, &LXDError{Type: HostUnavailable, Host: host.Name, Message: err.Error(), cause: err}
	}
	if blames(err) {
		s.failed(&host)
	}
	if maas.NotSent(err) || guard.Is[*NotRegisteredError](err) {
		return VM{}, fmt.Errorf("composing a VM on VM host %s: %w", host.Name, err)
	}
	return VM{}, &LXDError{Type: VMCreationFailed, Host: host.Name, Message: maas.Message(err), cause: err}
}

// DeleteVM removes a VM. MAAS reports success even if its host still has the VM: see Find.
func (s *Service) DeleteVM(ctx context.Context, permit maas.VMPermit, vm VM) error {
	err := s.composer.Decompose(ctx, permit, vm)
	if err == nil {
		s.reservations.gone(vm.Hostname)
	}
	return err
}

// SwitchVM switches a VM on or off that MAAS does not switch.
func (s *Service) SwitchVM(ctx context.Context, permit maas.VMPermit, vm VM, on bool) error {
	if on {
		return s.Start(ctx, permit, vm)
	}
	return s.Stop(ctx, permit, vm)
}

// PowerOf returns the power of a VM that MAAS does not switch, in MAAS's words.
func (s *Service) PowerOf(ctx context.Context, vm VM) (string, error) {
	seen, err := s.Observe(ctx, vm, 0)
	switch {
	case CantAsk(err):
		return maas.PowerError, nil
	case err != nil:
		return "", err
	}
	return seen.Power(), nil
}

// Locate returns a VM with the host that its machine is on: what MAAS shows, or the only host that is recorded.
func (s *Service) Locate(vm VM, machine *maas.Machine, recorded []string) VM {
	vm.SystemID, vm.Machine = machine.SystemID, machine
	if machine.Pod != nil {
		host := Host{ID: machine.Pod.ID, Name: machine.Pod.Name}
		vm.Host, vm.HostID, vm.HostRef = host.Name, host.ID, HostRef(host)
		return vm
	}
	if _, name, is := SoleLXDHost(recorded); is {
		vm.Host, vm.HostRef = name, recorded[0]
	}
	vm.HostFirst = machine.Device || vm.HostRef != ""
	return vm
}

// Registers reports whether Compose makes a device for a VM on a host.
func Registers(host Host) bool { return host.IsDirect() }

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
	if err := markForbidden(ctx, b.vmHosts.inventory, hosts); err != nil {
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
	objects, err := b.objects.HostObjects(ctx)
	if err != nil {
		return VM{}, notLooked(err)
	}
	now := []Host{host}
	describe(now, objects)
	return b.vmHosts.Compose(ctx, permit, now[0], spec)
}

func (b *both) Decompose(ctx context.Context, permit maas.VMPermit, vm VM) error {
	if err := b.vmHosts.claim(ctx, permit.Machine(), vm); err != nil {
		return err
	}
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
