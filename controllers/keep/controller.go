// SPDX-License-Identifier: Apache-2.0

package keep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/workers"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/presence"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// Interval is a good Reconciler.Interval.
const Interval = 15 * time.Second

// Reconciler gives machines back that the record of a MaasCluster names and that no Machine will take.
type Reconciler struct {
	reconciler.Base
	// GiveBack gives a machine back; see maasmachine.Reconciler.
	GiveBack func(context.Context, *clusterv1.Cluster, *infrav1.MaasCluster, record.KeptMachine, *record.Cluster) (
		done bool, after time.Duration, err error)
	// Interval is the time between two looks at a MaasCluster for which machines wait.
	Interval time.Duration
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=maasclusters,verbs=list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=maasmachines,verbs=get;list;watch

// SetupWithManager makes the manager run the reconciler.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	setup, limited := workers.Manage(ctx, mgr, "keep", r, options)
	return setup.
		For(&infrav1.MaasCluster{}, builder.WithPredicates(predicate.Or(keptChanged,
			predicate.GenerationChangedPredicate{}))).
		Complete(ctx, limited)
}

// keptChanged drops updates of a MaasCluster that change neither which machines wait nor for whom: what giving them
// back records would begin the next attempt at once.
var keptChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return !equality.Semantic.DeepEqual(waiting(e.ObjectOld), waiting(e.ObjectNew))
}}

// waiting returns the machines that wait, without how far giving them back is.
func waiting(object client.Object) []record.KeptMachine {
	recorded, err := record.OfCluster(object.(*infrav1.MaasCluster))
	if err != nil {
		return nil // The owners of its MaasMachines report it.
	}
	kept := slices.Clone(recorded.Kept)
	for i := range kept {
		kept[i].Giving, kept[i].Reason, kept[i].Message = nil, "", ""
	}
	return kept
}

// Reconcile looks at the machines that wait for Machines of one cluster.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	maasCluster := &infrav1.MaasCluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, maasCluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	rec, err := r.Records.OpenCluster(maasCluster)
	if err != nil || len(rec.Kept) == 0 || r.Ignores(maasCluster) {
		return ctrl.Result{}, err
	}
	cluster, err := clusters.ClusterOf(ctx, r.Client, maasCluster)
	if err == nil && cluster == nil {
		cluster, err = util.GetClusterByName(ctx, r.Client, maasCluster.Namespace, clusters.NameOf(maasCluster))
	}
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading the Cluster: %w", err)
	}
	goes := !maasCluster.DeletionTimestamp.IsZero()
	switch {
	case err != nil && !goes, err == nil && annotations.IsPaused(cluster, maasCluster):
		return ctrl.Result{RequeueAfter: r.Interval}, nil // A Cluster that is not there may be restored later.
	case goes:
		cluster = nil
	}
	original, err := clusters.CopiedFrom(ctx, r.Client, maasCluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	if original != nil {
		return ctrl.Result{}, rec.Store(ctx, func() { rec.Kept = nil }) // They are the original's.
	}
	k := &keeper{Reconciler: r, maasCluster: maasCluster, cluster: cluster, record: rec, missing: map[string]int{},
		after: r.Interval}
	kept := slices.Clone(rec.Kept)
	slices.SortStableFunc(kept, func(a, b record.KeptMachine) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Since.Compare(b.Since.Time))
	})
	for i := range kept {
		if err := k.look(ctx, kept[i]); err != nil { // If it were returned, the others would be put off, too.
			ctrl.LoggerFrom(ctx).Info("Failed to look at a machine that is kept", "machine", kept[i].Hostname,
				"systemID", kept[i].SystemID, "error", text.Lines(err))
		}
	}
	return ctrl.Result{RequeueAfter: k.after}, nil
}

// rank sorts machines that are being taken first: they are for MaasMachines that are there.
func rank(k record.KeptMachine) int {
	if k.TakenBy != "" {
		return 0
	}
	return 1
}

// keeper looks at the machines of one cluster.
type keeper struct {
	*Reconciler
	maasCluster *infrav1.MaasCluster
	cluster     *clusterv1.Cluster // nil if it goes
	record      *record.Cluster
	missing     map[string]int // Machines by owner that no machine is kept for yet
	after       time.Duration  // until the next look
}

// look decides what becomes of a machine.
func (k *keeper) look(ctx context.Context, kept record.KeptMachine) error {
	if kept.TakenBy != "" {
		taker, err := k.taker(ctx, kept)
		switch {
		case err != nil:
			return err
		case taker == nil || (taker.Spec.SystemID != "" && taker.Spec.SystemID != kept.SystemID):
			return k.record.Merge(ctx, func(all *record.KeptMachines) { all.StopTaking(kept.SystemID, kept.TakenBy, false) })
		case taker.Spec.SystemID == kept.SystemID:
			return k.record.Merge(ctx, func(all *record.KeptMachines) { all.Drop(kept.SystemID, kept.TakenBy) })
		}
		return nil // It gets there, or says why not.
	}
	if !kept.GivenBack {
		why, err := k.whyNot(ctx, kept)
		if err != nil || why == "" {
			return err
		}
		given := false
		err = k.record.Merge(ctx, func(all *record.KeptMachines) {
			all.StopTaking(kept.SystemID, "", true)
			now := all.Named(kept.SystemID)
			given = now != nil && now.GivenBack
		})
		if err != nil || !given {
			return err // A MaasMachine takes it.
		}
		k.Tell(k.maasCluster, "KeptMachineGivenBack", "Keep",
			"machine %s (%s) of MaasMachine %s is given back: %s", kept.Hostname, kept.SystemID, kept.Machine, why)
	}
	return k.giveBack(ctx, kept)
}

// whyNot returns why no Machine will take a machine, or "".
func (k *keeper) whyNot(ctx context.Context, kept record.KeptMachine) (string, error) {
	if k.cluster == nil {
		return "the cluster is being deleted", nil
	}
	missing, known := k.missing[kept.For]
	if !known {
		wanted, err := lacking(ctx, k.Client, k.APIReader, k.cluster, kept.For)
		switch {
		case presence.IsUnknown(err): // The time alone ends it.
			ctrl.LoggerFrom(ctx).Info("Machines stay kept for an owner that can't be read", "error", text.Lines(err))
			wanted = math.MaxInt32
		case err != nil:
			return "", err
		}
		missing = wanted - k.taken(kept.For)
	}
	missing--
	k.missing[kept.For] = missing
	switch {
	case missing < 0:
		return kept.For + " makes no Machine for it", nil
	case !k.Clock.Now().Before(kept.Until.Time):
		return "no Machine has taken it in time", nil
	}
	return "", nil
}

// taken returns how many machines are being taken by Machines of an owner.
func (k *keeper) taken(owner string) (n int) {
	for _, other := range k.record.Kept {
		if other.For == owner && other.TakenBy != "" {
			n++
		}
	}
	return n
}

// taker returns the MaasMachine that takes a machine; nil if it is gone.
func (k *keeper) taker(ctx context.Context, kept record.KeptMachine) (*infrav1.MaasMachine, error) {
	machines := &infrav1.MaasMachineList{}
	if err := k.APIReader.List(ctx, machines, client.InNamespace(k.maasCluster.Namespace)); err != nil {
		return nil, fmt.Errorf("looking for the MaasMachine that takes it: %w", err)
	}
	return list.Find(machines.Items, func(m infrav1.MaasMachine) bool { return m.UID == kept.TakenBy }), nil
}

// giveBack gives a machine back, once the MaasMachine that had it is gone.
func (k *keeper) giveBack(ctx context.Context, kept record.KeptMachine) error {
	there, err := k.formerIsThere(ctx, kept)
	if err != nil || there {
		return err
	}
	if k.record, err = k.Records.OpenCluster(k.maasCluster); err != nil {
		return fmt.Errorf("reading the record anew: %w", err)
	}
	done, after, err := k.GiveBack(ctx, k.named(), k.maasCluster, kept, k.record)
	k.sooner(after)
	again, unreadable := k.Records.OpenCluster(k.maasCluster)
	if err != nil || unreadable != nil {
		return errors.Join(err, unreadable)
	}
	if k.record = again; !done {
		return nil
	}
	return k.record.Store(ctx, func() { k.record.GaveBack(kept.SystemID) })
}

// formerIsThere reports whether the MaasMachine that had the machine is still there, and so gives it back itself.
func (k *keeper) formerIsThere(ctx context.Context, kept record.KeptMachine) (bool, error) {
	m, key := &infrav1.MaasMachine{}, client.ObjectKey{Namespace: k.maasCluster.Namespace, Name: kept.Machine}
	there, err := presence.Look(ctx, k.APIReader, clusters.MaasMachineKind, key, m)
	if unknown, is := errors.AsType[*presence.UnknownError](err); is && unknown.IsMissing() {
		k.sooner(unknown.Remaining)
	}
	return there && (m.Spec.SystemID == "" || m.Spec.SystemID == kept.SystemID), err
}

// named returns the Cluster, or one of its name if it is gone.
func (k *keeper) named() *clusterv1.Cluster {
	if k.cluster != nil {
		return k.cluster
	}
	gone := &clusterv1.Cluster{}
	gone.Namespace, gone.Name = k.maasCluster.Namespace, clusters.NameOf(k.maasCluster)
	return gone
}

// sooner looks again after a time, if that is before the next look.
func (k *keeper) sooner(after time.Duration) {
	if after > 0 {
		k.after = min(k.after, after)
	}
}
