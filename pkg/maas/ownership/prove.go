// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"errors"
	"fmt"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
)

// Prover asks MAAS whose a machine is.
type Prover struct{ inventory *inventory.Inventory }

// NewProver returns a Prover for the machines of one MAAS.
func NewProver(inventory *inventory.Inventory) *Prover { return &Prover{inventory: inventory} }

// UndecidedError is for a machine of which MAAS's lists tell neither that it is ours nor that it is not, though MAAS has it.
type UndecidedError struct{ SystemID string }

// Error names the machine.
func (e *UndecidedError) Error() string {
	return fmt.Sprintf("MAAS does not list machine %s, neither with our agent name nor with another, and has it all the same", e.SystemID)
}

// IsOurs reports whether a machine is ours. MAAS's own record of who acquired it decides (GET machines/ with the filters id and agent_name).
// That it was composed for us proves it only while no user has acquired it. Both results are proven: an empty list alone proves nothing. Errors
// are of package maas, NotFound and Forbidden among them, or *UndecidedError.
func (p *Prover) IsOurs(ctx context.Context, id Identity, machine *maas.Machine) (bool, error) {
	if machine.Unacquired() {
		if composed, err := p.IsComposed(ctx, id, machine); composed || (err != nil && !errors.Is(err, maas.Forbidden)) {
			return composed, err
		}
	}
	filter := maas.MachineFilter{SystemIDs: []string{machine.SystemID}, AgentNames: []string{id.AgentName}}
	ours, err := p.inventory.Client().ListMachines(ctx, filter)
	if err != nil {
		return false, fmt.Errorf("asking MAAS who acquired machine %s: %w", machine.SystemID, err)
	}
	if len(ours) == 1 || (ProvenByAnnotations(machine, id.Hostname) && id.isAnnotated(machine)) {
		return true, nil
	}
	return false, p.proveOther(ctx, id, machine.SystemID)
}

// proveOther makes sure that MAAS's record has something else than our agent name for a machine.
func (p *Prover) proveOther(ctx context.Context, id Identity, systemID string) error {
	filter := maas.MachineFilter{SystemIDs: []string{systemID}, NotAgentNames: []string{id.AgentName}}
	others, err := p.inventory.Client().ListMachines(ctx, filter)
	if err != nil {
		return fmt.Errorf("asking MAAS who acquired machine %s: %w", systemID, err)
	}
	if len(others) == 1 {
		return nil
	}
	p.inventory.Distrust(systemID)
	if _, err := p.inventory.Client().GetMachine(ctx, systemID); err != nil {
		return fmt.Errorf("asking MAAS who acquired machine %s: %w", systemID, err)
	}
	return &UndecidedError{SystemID: systemID}
}

// IsComposed reports whether a machine is the VM that was composed for this identity, so that it is deleted instead of released. One that was
// renamed, or that MAAS 3.8 has without its VM host, is known by what LXD calls it (GET machines/ op=power_parameters). maas.Forbidden: the
// key's user is no administrator.
func (p *Prover) IsComposed(ctx context.Context, id Identity, machine *maas.Machine) (bool, error) {
	if id.Hostname == "" || HasHostname(machine, id.Hostname) {
		return id.Hostname != "", nil
	}
	names, err := p.inventory.Client().InstanceNames(ctx, []string{machine.SystemID})
	if err != nil {
		return false, fmt.Errorf("asking what machine %s is called on its VM host: %w", machine.SystemID, err)
	}
	return names[machine.SystemID] == id.Hostname, nil
}

// IsOursInRelease reports whether a machine is ours after its release was asked for. MAAS takes the agent name off a machine when its release
// starts, and does not put it back when the machine can't be switched off: its status is then what it was before. Owner and annotations
// stay until the release is done. Only what MAAS has now counts, for since our last look another user may have released the machine and
// taken it; so the machine as it is is returned as well.
func (p *Prover) IsOursInRelease(ctx context.Context, id Identity, systemID string) (*maas.Machine, bool, error) {
	machine, err := p.inventory.Client().GetMachine(ctx, systemID)
	if err != nil {
		p.inventory.Distrust(systemID)
		return nil, false, fmt.Errorf("looking again at machine %s: %w", systemID, err)
	}
	p.inventory.Wrote(machine)
	return machine, machine.Owner != "" && id.isAnnotated(machine), nil
}
