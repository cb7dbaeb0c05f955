// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
)

// MarkComposed marks a VM as ours, before it is deleted, that MAAS composed on a VM host when it had some: MAAS would
// delete its machine alone, and the VM would run on.
func (s *Steps) MarkComposed(ctx context.Context, l *life.Life) (life.Outcome, error) {
	err := s.adoptComposed(ctx, l)
	switch unprepared, is := errors.AsType[*lxd.FormerHostError](err); {
	case is && unprepared.LXDHost != "":
		return awaitFormerHost(unprepared), nil
	case lxdhost.KindOf(err) == lxdhost.KindConflict:
		return report.Wait(report.MendRetry, infrav1.MachineNotOursReason, "%s; delete machine %s in MAAS by hand",
			report.Brief(err.Error()), l.MAAS), nil
	case is, lxdhost.KindOf(err) != "":
		return life.Proceed, nil // Whether the VM is gone is verified when MAAS has deleted its machine.
	}
	return life.Proceed, err
}

// awaitFormerHost waits until a person has prepared the LXDHost of a former VM host.
func awaitFormerHost(unprepared *lxd.FormerHostError) life.Outcome {
	return report.Wait(report.MendRetry, infrav1.VMHostsNotSupportedReason,
		"%s; or delete that LXDHost, if its VMs are gone", unprepared)
}

// adoptComposed adopts the VM, and records where it is. It does nothing if MAAS composed no VM, or still has VM hosts.
func (s *Steps) adoptComposed(ctx context.Context, l *life.Life) error {
	if l.MAAS == nil || l.MAAS.Pod != nil {
		return nil
	}
	from, host, err := adoptVM(ctx, l, l.MAAS)
	if err != nil || host == nil {
		return err
	}
	err = l.Record.Store(ctx, func() {
		l.Record.DropHost(from)
		l.Record.AddHost(lxd.HostRef(*host))
	})
	if err == nil {
		l.MaasMachine.Status.LXDHost = host.Name
	}
	return err
}

// adoptVM adopts the VM of a machine on the first of the recorded VM hosts that has it, and returns the reference to
// that and the host as it is now; nil if none has it.
func adoptVM(ctx context.Context, l *life.Life, m *maas.Machine) (from string, host *lxd.Host, err error) {
	recorded := l.Record.Hosts
	if host := l.MaasMachine.Status.LXDHost; host != "" && len(recorded) == 0 { // The record was lost.
		recorded = []string{lxd.HostRef(lxd.Host{Name: host})}
	}
	return l.Machines.LXD().Adopt(ctx, l.VM(m.SystemID), recorded, m.PhysicalAddresses())
}
