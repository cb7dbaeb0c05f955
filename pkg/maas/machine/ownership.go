// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// UndecidedError is for a machine of which MAAS's lists tell neither that it is ours nor that it is not, though MAAS has it.
type UndecidedError struct{ SystemID string }

// Error names the machine.
func (e *UndecidedError) Error() string {
	return fmt.Sprintf("MAAS does not list machine %s, neither with our agent name nor with another, and has it all the same", e.SystemID)
}

// IsOurs reports whether a machine is ours. MAAS's own record of who acquired it decides (GET machines/ with the filters id and agent_name).
// That it was composed for us proves it only while no user has acquired it. Both results are proven: an empty list alone proves nothing. Errors
// are of package maas, NotFound and Forbidden among them, or *UndecidedError.
func (s *Service) IsOurs(ctx context.Context, id Identity, machine *maas.Machine) (bool, error) {
	if machine.Unacquired() {
		if composed, err := s.Composed(ctx, id, machine); composed || (err != nil && !errors.Is(err, maas.Forbidden)) {
			return composed, err
		}
	}
	filter := maas.MachineFilter{SystemIDs: []string{machine.SystemID}, AgentNames: []string{id.AgentName}}
	ours, err := s.inventory.Client().ListMachines(ctx, filter)
	if err != nil {
		return false, fmt.Errorf("asking MAAS who acquired machine %s: %w", machine.SystemID, err)
	}
	if len(ours) == 1 || isStillOurs(id, machine) {
		return true, nil
	}
	return false, s.proveOther(ctx, id, machine.SystemID)
}

// proveOther makes sure that MAAS's record has something else than our agent name for a machine.
func (s *Service) proveOther(ctx context.Context, id Identity, systemID string) error {
	filter := maas.MachineFilter{SystemIDs: []string{systemID}, NotAgentNames: []string{id.AgentName}}
	others, err := s.inventory.Client().ListMachines(ctx, filter)
	if err != nil {
		return fmt.Errorf("asking MAAS who acquired machine %s: %w", systemID, err)
	}
	if len(others) == 1 {
		return nil
	}
	s.inventory.Distrust(systemID)
	if _, err := s.inventory.Client().GetMachine(ctx, systemID); err != nil {
		return fmt.Errorf("asking MAAS who acquired machine %s: %w", systemID, err)
	}
	return &UndecidedError{SystemID: systemID}
}

// hasHostname reports whether a machine is a VM with the hostname that we give.
func hasHostname(id Identity, machine *maas.Machine) bool {
	return id.Hostname != "" && machine.Pod != nil && machine.Hostname == id.Hostname
}

// Composed reports whether a machine is the VM that was composed for this identity, so that it is deleted instead of released. One that was
// renamed, or that MAAS 3.8 has without its VM host, is known by what LXD calls it (GET machines/ op=power_parameters). maas.Forbidden: the
// key's user is no administrator.
func (s *Service) Composed(ctx context.Context, id Identity, machine *maas.Machine) (bool, error) {
	if id.Hostname == "" || hasHostname(id, machine) {
		return id.Hostname != "", nil
	}
	names, err := s.inventory.Client().InstanceNames(ctx, []string{machine.SystemID})
	if err != nil {
		return false, fmt.Errorf("asking what machine %s is called on its VM host: %w", machine.SystemID, err)
	}
	return names[machine.SystemID] == id.Hostname, nil
}

// isStillOurs recognizes a machine whose release failed after MAAS took the agent name off it, and a VM that was marked broken, which begins a
// release that never ends. MAAS takes our annotations off only when the release is done, and no other user can acquire the machine before that.
func isStillOurs(id Identity, machine *maas.Machine) bool {
	broken := machine.Status == maas.StatusBroken && hasHostname(id, machine)
	return (broken || machine.Status == maas.StatusReleasingFailed) && isMarked(id, machine)
}

// isMarked reports whether a machine has the workload annotations of this identity.
func isMarked(id Identity, machine *maas.Machine) bool {
	return machine.WorkloadAnnotations[AnnotationOwner] == id.OwnerID &&
		machine.WorkloadAnnotations[AnnotationMachine] == id.Annotations[AnnotationMachine]
}

// StillOurs reports whether a machine is ours after its release was asked for. MAAS takes the agent name off a machine when its release
// starts, and does not put it back when the machine can't be switched off: its status is then what it was before. Owner and annotations
// stay until the release is done. Only what MAAS has now counts, for since our last look another user may have released the machine and
// taken it; so the machine as it is is returned as well.
func (s *Service) StillOurs(ctx context.Context, id Identity, systemID string) (*maas.Machine, bool, error) {
	machine, err := s.inventory.Client().GetMachine(ctx, systemID)
	if err != nil {
		s.inventory.Distrust(systemID)
		return nil, false, fmt.Errorf("looking again at machine %s: %w", systemID, err)
	}
	s.inventory.Wrote(machine)
	return machine, machine.Owner != "" && isMarked(id, machine), nil
}
