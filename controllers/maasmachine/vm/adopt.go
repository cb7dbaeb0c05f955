// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"

	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/internal/states"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
)

// Lookup reads a VM's machine, or its device, from the inventory, and looks at one that MAAS does not switch.
func (s *Steps) Lookup(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MaasMachine.Spec.SystemID == "" {
		return life.Proceed, nil
	}
	out, err := s.ReadMachine(l, l.Interest())
	switch {
	case err != nil || out.Waits():
		return out, err
	case l.MAAS == nil && l.Record.Runs != "":
		return s.lostDevice(ctx, l)
	case l.MAAS == nil:
		return s.ReportState(l, states.Vanished), nil
	case s.look(ctx, l):
		return s.ReportState(l, states.VMVanished), nil
	}
	return life.Proceed, nil
}

// Composed checks that the machine of a VM's MaasMachine was composed for it. The deletion of any other machine would
// delete its disks.
func (s *Steps) Composed(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MAAS == nil || life.WasProvisioned(l.MaasMachine) {
		return life.Proceed, nil
	}
	composed, err := l.Machines.IsComposed(ctx, l.Identity(), l.MAAS)
	if err != nil || composed {
		return life.Proceed, err
	}
	return report.Wait(report.MendRetry, infrav1.MachineNotOursReason,
		"machine %s (%s) was not composed for this MaasMachine: remove spec.systemID, or use provisioningMode bare-metal "+
			"for a machine of choice",
		l.MAAS.SystemID, l.MAAS.Hostname), nil
}

// DeletionLookup finds the VM, even if it was made but not recorded.
func (s *Steps) DeletionLookup(ctx context.Context, l *life.Life) (life.Outcome, error) {
	// Any user may have written an id into the spec of a VM that was being made.
	made := l.Record.Registers && l.Record.Runs == ""
	if l.MaasMachine.Spec.SystemID != "" && !made {
		interest := inventory.Changing
		if life.ReleaseBegan(l) {
			interest = inventory.Leaving
		}
		out, err := s.ReadMachine(l, interest)
		l.NoteDeployment()
		return out, err
	}
	found, foreign, err := s.find(ctx, l)
	switch {
	case err != nil:
		return life.Proceed, err
	case foreign != nil:
		return s.NotOursAnyMore(ctx, l, foreign)
	case len(found) > 0:
		return life.Proceed, s.adoptOne(ctx, l, found)
	}
	if out := report.Settle(l.Record.Unsettled()); out.Waits() || !l.Record.Registers {
		return out, nil
	}
	l.MAAS, err = l.Machines.LXD().FindDevice(ctx, l.VM(""), l.Mark())
	if guard.Is[*lxd.NameTakenError](err) {
		return life.Proceed, nil // It is not ours.
	}
	return life.Proceed, err
}

// Adoption finds VMs that an earlier attempt made but could not record. It keeps one, and deletes the others.
func (s *Steps) Adoption(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MAAS != nil {
		return life.Proceed, nil
	}
	found, foreign, err := s.find(ctx, l)
	switch {
	case err != nil:
		return life.Proceed, err
	case foreign != nil:
		return report.Wait(report.MendRetry, infrav1.MachineNotOursReason,
			"machine %s has the name %s, and is not ours (MAAS user %q): rename it in MAAS, or delete the Machine",
			foreign.SystemID, foreign.Hostname, foreign.Owner), nil
	case len(found) == 0:
		return report.Settle(l.Record.Unsettled()), nil
	}
	return life.Proceed, s.adoptOne(ctx, l, found)
}

// adoptOne continues with one of the VMs that were found, and deletes the others.
func (s *Steps) adoptOne(ctx context.Context, l *life.Life, found []*maas.Machine) error {
	for _, extra := range found[1:] {
		ctrl.LoggerFrom(ctx).Info("Deleting a VM that was made twice", "systemID", extra.SystemID)
		err := s.deleteVM(ctx, l, vmOn(l, extra), extra)
		l.Inventory.Forget(extra.SystemID)
		if err != nil {
			return err
		}
	}
	return s.Take(ctx, l, found[0], "Adopted", l.Record.Acquired)
}

// find returns the VMs that an earlier attempt made, or another user's machine that has our VM's name.
func (s *Steps) find(ctx context.Context, l *life.Life) (ours []*maas.Machine, foreign *maas.Machine, err error) {
	found, err := l.Machines.Find(ctx, l.Identity())
	if err != nil {
		return found, nil, err
	}
	for _, m := range found {
		isOurs, err := s.isOurVM(ctx, l, m)
		if err != nil {
			return nil, nil, err
		}
		if !isOurs {
			return nil, m, nil
		}
	}
	return found, nil, nil
}

// isOurVM reports whether a machine that has our VM's name is our VM. Any user of MAAS can add a machine of that name,
// and with our VM as what MAAS switches. Until it is acquired, what proves that one is ours which MAAS composed when it
// had VM hosts is that the VM with its MAC addresses is on the host that we chose.
func (s *Steps) isOurVM(ctx context.Context, l *life.Life, m *maas.Machine) (bool, error) {
	if m.Pod != nil || !m.Unacquired() {
		return l.Machines.IsOurs(ctx, l.Identity(), m)
	}
	_, host, err := adoptVM(ctx, l, m)
	none, is := errors.AsType[*lxd.FormerHostError](err)
	if lxdhost.KindOf(err) == lxdhost.KindConflict || (is && none.LXDHost == "") {
		return false, nil
	}
	return host != nil, err
}
