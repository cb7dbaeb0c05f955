// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/states"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// vmMaxAge is how old what a host shows of a VM may be. Nothing tells when it changes: a VM is looked at as often.
const vmMaxAge = time.Minute

// vmOn returns the VM with the host that the machine is on in MAAS, or as recorded.
func (l *life) vmOn(m *maas.Machine) lxd.VM {
	recorded := l.record.Hosts
	if l.record.Runs != "" {
		recorded = []string{l.record.Runs}
	}
	return l.Machines.LXD().Locate(l.VM(m.SystemID), m, recorded)
}

// look adds to what MAAS says of a VM that it does not switch what the VM's host shows. A host that can't be asked, or
// has no VM of ours, leaves its power unknown.
func (r *Reconciler) look(ctx context.Context, l *life) (gone bool) {
	if l.maas == nil || l.record.Runs == "" {
		return false
	}
	now, vm := *l.maas, l.vmOn(l.maas)
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
	l.maas = &now
	return gone
}

// lostDevice is for a VM whose device MAAS does not have any more. No VM is replaced because of what MAAS keeps.
func (r *Reconciler) lostDevice(ctx context.Context, l *life) (outcome, error) {
	vm := l.vmOn(&maas.Machine{SystemID: l.MaasMachine.Spec.SystemID, Device: true})
	found, err := l.Machines.LXD().Find(ctx, vm)
	if err != nil {
		return proceed, err
	}
	if found.State == lxd.Gone {
		return r.reportState(l, states.VMVanished), nil
	}
	return hold(l.MaasMachine, infrav1.MachineMissingReason,
		"MAAS no longer has the device %s of VM %s, which LXD host %s may still have: reserve the VM's addresses in MAAS, "+
			"which would give them to others, and replace the Machine",
		l.MaasMachine.Spec.SystemID, vm.Hostname, vm.Host), nil
}

// start starts a VM that was made stopped. Its host is recorded by then: it is started on no other one. The start is
// recorded, too, on the unchanged object: it would start the next VM of the name, were it done when this one is gone.
func (r *Reconciler) start(ctx context.Context, l *life) (outcome, error) {
	if l.record.Runs == "" {
		return proceed, nil
	}
	if l.maas.PowerState == maas.PowerOn && l.record.Unsettled() == 0 {
		l.record.Done(record.StartVM)
	}
	if wasProvisioned(l.MaasMachine) || l.maas.PowerState == maas.PowerOn {
		return proceed, nil
	}
	err := l.record.OnHost(ctx, record.StartVM, func(ctx context.Context, permit maas.VMPermit) error {
		return l.Machines.LXD().Start(ctx, permit, l.vmOn(l.maas))
	})
	if err != nil {
		return proceed, err
	}
	now := *l.maas
	now.PowerState, now.StatusName = maas.PowerOn, "Deployed"
	l.maas = &now
	return proceed, nil
}

// watchVM looks at a VM again whose changes nothing tells.
func (r *Reconciler) watchVM(l *life) outcome {
	if l.record.Runs == "" {
		return proceed
	}
	return report.Retry(vmMaxAge, infrav1.NotReadyReason, "looking at VM %s", l.Identity().Hostname)
}
