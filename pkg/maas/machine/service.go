// SPDX-License-Identifier: Apache-2.0

// Package machine does the steps of a machine's life in MAAS: find, acquire, connect, deploy, and give back.
//
// Bare metal and LXD VMs differ only in how they are acquired and given back. Each step can be interrupted anywhere and
// repeated: a mark that MAAS sets in the very call that takes the machine finds what an earlier try did (agent_name;
// for a VM, until it is claimed, the hostname).
package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
)

const (
	comment = "cluster-api-provider-maas"

	vmHostsMaxAge = 30 * time.Second
)

// Service does the steps for the machines of one MAAS.
type Service struct {
	*ownership.Prover
	Quarantine *quarantine.Service
	inventory  *inventory.Inventory
	lxd        *lxd.Service
	leftovers  leftovers
	unsuited   unsuited
	others     others
}

// NewService makes a service.
func NewService(inventory *inventory.Inventory, lxd *lxd.Service) *Service {
	return &Service{
		Prover: ownership.NewProver(inventory), Quarantine: quarantine.NewService(inventory), inventory: inventory, lxd: lxd,
	}
}

// LXD places and composes VMs.
func (s *Service) LXD() *lxd.Service { return s.lxd }

// Find returns the machines that an earlier try acquired for this identity. There should be at most one.
func (s *Service) Find(ctx context.Context, id ownership.Identity) ([]*maas.Machine, error) {
	filter := maas.MachineFilter{AgentNames: []string{id.AgentName}}
	if id.Hostname != "" {
		filter = maas.MachineFilter{Hostnames: []string{id.Hostname}}
	}
	machines, err := s.inventory.Client().ListMachines(ctx, filter)
	if err != nil {
		return nil, fmt.Errorf("searching for a machine that was acquired before: %w", err)
	}
	return machines, nil
}

// VMHostNames returns the VM hosts that bare metal must not come from: maas.AllocateParams.NotOnVMHosts.
func (s *Service) VMHostNames(ctx context.Context) ([]string, error) {
	hosts, _, err := s.inventory.AnyVMHosts(ctx, vmHostsMaxAge)
	if err != nil {
		return nil, fmt.Errorf("listing the VM hosts that must not be used: %w", err)
	}
	return list.Each(hosts, func(host maas.VMHost) string { return host.Name }), nil
}

// StaleVMHostsError is for an allocation that names VM hosts which this MAAS no longer has, or not by these names. The
// next one names those that it has.
type StaleVMHostsError struct{ cause error }

// Error says what has changed.
func (e *StaleVMHostsError) Error() string {
	return "the VM hosts in MAAS have changed: trying again without those that are gone"
}

// Unwrap returns MAAS's error.
func (e *StaleVMHostsError) Unwrap() error { return e.cause }

// notAllocatable returns why MAAS gave no machine. If it knows nothing of the VM hosts that were named, these are
// forgotten.
func (s *Service) notAllocatable(doing string, err error) error {
	if maas.InvalidField(err, maas.NotOnVMHostsField) {
		s.inventory.DropVMHosts()
		err = &StaleVMHostsError{cause: err}
	}
	return fmt.Errorf("%s a machine: %w", doing, err)
}

// Allocate takes a bare-metal machine that is neither quarantined, withheld, nor excluded. maas.Conflict: none
// fits. MAAS itself leaves out what any manager has quarantined or excluded by then. If none fits and there is a VM
// host that is not in constraints.NotOnVMHosts, MAAS composes a VM: that is returned, with its Pod, and the caller
// gives it back. *StaleVMHostsError: MAAS has not the VM hosts that it names.
func (s *Service) Allocate(
	ctx context.Context, permit maas.Permit, id ownership.Identity, constraints maas.AllocateParams,
) (*maas.Machine, error) {
	notTags := []string{quarantine.Tag} // Pick has left out the others, and the machine is held.
	if constraints.SystemID == "" {
		constraints.NotHostnames = append(s.notAllocated(), constraints.NotHostnames...)
		notTags = quarantine.NotTags()
	}
	constraints.NotTags = append(slices.Clone(constraints.NotTags), notTags...)
	constraints.AgentName, constraints.Comment = id.AgentName, comment
	machine, err := s.inventory.Client().AllocateMachine(ctx, permit, constraints)
	if err != nil {
		return nil, s.notAllocatable("allocating", err)
	}
	if machine.Pod != nil {
		s.inventory.DropVMHosts() // The next try knows the host.
	}
	return machine, nil
}

// Claim takes the machine with this system id, which no user has: a VM that was composed, or a machine that the user
// chose. From then on MAAS gives it to no other user. maas.Conflict: it is not Ready, or another user was faster.
func (s *Service) Claim(
	ctx context.Context, permit maas.Permit, id ownership.Identity, systemID string,
) (*maas.Machine, error) {
	machine, err := s.inventory.Change(systemID, func(client *maas.Client) (*maas.Machine, error) {
		return client.AllocateMachine(ctx, permit, maas.AllocateParams{AgentName: id.AgentName, Comment: comment,
			SystemID: systemID})
	})
	if err != nil {
		return nil, fmt.Errorf("claiming machine %s: %w", systemID, err)
	}
	s.inventory.Track(machine)
	return machine, nil
}

// Deploy installs the image on a machine that we acquired, and returns the machine: as it was, with an error.
// maas.Conflict: the state does not allow it; read the machine again. maas.Unaddressed: it can't have its addresses.
func (s *Service) Deploy(
	ctx context.Context, permit maas.Permit, id ownership.Identity, machine *maas.Machine, request maas.DeployParams,
) (*maas.Machine, error) {
	request.AgentName, request.Comment = id.AgentName, comment
	deployed, err := s.inventory.Change(machine.SystemID, func(client *maas.Client) (*maas.Machine, error) {
		return client.DeployMachine(ctx, permit, machine.SystemID, request)
	})
	if errors.Is(err, maas.NotFound) {
		err = s.unaddressed(ctx, machine.SystemID, err)
	}
	if err != nil {
		return machine, fmt.Errorf("deploying machine %s: %w", machine.SystemID, err)
	}
	return deployed, nil
}

// unaddressed distinguishes a machine that is gone from one for which an address is reserved that it can't have: MAAS
// returns 404 for both (StaticIPAddressUnavailable in maasserver/exceptions.py).
func (s *Service) unaddressed(ctx context.Context, systemID string, refused error) error {
	answer, is := errors.AsType[*maas.Error](refused)
	if _, err := s.inventory.Read(ctx, systemID); err != nil || !is {
		return refused
	}
	there := *answer
	there.Kind = maas.Unaddressed
	return &there
}
