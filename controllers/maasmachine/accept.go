// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
)

// A machine that MAAS gave is ours from then on, and spec.systemID names it for ever. So it is accepted first.

// acceptance goes on with the machine that MAAS gave, or gives it back if it can't become this one.
func (r *Reconciler) acceptance(ctx context.Context, l *life) (outcome, error) {
	defer l.leave()
	m := l.bid.given
	l.bid.given = nil
	switch {
	case m == nil:
		return proceed, nil
	case m.Pod != nil: // The next try knows the host.
		return r.giveBack(ctx, l, m, report.Retry(report.UnknownRetry, infrav1.NoMachineAvailableReason,
			"no machine fitted, and MAAS made VM %s on the new VM host %s instead; it is given back", m.Hostname,
			m.HostName()))
	case hasOthersStorage(l, m):
		return r.returnMachine(ctx, l, m)
	case deployable(m) && whyUnsuited(l, m) != "":
		l.Machines.MeetUnsuited(m) // It is left out for a while.
		return r.giveBack(ctx, l, m, report.Retry(report.UnknownRetry, infrav1.NoMachineAvailableReason,
			"machine %s %s; it is given back", m, whyUnsuited(l, m)))
	}
	how := "Allocated"
	if l.bid.adopted {
		how = "Adopted"
	}
	if err := r.acquired(ctx, l, m, how); err != nil || len(l.bid.extra) == 0 {
		return proceed, err
	}
	return report.Retry(time.Second, infrav1.NotReadyReason, "MAAS has acquired more machines for this object, which are "+
		"given back: %s", text.List(l.bid.extra, maxSkipped)), nil
}

// acquired continues with a machine that is proven to be ours.
func (r *Reconciler) acquired(ctx context.Context, l *life, m *maas.Machine, how string) error {
	l.maas, l.proven = m, true
	if l.leftover == (machine.Leftover{}) {
		l.leftover = l.Machines.LeftOn(m, l.Mark())
	}
	l.Inventory.Track(m)
	r.Tell(l.MaasMachine, how, "Acquire", "machine %s in zone %s", m, m.Zone.Name)
	r.tellDataDisks(l)
	return r.store(ctx, l, m.SystemID, "")
}

// store records the machine's id at once: from here on it can't be lost. runs is the host of a VM that MAAS does not
// switch; it is recorded with the id of the VM's device, and with no other.
func (r *Reconciler) store(ctx context.Context, l *life, systemID, runs string) error {
	return l.record.Store(ctx, func() {
		l.acquiredExtra()
		l.record.Lost, l.record.Runs = "", runs
	}, l.recordOwner, func(m client.Object) {
		m.(*infrav1.MaasMachine).Spec.SystemID = systemID
	}, l.recordLeftover)
}

// giveBack records that bare metal which was acquired is not used, and returns why; unused gives it back next. When its
// release has begun, nothing in MAAS leads from the object to the machine.
func (r *Reconciler) giveBack(ctx context.Context, l *life, m *maas.Machine, why outcome) (outcome, error) {
	l.bid.extra = append(l.bid.extra, m.SystemID)
	return why.Within(time.Second), l.record.Store(ctx, l.acquiredExtra)
}

// acquiredExtra records all machines that MAAS gave the object and that it does not use, in place of the requests that
// acquired them.
func (l *life) acquiredExtra() {
	l.record.Acquired()
	l.record.Unused = sets.List(sets.New(l.record.Unused...).Insert(l.bid.extra...))
}
