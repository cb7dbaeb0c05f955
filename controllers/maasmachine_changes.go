// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// change has MAAS change the machine. A change of bare metal is recorded, together with what also changes in the object: MAAS may go on with a
// call after the client stopped waiting for the response, and the machine may be back in the pool by then, or another user's.
func (r *MaasMachineReconciler) change(
	ctx context.Context, l *life, op record.Op, do func(context.Context, maas.Permit) error, also ...func(client.Object),
) error {
	if l.IsLXD() && !l.released {
		return do(ctx, record.ChangeVM.Permit())
	}
	return l.record.Call(ctx, op, do, also...)
}

// wasNotComposed reports whether a compose that failed certainly left no VM on the host. MAAS has the host make it before it is done with its own
// part: what it refuses or rolls back after that stays on the host (models/bmc.py: create_machine).
func wasNotComposed(err error) bool {
	var later *lxd.LaterError
	if errors.As(err, &later) || maas.NotSent(err) || maas.InvalidField(err, "hostname") {
		return true
	}
	return slices.ContainsFunc([]maas.Kind{maas.Unauthorized, maas.Forbidden, maas.NotFound, maas.Gone}, func(kind maas.Kind) bool { return errors.Is(err, kind) })
}
