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
func (s *Service) Release(
	ctx context.Context, permit maas.ReleasePermit, machine *maas.Machine, erase maas.Erase,
) error {
	return s.change(machine, "releasing", func(client *maas.Client) (*maas.Machine, error) {
		return client.ReleaseMachine(ctx, permit, machine.SystemID, maas.ReleaseParams{Erase: erase, Comment: comment})
	})
}

// SwitchOff switches a machine off; the power state follows later.
func (s *Service) SwitchOff(ctx context.Context, permit maas.Permit, machine *maas.Machine) error {
	return s.change(machine, "switching off", func(client *maas.Client) (*maas.Machine, error) {
		return client.PowerOffMachine(ctx, permit, machine.SystemID, comment)
	})
}

// RemoveAddress removes a static address from a machine that is ours and not deployed, and makes its link an automatic
// one (op=link_subnet): MAAS keeps static links on release, and the address would stay taken.
func (s *Service) RemoveAddress(ctx context.Context, permit maas.Permit, machine *maas.Machine, address string) error {
	if err := s.removeStatic(ctx, permit, machine, address); err != nil {
		return fmt.Errorf("removing the address %s from machine %s: %w", address, machine.SystemID, err)
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
	return s.change(machine, "aborting the operation of", func(client *maas.Client) (*maas.Machine, error) {
		return client.AbortMachine(ctx, permit, machine.SystemID, comment)
	})
}

// ExitRescueMode brings the machine out of rescue mode. maas.Conflict: it is no longer in it.
func (s *Service) ExitRescueMode(ctx context.Context, permit maas.Permit, machine *maas.Machine) error {
	return s.change(machine, "ending the rescue mode of", func(client *maas.Client) (*maas.Machine, error) {
		return client.ExitRescueMode(ctx, permit, machine.SystemID)
	})
}

// Test runs hardware tests on the machine. maas.Invalid: its state, a script or a parameter does not allow it.
func (s *Service) Test(ctx context.Context, permit maas.Permit, machine *maas.Machine, p maas.TestParams) error {
	return s.change(machine, "testing the hardware of", func(client *maas.Client) (*maas.Machine, error) {
		return client.StartTests(ctx, permit, machine.SystemID, p)
	})
}

// MarkBroken brings a machine that failed its hardware tests to a state from which MAAS releases it.
func (s *Service) MarkBroken(ctx context.Context, permit maas.Permit, machine *maas.Machine) error {
	return s.change(machine, "marking as broken", func(client *maas.Client) (*maas.Machine, error) {
		return client.MarkMachineBroken(ctx, permit, machine.SystemID, comment)
	})
}

// change makes a call that changes a machine. doing goes before "machine ID" in an error.
func (s *Service) change(machine *maas.Machine, doing string, call func(*maas.Client) (*maas.Machine, error)) error {
	if _, err := s.inventory.Change(machine.SystemID, call); err != nil {
		return fmt.Errorf("%s machine %s: %w", doing, machine.SystemID, err)
	}
	return nil
}
