// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// Interfaces makes the interfaces of spec.interfaces, before network links them. How they were is recorded with the
// first call, or, if only MAAS will change them, without one. What another object of ours left on the machine is undone
// first.
func (s *Steps) Interfaces(ctx context.Context, l *life.Life) (life.Outcome, error) {
	wanted, before := l.Interfaces(), arrangement(l.MaasMachine.Annotations)
	if !life.Deployable(l.MAAS) || (len(wanted) == 0 && before == nil && !life.IsHost(l)) {
		return life.Proceed, nil
	}
	isOwn := before != nil && before.Owner == l.Mark()
	if isOwn && machine.Arranged(l.MAAS, wanted) {
		return life.Proceed, nil
	}
	if out, err := s.Prove(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	if before != nil && !isOwn {
		return s.undoInterfaces(ctx, l, before, leftAddress(l))
	}
	if len(wanted) == 0 {
		if before = arrangementOf(l, wanted); len(before.Before) > maxArranged {
			return life.Proceed, tooMany(before)
		}
		return life.Proceed, l.Record.Write(ctx, func(m client.Object) { annotateArrangement(m, before) })
	}
	now, err := l.Inventory.Read(ctx, l.MAAS.SystemID) // What is recorded, and compared, must not be old.
	if err != nil {
		return life.Proceed, err
	}
	if l.MAAS = now; !life.Deployable(now) {
		return report.Retry(report.UnknownRetry, infrav1.DeployingReason,
			"machine %s is %s now, and its interfaces are left as they are", now, now.StatusName), nil
	}
	if before == nil {
		before = arrangementOf(l, wanted)
	}
	if len(before.Before) > maxArranged {
		return life.Proceed, tooMany(before)
	}
	if err := s.note(ctx, l, now); err != nil {
		return life.Proceed, err
	}
	err = s.Change(ctx, l, record.Arrange, func(ctx context.Context, permit maas.Permit) (err error) {
		l.MAAS, err = l.Machines.Arrange(ctx, permit, now, wanted)
		return err
	}, func(m client.Object) { annotateArrangement(m, before) })
	return life.Proceed, err
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
func arrangementOf(l *life.Life, wanted []machine.WantedInterface) *machine.Arrangement {
	a := machine.NewArrangement(l.Mark(), l.MAAS, wanted, l.NICs(l.MaasMachine.Status.StaticIP))
	a.Reread = life.IsHost(l)
	return a
}

// Network connects the machine's interfaces, and gives the machine its static address; both must happen before it is
// deployed. An address that another object of ours left is removed first.
func (s *Steps) Network(ctx context.Context, l *life.Life) (life.Outcome, error) {
	nics := l.NICs(l.MaasMachine.Status.StaticIP)
	left := leftAddress(l)
	if !life.Deployable(l.MAAS) || (left == "" && machine.Connected(l.MAAS, nics)) {
		return life.Proceed, nil
	}
	if out, err := s.Prove(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	if left != "" {
		return s.removeAddress(ctx, l, left)
	}
	var also []func(client.Object)
	if address := l.MaasMachine.Status.StaticIP; address != "" {
		if err := s.note(ctx, l, l.MAAS); err != nil {
			return life.Proceed, err
		}
		also = append(also, func(m client.Object) { record.SetAnnotation(m, infrav1.StaticIPAnnotation, address) })
	}
	return life.Proceed, s.Connect(ctx, l, nics, also...)
}
