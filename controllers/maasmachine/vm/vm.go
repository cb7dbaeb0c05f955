// SPDX-License-Identifier: Apache-2.0

// Package vm has the steps of LXD virtual machines: how they are made, and how they are deleted from MAAS and their
// hosts.
package vm

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/internal/states"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// Steps are the steps of one VM during one reconcile.
type Steps struct {
	*life.Steps
	// HostUnreachableTimeout is how long an unreachable host delays the deletion of a VM.
	HostUnreachableTimeout time.Duration

	// begun is a VM that an earlier try made, and could not record; nil if there is none. It was never started.
	begun *lxd.VM
	// noImage is why MAAS can deploy no VM; nil if it can.
	noImage error
	// hostFirst means that the VM is deleted on its host, as far as that could be asked, and that MAAS is to forget it.
	hostFirst bool
	// deletedAt is when its host began to delete it; the zero value: it did not in this reconcile.
	deletedAt time.Time
}

// New returns the steps of one reconcile.
func New(common *life.Steps, hostUnreachableTimeout time.Duration) *Steps {
	return &Steps{Steps: common, HostUnreachableTimeout: hostUnreachableTimeout}
}

// vmMaxAge is how old what a host shows of a VM may be. No event says when it changes: a VM is looked at as often.
const vmMaxAge = time.Minute

// vmOn returns the VM with the host that the machine is on in MAAS, or as recorded.
func vmOn(l *life.Life, m *maas.Machine) lxd.VM {
	recorded := l.Record.Hosts
	if l.Record.Runs != "" {
		recorded = []string{l.Record.Runs}
	}
	return l.Machines.LXD().Locate(l.VM(m.SystemID), m, recorded)
}

// look adds to what MAAS says of a VM that it does not switch what the VM's host shows. A host that can't be asked, or
// has no VM of ours, leaves its power unknown.
func (s *Steps) look(ctx context.Context, l *life.Life) (gone bool) {
	if l.MAAS == nil || l.Record.Runs == "" {
		return false
	}
	now, vm := *l.MAAS, vmOn(l, l.MAAS)
	seen, err := l.Machines.LXD().Observe(ctx, vm, vmMaxAge)
	if err == nil && seen.State == "" {
		var found lxd.Presence
		found, err = l.Machines.LXD().Find(ctx, vm)
		gone = err == nil && found.State == lxd.Gone
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("The host of a VM can't be asked", "host", vm.Host, "problem", err.Error())
	}
	now.PowerState, now.StatusName, now.Pool.Name = seen.Power(), "Deployed", seen.Pool
	l.MAAS = &now
	return gone
}

// lostDevice is for a VM whose device MAAS does not have any more. No VM is replaced because of what MAAS keeps.
func (s *Steps) lostDevice(ctx context.Context, l *life.Life) (life.Outcome, error) {
	vm := vmOn(l, &maas.Machine{SystemID: l.MaasMachine.Spec.SystemID, Device: true})
	found, err := l.Machines.LXD().Find(ctx, vm)
	if err != nil {
		return life.Proceed, err
	}
	if found.State == lxd.Gone {
		return s.ReportState(l, states.VMVanished), nil
	}
	return life.Hold(l.MaasMachine, infrav1.MachineMissingReason,
		"MAAS no longer has the device %s of VM %s, which LXD host %s may still have: reserve the VM's addresses in MAAS, "+
			"which would give them to others, and replace the Machine",
		l.MaasMachine.Spec.SystemID, vm.Hostname, vm.Host), nil
}

// Start starts a VM that was made stopped. Its host is recorded by then: it is started on no other one. The start is
// recorded, too, on the unchanged object: it would start the next VM of the name, were it done when this one is gone.
func (s *Steps) Start(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.Record.Runs == "" {
		return life.Proceed, nil
	}
	if l.MAAS.PowerState == maas.PowerOn && l.Record.Unsettled() == 0 {
		l.Record.Done(record.StartVM)
	}
	if life.WasProvisioned(l.MaasMachine) || l.MAAS.PowerState == maas.PowerOn {
		return life.Proceed, nil
	}
	err := l.Record.OnHost(ctx, record.StartVM, func(ctx context.Context, permit maas.VMPermit) error {
		return l.Machines.LXD().Start(ctx, permit, vmOn(l, l.MAAS))
	})
	if err != nil {
		return life.Proceed, err
	}
	now := *l.MAAS
	now.PowerState, now.StatusName = maas.PowerOn, "Deployed"
	l.MAAS = &now
	return life.Proceed, nil
}

// LookAgain looks at a VM again whose changes no event announces.
func LookAgain(l *life.Life) life.Outcome {
	if l.Record.Runs == "" {
		return life.Proceed
	}
	return report.Retry(vmMaxAge, infrav1.NotReadyReason, "looking at VM %s", l.Identity().Hostname)
}

// Network connects the VM's interfaces, and gives the VM its static address; both must happen before it is deployed.
func (s *Steps) Network(ctx context.Context, l *life.Life) (life.Outcome, error) {
	nics := l.NICs(l.MaasMachine.Status.StaticIP)
	if !life.Deployable(l.MAAS) || machine.Connected(l.MAAS, nics) {
		return life.Proceed, nil
	}
	if out, err := s.Prove(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	return life.Proceed, s.Connect(ctx, l, nics)
}

// Deployed reports that the VM runs.
func (s *Steps) Deployed(_ context.Context, l *life.Life) (life.Outcome, error) {
	noteAddresses(l, l.MAAS)
	if l.MaasMachine.Status.LXDHost == "" {
		l.MaasMachine.Status.LXDHost = vmOn(l, l.MAAS).Host
	}
	report.SetTrue(l.MaasMachine, infrav1.LXDVMDeployedCondition, infrav1.DeployedReason)
	return life.Proceed, nil
}
