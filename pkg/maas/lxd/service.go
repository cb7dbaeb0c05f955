// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// supportedProfile is the LXD profile that MAAS gives to each VM, where the host has it. It can't be told to use another.
const supportedProfile = "maas"

// avoidance is how long a host is left alone after it could not compose a VM.
const avoidance = 3 * time.Minute

// Service places and composes VMs on the LXD hosts of one MAAS, as one identity sees it. It must be shared by all who have that
// identity, because it holds which hosts failed.
type Service struct {
	composer     Composer
	reservations *Reservations
	clock        func() time.Time

	mu     sync.Mutex
	failed map[string]time.Time // when a host last failed, by its name
}

// NewService makes a service on a composer. Reservations are shared by the services of all identities of one MAAS.
func NewService(composer Composer, reservations *Reservations) *Service {
	return &Service{composer: composer, reservations: reservations, clock: time.Now, failed: map[string]time.Time{}}
}

// GetAvailableLXDHosts answers the hosts that VMs of this spec may be placed on at all: those with the wanted LXD project.
func (s *Service) GetAvailableLXDHosts(ctx context.Context, spec VMSpec) ([]Host, error) {
	if spec.Profile != "" && spec.Profile != supportedProfile {
		return nil, &LXDError{Type: ProfileNotFound, Message: "MAAS gives VMs the LXD profile maas and no other: " +
			"set lxdConfig.profile to maas, or remove it"}
	}
	hosts, err := s.composer.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	s.markFailed(hosts)
	if spec.Project == "" {
		return hosts, nil
	}
	var with []Host
	for _, host := range hosts {
		project, err := s.composer.Project(ctx, host)
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

// ComposeVM creates a VM on the host that was selected for it. Errors are *LXDError or of package maas; only after a refusal
// (maas.Invalid, Forbidden, NotFound, Conflict, Gone) is it certain that there is no VM.
func (s *Service) ComposeVM(ctx context.Context, host Host, spec VMSpec) (VM, error) {
	vm, err := s.composer.Compose(ctx, host, spec)
	switch {
	case err == nil:
		s.reservations.settle(spec.Hostname)
	case errors.Is(err, maas.Unavailable):
		s.reservations.doubt(spec.Hostname)
	default:
		s.reservations.cancel(spec.Hostname)
	}
	if err != nil {
		s.note(host, err)
		return VM{}, &LXDError{Type: VMCreationFailed, Host: host.Name, Message: maas.Message(err), cause: err}
	}
	return vm, nil
}

// note remembers that a host failed, unless it was the VM's name that MAAS refused.
func (s *Service) note(host Host, err error) {
	if maas.InvalidField(err, "hostname") {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed[host.Name] = s.clock()
}

// markFailed says which hosts failed lately, and forgets what is long ago.
func (s *Service) markFailed(hosts []Host) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range hosts {
		at, failed := s.failed[hosts[i].Name]
		hosts[i].FailedLately = failed && s.clock().Sub(at) < avoidance
		if !hosts[i].FailedLately {
			delete(s.failed, hosts[i].Name)
		}
	}
}

// DeleteVM removes a VM. The caller verifies that it is gone.
func (s *Service) DeleteVM(ctx context.Context, vm VM) error {
	return s.composer.Decompose(ctx, vm)
}

// DistributeAcrossAZs answers the hosts that a number of equal VMs of a new cluster would be placed on, in this order.
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
