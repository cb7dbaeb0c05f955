// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Release releases a bare-metal machine to the pool, and erases its disks if requested. maas.Conflict: the state does
// not allow it.
func (s *Service) Release(ctx context.Context, permit maas.Permit, machine *maas.Machine, erase maas.Erase) error {
	released, err := s.inventory.Client().ReleaseMachine(ctx, permit, machine.SystemID, maas.ReleaseParams{Erase: erase, Comment: comment})
	if err != nil {
		s.inventory.Distrust(machine.SystemID)
		return fmt.Errorf("releasing machine %s: %w", machine.SystemID, err)
	}
	s.inventory.Wrote(released)
	return nil
}

// RestoreNetwork removes a static address from a machine that is back in the pool: MAAS keeps static links on release,
// and the address would stay taken. MAAS also changes the links of allocated machines (api/interfaces.py:
// ALLOWED_STATES), so the machine is read again right before. RestoreNetwork returns false and changes nothing if
// another user has taken the machine since: the address is theirs then.
func (s *Service) RestoreNetwork(ctx context.Context, permit maas.Permit, systemID, address string) (bool, error) {
	machine, err := s.inventory.Client().GetMachine(ctx, systemID)
	if err != nil {
		s.inventory.Distrust(systemID)
		return false, fmt.Errorf("reading machine %s again: %w", systemID, err)
	}
	s.inventory.Wrote(machine)
	if !isFree(machine) || !HasAddress(machine, address) {
		return isFree(machine), nil
	}
	err = s.TakeOff(ctx, permit, machine, address)
	return err == nil, err
}

// TakeOff removes a static address from a machine that is acquired and not deployed, and makes its link an automatic
// one (op=link_subnet).
func (s *Service) TakeOff(ctx context.Context, permit maas.Permit, machine *maas.Machine, address string) error {
	if err := s.takeBack(ctx, permit, machine, address); err != nil {
		s.inventory.Distrust(machine.SystemID)
		return fmt.Errorf("returning the address %s of machine %s: %w", address, machine.SystemID, err)
	}
	return nil
}

var errNoSubnet = errors.New("MAAS does not show its subnet")

// isFree reports whether a machine is in the pool, where any user may take it.
func isFree(machine *maas.Machine) bool {
	return machine.Owner == "" && (machine.Status == maas.StatusReady || machine.Status == maas.StatusNew)
}

// Abort stops the machine's current operation. maas.Conflict: it is already done.
func (s *Service) Abort(ctx context.Context, permit maas.Permit, machine *maas.Machine) error {
	aborted, err := s.inventory.Client().AbortMachine(ctx, permit, machine.SystemID, comment)
	return s.wrote(machine, aborted, err, "aborting the operation of")
}

// ExitRescueMode brings the machine out of rescue mode. maas.Conflict: it is no longer in it.
func (s *Service) ExitRescueMode(ctx context.Context, permit maas.Permit, machine *maas.Machine) error {
	exiting, err := s.inventory.Client().ExitRescueMode(ctx, permit, machine.SystemID)
	return s.wrote(machine, exiting, err, "ending the rescue mode of")
}

// wrote passes the result of a call that changes a machine to the inventory.
func (s *Service) wrote(machine, response *maas.Machine, err error, doing string) error {
	if err != nil {
		s.inventory.Distrust(machine.SystemID)
		return fmt.Errorf("%s machine %s: %w", doing, machine.SystemID, err)
	}
	s.inventory.Wrote(response)
	return nil
}
