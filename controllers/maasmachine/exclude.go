// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	inmaas "github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// MAAS keeps the interfaces, the static address and the storage layout of a machine that is released, and lets us undo
// them only when it is back in the pool. So a tag goes on before the release and off after the undo: no manager
// allocates the machine in between.

// exclude keeps a machine from being allocated by other managers until inclusion, if something is left on it that is to be undone.
// It is ours, or nobody's. What MAAS refuses stops nothing: then only this process leaves the machine alone. The error is of Kubernetes,
// or maas.Unavailable, the first time: then the same again may succeed.
func (r *Reconciler) exclude(ctx context.Context, l *life, out *maas.Machine, left machine.Leftover) error {
	if left.On(out) == (machine.Leftover{}) {
		return nil
	}
	id, m := out.SystemID, l.MaasMachine
	if l.record.Excluded == id && inmaas.IsExcluded(out) {
		return nil
	}
	cause := inmaas.Cause{By: l.Identity().AgentName, Why: fmt.Sprintf("its network or storage is being restored (MaasMachine %s/%s)", m.Namespace, m.Name)}
	again := l.record.IsPending(record.Exclude)
	l.record.Excluded = id // Stored with the call.
	err := r.change(ctx, l, record.Exclude, func(ctx context.Context, permit maas.Permit) error {
		return l.Machines.Quarantine.Exclude(ctx, permit, id, cause)
	})
	var answer *maas.Error
	if !errors.As(err, &answer) || (errors.Is(err, maas.Unavailable) && !again) {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Failed to keep other managers from allocating a machine until it is as before", "systemID", id, "error", text.Lines(err))
	return nil
}

// inclusion ends what exclude began, when nothing is left to be undone.
func (r *Reconciler) inclusion(ctx context.Context, l *life) (outcome, error) {
	id, by := l.record.Excluded, l.Identity().AgentName
	if id == "" {
		return proceed, nil
	}
	bequeathed, err := r.bequeaths(l)
	if err == nil && !bequeathed {
		err = l.Machines.Quarantine.Include(ctx, record.TendQuarantines.Permit(), id, by)
	}
	if err != nil && !errors.Is(err, maas.Forbidden) {
		return proceed, err
	}
	return proceed, l.record.Store(ctx, func(d *record.Data) { d.Excluded = "" })
}

// bequeaths reports whether the object goes before it had the machine that was kept for it. What is left on that is undone by the next one, or
// by whoever gives the machine back: the exclusion stays until then.
func (r *Reconciler) bequeaths(l *life) (bool, error) {
	if l.MaasMachine.DeletionTimestamp.IsZero() {
		return false, nil
	}
	cluster, err := r.Records.Open(l.MaasCluster.DeepCopy())
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(cluster.Kept, func(k record.KeptMachine) bool {
		return k.SystemID == l.record.Excluded && k.TakenBy == l.MaasMachine.UID
	}), nil
}

// restoration undoes what is recorded of a machine that is not the object's any more, or never was.
func (r *Reconciler) restoration(ctx context.Context, l *life) (outcome, error) {
	return through(ctx, l, []step{r.storageRestoration, r.inclusion})
}
