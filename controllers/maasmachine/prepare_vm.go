// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// cutting is the phase in which the commissioning of a VM is cut short. Only in it, Broken is not the end.
const cutting = "cutting-commissioning-short"

// prepared are the states that a VM passes through which MAAS did not compose, before it is claimed.
var prepared = sets.New(maas.StatusNew, maas.StatusCommissioning, maas.StatusFailedCommissioning, maas.StatusBroken, maas.StatusReady)

// preparation makes a VM Ready that MAAS did not compose: it cuts its commissioning short as soon as the VM has booted,
// and partitions its disk. If that is too late, because commissioning is over, MAAS has partitioned the disk.
func (r *Reconciler) preparation(ctx context.Context, l *life) (outcome, error) {
	if l.maas.Pod != nil || wasProvisioned(l.MaasMachine) || !prepared.Has(l.maas.Status) {
		return proceed, nil
	}
	host, err := l.Machines.LXD().HostOf(ctx, l.maas)
	if err != nil || host == nil {
		return proceed, err
	}
	l.MaasMachine.Status.LXDHost = host.Name
	switch l.maas.Status {
	case maas.StatusNew:
		return beingPrepared(l, report.UnknownRetry), l.Machines.Commission(ctx, record.ChangeVM.Permit(), l.maas)
	case maas.StatusCommissioning:
		return r.cutShort(ctx, l, host)
	case maas.StatusFailedCommissioning:
		if !l.Identity().HasAnnotations(l.maas) {
			return proceed, nil
		}
		return r.cutShort(ctx, l, host) // It was stopped for that, and nobody ended its commissioning in time.
	case maas.StatusBroken:
		return r.makeReady(ctx, l)
	}
	return r.partition(ctx, l)
}

// beingPrepared waits until MAAS shows what it was asked for.
func beingPrepared(l *life, after time.Duration) outcome {
	return report.Retry(after, infrav1.CommissioningReason, "VM %s is being prepared", l.maas.SystemID)
}

// cutShort ends the commissioning of a VM that has booted. The VM is stopped first, so that it reports nothing to MAAS
// any more.
func (r *Reconciler) cutShort(ctx context.Context, l *life, host *lxd.Host) (outcome, error) {
	if l.VMSpec().Commission || !machine.HasBooted(l.maas) {
		return proceed, nil
	}
	if out := r.awaitEnd(l); out.Waits() {
		return out, nil
	}
	if !l.Identity().HasAnnotations(l.maas) { // They prove that the machine is ours while it is Broken.
		if err := r.annotate(ctx, l); err != nil {
			return proceed, err
		}
	}
	if err := l.Machines.AddRootDisk(ctx, record.ChangeVM.Permit(), l.maas, l.VMSpec().Disk); err != nil {
		return proceed, err
	}
	vm := l.vm(l.maas.SystemID)
	vm.HostRef = l.Machines.LXD().HostRef(*host)
	err := l.record.OnHost(ctx, record.StopVM, func(ctx context.Context, permit maas.VMPermit) error {
		return l.Machines.LXD().StopVM(ctx, permit, vm)
	})
	if err != nil {
		return proceed, err
	}
	l.record.Enter(cutting, r.Clock.Now())
	err = l.record.Call(ctx, record.EndCommissioning, func(ctx context.Context, permit maas.Permit) (err error) {
		l.maas, err = l.Machines.EndCommissioning(ctx, permit, l.maas)
		return err
	})
	if err != nil || l.maas.Status != maas.StatusBroken {
		return beingPrepared(l, report.UnknownRetry), err
	}
	return r.makeReady(ctx, l)
}

// awaitEnd waits while the outcome of an earlier call that ends the commissioning is not known: MAAS releases a machine
// that the call reaches late, when it is deployed.
func (r *Reconciler) awaitEnd(l *life) outcome {
	if !l.record.IsPending(record.EndCommissioning) {
		return proceed
	}
	if left := l.record.Unsettled(); left > 0 {
		return report.Wait(min(left, report.CapacityRetry), infrav1.MAASUnavailableReason, "%s", record.LostRequest)
	}
	l.record.Done(record.EndCommissioning)
	return proceed
}

// makeReady makes the machine Ready again whose commissioning was cut short.
func (r *Reconciler) makeReady(ctx context.Context, l *life) (outcome, error) {
	if !l.record.In(cutting) || !l.Identity().HasAnnotations(l.maas) {
		return proceed, nil // Marked broken by a person.
	}
	l.record.Done(record.EndCommissioning)
	ready, err := l.Machines.MakeReady(ctx, record.ChangeVM.Permit(), l.maas)
	if err != nil {
		return proceed, err
	}
	l.maas = ready
	return r.partition(ctx, l)
}

// partition partitions the disk of a Ready VM, unless MAAS did that at the end of commissioning.
func (r *Reconciler) partition(ctx context.Context, l *life) (outcome, error) {
	if out := r.awaitEnd(l); out.Waits() || machine.IsPartitioned(l.maas) {
		return out, nil
	}
	partitioned, err := l.Machines.Partition(ctx, record.ChangeVM.Permit(), l.maas)
	if err != nil {
		return proceed, err
	}
	l.maas = partitioned
	return proceed, nil
}

// vm returns the machine's VM as package lxd knows it.
func (l *life) vm(systemID string) lxd.VM {
	return lxd.VM{SystemID: systemID, Hostname: l.Identity().Hostname, Namespace: l.MaasMachine.Namespace, Marks: l.Marks()}
}

// vmOn is vm, with the host that the machine is on in MAAS, or as recorded.
func (l *life) vmOn(ctx context.Context, m *maas.Machine) (lxd.VM, error) {
	return l.Machines.LXD().Locate(ctx, l.vm(m.SystemID), m, l.record.Hosts)
}
