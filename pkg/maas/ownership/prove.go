// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"errors"
	"fmt"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
)

// Prover asks MAAS who owns a machine.
type Prover struct{ inventory *inventory.Inventory }

// NewProver returns a Prover for the machines of one MAAS.
func NewProver(inventory *inventory.Inventory) *Prover { return &Prover{inventory: inventory} }

// UndecidedError is for a machine that MAAS has, but whose lists show neither that it is ours nor that it is not.
type UndecidedError struct{ SystemID string }

// Error names the machine.
func (e *UndecidedError) Error() string {
	return fmt.Sprintf("MAAS has machine %s, but lists it neither with our agent name nor without it", e.SystemID)
}

// IsOurs reports whether a machine is ours, by MAAS's own record of who acquired it (GET machines/ with the filters id
// and agent_name). That it was composed for us proves it only while no user has acquired it. Both results are proven:
// an empty list alone proves nothing. Errors are of package maas, NotFound and Forbidden among them, or
// *UndecidedError.
//
// A device is ours by its description, which the call that made it has set, once its id is ours: MAAS gives none twice.
func (p *Prover) IsOurs(ctx context.Context, id Identity, machine *maas.Machine) (bool, error) {
	if machine.Device {
		return id.Hostname != "" && machine.Description == id.AgentName, nil
	}
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
	if id.isAnnotated(machine) && mayBeRestored(machine) {
		if unnamed, err := p.isUnnamed(ctx, id, machine.SystemID); err != nil || unnamed {
			return unnamed, err
		}
	}
	return false, p.proveOther(ctx, id, machine.SystemID)
}

// isUnnamed reports whether a machine is ours and lacks the agent name alone: MAAS removes that when a user releases
// the machine, and restores only the status when it can't switch it off. Our user has it still, who alone may annotate
// it, and MAAS removes the annotations before a user can acquire it.
func (p *Prover) isUnnamed(ctx context.Context, id Identity, systemID string) (bool, error) {
	filter := maas.MachineFilter{SystemIDs: []string{systemID}, AgentNames: []string{""}}
	unnamed, err := p.inventory.Client().ListMachines(ctx, filter)
	if err != nil {
		return false, fmt.Errorf("asking MAAS whether machine %s lacks an agent name: %w", systemID, err)
	}
	if len(unnamed) != 1 || !id.isAnnotated(unnamed[0]) || !mayBeRestored(unnamed[0]) {
		return false, nil
	}
	user, err := p.inventory.Client().WhoAmI(ctx)
	if err != nil {
		return false, fmt.Errorf("asking MAAS whose machine %s is: %w", systemID, err)
	}
	return unnamed[0].Owner == user.Username, nil
}

// proveOther verifies that MAAS records another agent name than ours for a machine.
func (p *Prover) proveOther(ctx context.Context, id Identity, systemID string) error {
	filter := maas.MachineFilter{SystemIDs: []string{systemID}, NotAgentNames: []string{id.AgentName}}
	others, err := p.inventory.Client().ListMachines(ctx, filter)
	if err != nil {
		return fmt.Errorf("asking MAAS who acquired machine %s: %w", systemID, err)
	}
	if len(others) == 1 {
		return nil
	}
	if _, err := p.inventory.Read(ctx, systemID); err != nil {
		return fmt.Errorf("asking MAAS who acquired machine %s: %w", systemID, err)
	}
	return &UndecidedError{SystemID: systemID}
}

// IsComposed reports whether a machine is the VM that was composed for this identity, which is deleted instead of
// released. A VM that was renamed, or that MAAS 4.0 has without its VM host, is identified by its name in LXD (GET
// machines/ op=power_parameters). A device may have been renamed, or have got another description, but not both.
// maas.Forbidden: the key's user may not read these.
func (p *Prover) IsComposed(ctx context.Context, id Identity, machine *maas.Machine) (bool, error) {
	if machine.Device {
		return id.Hostname != "" && (machine.Description == id.AgentName || machine.Hostname == id.Hostname), nil
	}
	if id.Hostname == "" || HasHostname(machine, id.Hostname) {
		return id.Hostname != "", nil
	}
	names, err := p.inventory.Client().InstanceNames(ctx, []string{machine.SystemID})
	if err != nil {
		return false, fmt.Errorf("reading the name of machine %s on its VM host: %w", machine.SystemID, err)
	}
	return names[machine.SystemID] == id.Hostname, nil
}

// IsOursInRelease reports whether a machine is ours after its release was requested. MAAS removes the agent name when
// the release starts, and does not restore it when the machine can't be switched off: the machine then returns to its
// earlier status. Owner and annotations stay until the release is done. The machine is read from MAAS and returned,
// because another user may have released and taken it since the last poll.
func (p *Prover) IsOursInRelease(ctx context.Context, id Identity, systemID string) (*maas.Machine, bool, error) {
	machine, err := p.inventory.Read(ctx, systemID)
	if err != nil {
		return nil, false, fmt.Errorf("reading machine %s again: %w", systemID, err)
	}
	return machine, machine.Owner != "" && id.isAnnotated(machine), nil
}
