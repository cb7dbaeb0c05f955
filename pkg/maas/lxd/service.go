// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/cooldown"
)

// supportedProfile is the LXD profile that MAAS gives to each VM on a VM host, if the host has it. No other can be
// chosen there.
const supportedProfile = "maas"

// Service places and composes VMs on the LXD hosts of one MAAS, as one identity sees it. All users of that identity
// must share it, because it records which hosts failed.
type Service struct {
	composer     Composer
	reservations *Reservations
	// VM hosts, and direct hosts, that could not compose.
	failures, directFailures *cooldown.Cooldowns[HostKey]
}

// NewService makes a service on a composer, with the reservations of its MAAS.
func NewService(composer Composer, reservations *Reservations) *Service {
	return &Service{
		composer: composer, reservations: reservations,
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
				"other: " +
				"set spec.lxdConfig.profile to maas, or remove it, or add LXDHosts"}
		}
	}
	s.markCoolingDown(hosts)
	if spec.Project == "" {
		return hosts, nil
	}
	var with []Host
	for _, host := range hosts {
		if host.Forbidden != nil { // MAAS does not tell its project, and placement leaves it out.
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
	return s.reservations.place(hosts, spec, peers)
}

// Room returns the room of each zone for more VMs of a spec, beside the peers and the VMs for which room is reserved.
// Zones without a suitable host are left out.
func (s *Service) Room(hosts []Host, spec VMSpec, peers []Peer) map[string]Room {
	return s.reservations.survey(hosts, spec, peers)
}

// Cancel returns the room that SelectOptimalHost reserved.
func (s *Service) Cancel(vm string) { s.reservations.cancel(vm) }

// ComposeVM creates a VM on the host that was selected for it. Errors are *LXDError or of package maas. The VM may
// exist even if MAAS refuses the call: MAAS creates it on the host before its own part is done, and leaves it there if
// that fails.
func (s *Service) ComposeVM(ctx context.Context, permit maas.Permit, host Host, spec VMSpec) (VM, error) {
	vm, err := s.composer.Compose(ctx, permit, host, spec)
	var later *LaterError
	var notAllowed *NotAllowedError
	if errors.As(err, &later) || errors.As(err, &notAllowed) {
		s.reservations.cancel(spec.Hostname)
		// Not the host's fault.
		return VM{}, &LXDError{Type: HostUnavailable, Host: host.Name, Message: err.Error(), cause: err}
	}
	switch {
	case err == nil:
		s.reservations.settle(spec.Hostname)
	case errors.Is(err, maas.Unavailable) && !maas.NotSent(err):
		s.reservations.doubt(spec.Hostname)
	default:
		s.reservations.cancel(spec.Hostname)
	}
	switch {
	case err == nil:
		s.failuresOf(&host).Clear(host.Key())
	case blames(err):
		s.failed(&host)
	}
	var notRegistered *NotRegisteredError
	if maas.NotSent(err) || errors.As(err, &notRegistered) {
		return VM{}, fmt.Errorf("composing a VM on VM host %s: %w", host.Name, err)
	}
	if err != nil {
		return VM{}, &LXDError{Type: VMCreationFailed, Host: host.Name, Message: maas.Message(err), cause: err}
	}
	return vm, nil
}

// DeleteVM removes a VM. MAAS reports success even if its host still has the VM: see FindVM.
func (s *Service) DeleteVM(ctx context.Context, permit maas.VMPermit, vm VM) error {
	err := s.composer.Decompose(ctx, permit, vm)
	if err == nil {
		s.reservations.gone(vm.Hostname)
	}
	return err
}

// StartVM starts a VM that ComposeVM has left stopped; see Composer.Start.
func (s *Service) StartVM(ctx context.Context, vm VM) error { return s.composer.Start(ctx, vm) }

// SwitchVM switches a VM on or off that MAAS does not switch.
func (s *Service) SwitchVM(ctx context.Context, permit maas.Permit, vm VM, on bool) error {
	if on {
		return s.composer.Start(ctx, vm)
	}
	return s.composer.Stop(ctx, permit, vm)
}

// PowerOf returns the power of a VM that MAAS does not switch, in MAAS's words.
func (s *Service) PowerOf(ctx context.Context, vm VM) (string, error) {
	seen, err := s.composer.Observe(ctx, vm, 0)
	switch {
	case CantAsk(err):
		return maas.PowerError, nil
	case err != nil:
		return "", err
	}
	return seen.Power(), nil
}

// ObserveVM returns what its host shows of a VM; see Composer.Observe.
func (s *Service) ObserveVM(ctx context.Context, vm VM, maxAge time.Duration) (Seen, error) {
	return s.composer.Observe(ctx, vm, maxAge)
}

// ForgetVM removes what MAAS has of a VM that no host has any more; see Composer.Forget.
func (s *Service) ForgetVM(ctx context.Context, permit maas.Permit, machine *maas.Machine, mark string) error {
	return s.composer.Forget(ctx, permit, machine, mark)
}

// FindDevice returns what MAAS has of a VM without its host; see Composer.FindDevice.
func (s *Service) FindDevice(ctx context.Context, vm VM, mark string) (*maas.Machine, error) {
	return s.composer.FindDevice(ctx, vm, mark)
}

// Locate returns a VM with the host that its machine is on: what MAAS shows, or the only host that is recorded.
func (s *Service) Locate(vm VM, machine *maas.Machine, recorded []string) VM {
	vm.SystemID = machine.SystemID
	if machine.Pod != nil {
		host := Host{ID: machine.Pod.ID, Name: machine.Pod.Name}
		vm.Host, vm.HostID, vm.HostRef = host.Name, host.ID, s.composer.HostRef(host)
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

// HostRef returns the reference to a host that has, or may have, a VM; see Composer.HostRef.
func (s *Service) HostRef(host Host) string { return s.composer.HostRef(host) }

// FindVM reports whether a VM's host still has it; see Composer.Find.
func (s *Service) FindVM(ctx context.Context, vm VM) (Presence, error) {
	return s.composer.Find(ctx, vm)
}

// AdoptVM makes a VM ours that MAAS composed on what was a VM host; see Composer.Adopt.
func (s *Service) AdoptVM(
	ctx context.Context, vm VM, recorded, addresses []string,
) (from string, now *Host, err error) {
	return s.composer.Adopt(ctx, vm, recorded, addresses)
}
