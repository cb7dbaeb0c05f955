// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/cooldown"
)

// supportedProfile is the LXD profile that MAAS gives to each VM, where the host has it. It can't be told to use another.
const supportedProfile = "maas"

// Service places and composes VMs on the LXD hosts of one MAAS, as one identity sees it. It must be shared by all who have that
// identity, because it holds which hosts failed.
type Service struct {
	composer     Composer
	reservations *Reservations
	failures     *cooldown.Cooldowns[string] // hosts that could not compose, by name
}

// NewService makes a service on a composer. Reservations are shared by the services of all identities of one MAAS.
func NewService(composer Composer, reservations *Reservations) *Service {
	return &Service{composer: composer, reservations: reservations, failures: cooldown.New[string](cooldowns)}
}

// GetAvailableLXDHosts returns the hosts that VMs of this spec may be placed on at all: those with the wanted LXD project.
func (s *Service) GetAvailableLXDHosts(ctx context.Context, spec VMSpec) ([]Host, error) {
	if spec.Profile != "" && spec.Profile != supportedProfile {
		return nil, &LXDError{Type: ProfileNotFound, Message: "MAAS gives VMs the LXD profile maas and no other: " +
			"set lxdConfig.profile to maas, or remove it"}
	}
	hosts, err := s.composer.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	s.tell(hosts)
	if spec.Project == "" {
		return hosts, nil
	}
	var with []Host
	for _, host := range hosts {
		project, err := s.composer.Project(ctx, host)
		if errors.Is(err, maas.NotFound) {
			continue // It left MAAS a moment ago.
		}
		if err != nil {
			return nil, err
		}
		if project == spec.Project {
			with = append(with, host)
		}
	}
	if len(with) == 0 && len(hosts) > 0 {
		return nil, &LXDError{Type: ProjectNotFound, Message: "no VM host uses the LXD project " + spec.Project}
	}
	return with, nil
}

// SelectOptimalHost chooses the host for a VM and reserves its room there, until ComposeVM or Cancel.
func (s *Service) SelectOptimalHost(hosts []Host, spec VMSpec, peers []Peer) (Host, error) {
	return s.reservations.place(hosts, spec, peers)
}

// Cancel gives back what SelectOptimalHost reserved.
func (s *Service) Cancel(vm string) { s.reservations.cancel(vm) }

// ComposeVM creates a VM on the host that was selected for it. Errors are *LXDError or of package maas. A refusal does not say that there is no
// VM: MAAS has the host make it before it is done with its own part, and what it refuses after that stays on the host.
func (s *Service) ComposeVM(ctx context.Context, permit maas.Permit, host Host, spec VMSpec) (VM, error) {
	vm, err := s.composer.Compose(ctx, permit, host, spec)
	var later *LaterError
	if errors.As(err, &later) {
		s.reservations.cancel(spec.Hostname)
		return VM{}, &LXDError{Type: HostUnavailable, Host: host.Name, Message: later.Error(), cause: err} // Not its fault.
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
		s.failures.Clear(host.Name)
	case blames(err):
		s.failed(host.Name)
	}
	if maas.NotSent(err) {
		return VM{}, fmt.Errorf("composing a VM on VM host %s: %w", host.Name, err)
	}
	if err != nil {
		return VM{}, &LXDError{Type: VMCreationFailed, Host: host.Name, Message: maas.Message(err), cause: err}
	}
	return vm, nil
}

// DeleteVM removes a VM. MAAS says that it is gone also when it is not gone from its host: see FindVM.
func (s *Service) DeleteVM(ctx context.Context, permit maas.Permit, vm VM) error {
	return s.composer.Decompose(ctx, permit, vm)
}

// HostRef is how a host is recorded where a VM is or may be; see Composer.HostRef.
func (s *Service) HostRef(host Host) string { return s.composer.HostRef(host) }

// FindVM looks for a VM on its host; see Composer.Find.
func (s *Service) FindVM(ctx context.Context, vm VM) (Presence, error) {
	return s.composer.Find(ctx, vm)
}

// DistributeAcrossAZs returns the hosts that a number of equal VMs of a new cluster would be placed on, in this order.
func DistributeAcrossAZs(hosts []Host, spec VMSpec, count int) ([]Host, error) {
	hosts = slices.Clone(hosts)
	near := countPeers(nil)
	var chosen []Host
	for range count {
		host, err := place(hosts, &spec, near)
		if err != nil {
			return chosen, err
		}
		chosen = append(chosen, host)
		near.add(host.Name, host.Zone)
		at := slices.IndexFunc(hosts, func(h Host) bool { return h.ID == host.ID })
		take(&hosts[at], reservation{pool: spec.StoragePool, taken: spec.Resources})
	}
	return chosen, nil
}
