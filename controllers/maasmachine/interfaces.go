// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// interfaces makes the interfaces of spec.interfaces, before network links them. How they were is recorded with the
// first call, or, if only MAAS will change them, without one. What another object of ours left on the machine is undone
// first.
func (r *Reconciler) interfaces(ctx context.Context, l *life) (outcome, error) {
	wanted, before := l.Interfaces(), arrangement(l.MaasMachine.Annotations)
	if !deployable(l.maas) || (len(wanted) == 0 && before == nil && !isHost(l)) {
		return proceed, nil
	}
	isOwn := before != nil && before.Owner == l.Mark()
	if isOwn && machine.Arranged(l.maas, wanted) {
		return proceed, nil
	}
	if out, err := r.prove(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	if before != nil && !isOwn {
		return r.undoInterfaces(ctx, l, before, leftAddress(l))
	}
	if len(wanted) == 0 {
		if before = arrangementOf(l, wanted); len(before.Before) > maxArranged {
			return proceed, tooMany(before)
		}
		return proceed, l.record.Write(ctx, func(m client.Object) { annotateArrangement(m, before) })
	}
	now, err := l.Inventory.Read(ctx, l.maas.SystemID) // What is recorded, and compared, must not be old.
	if err != nil {
		return proceed, err
	}
	if l.maas = now; !deployable(now) {
		return report.Retry(report.UnknownRetry, infrav1.DeployingReason,
			"machine %s is %s now, and its interfaces are left as they are", now, now.StatusName), nil
	}
	if before == nil {
		before = arrangementOf(l, wanted)
	}
	if len(before.Before) > maxArranged {
		return proceed, tooMany(before)
	}
	if err := r.note(ctx, l, now); err != nil {
		return proceed, err
	}
	err = r.change(ctx, l, record.Arrange, func(ctx context.Context, permit maas.Permit) (err error) {
		l.maas, err = l.Machines.Arrange(ctx, permit, now, wanted)
		return err
	}, func(m client.Object) { annotateArrangement(m, before) })
	return proceed, err
}

// maxArranged bounds the annotation about the interfaces of a machine: about 100 bytes each, of the 256 KiB of an
// object.
const maxArranged = 500

func tooMany(a *machine.Arrangement) error {
	return &machine.NICError{Message: fmt.Sprintf("is one of %d interfaces that MAAS has for the machine, and they "+
		"could not be restored: "+
		"at most %d can be recorded; delete those in MAAS that it does not have", len(a.Before), maxArranged)}
}

// arrangementOf returns what becomes of the interfaces of a machine that nothing was done to yet.
func arrangementOf(l *life, wanted []machine.WantedInterface) *machine.Arrangement {
	a := machine.NewArrangement(l.Mark(), l.maas, wanted, l.NICs(l.MaasMachine.Status.StaticIP))
	a.Reread = isHost(l)
	return a
}
