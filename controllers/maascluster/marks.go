// SPDX-License-Identifier: Apache-2.0

package maascluster

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

const (
	// moveBlockedReason is the reason of the event on a cluster that `clusterctl move` has to wait for.
	moveBlockedReason = "MoveBlocked"
	// stoppedRetry is the interval of checks whether the reconcilers have stopped working on the machines of a paused
	// cluster.
	stoppedRetry = time.Second
)

// ensureMarks stores the owner id, which all marks of this cluster in MAAS contain, and the annotation that blocks
// `clusterctl move`. Both must be stored before MAAS is changed. The owner id is made once: ensureMarks returns a
// problem if it was lost.
func (r *Reconciler) ensureMarks(
	ctx context.Context, maasCluster *infrav1.MaasCluster, machines []infrav1.MaasMachine,
) (*report.Problem, error) {
	marks := map[string]string{}
	switch id := maasCluster.Annotations[infrav1.OwnerIDAnnotation]; {
	case id == "":
		p, err := r.lostOwnerID(ctx, maasCluster, machines)
		if err != nil || p != nil {
			return p, err
		}
		marks[infrav1.OwnerIDAnnotation] = rand.String(maas.OwnerIDLength)
	case !maas.ValidOwnerID(id):
		return clusters.OwnerIDInvalid(), nil
	}
	return nil, r.mark(ctx, maasCluster, marks)
}

// mark stores annotations, and the one that blocks `clusterctl move`.
func (r *Reconciler) mark(ctx context.Context, maasCluster *infrav1.MaasCluster, marks map[string]string) error {
	if !metav1.HasAnnotation(maasCluster.ObjectMeta, clusterctlv1.BlockMoveAnnotation) {
		marks[clusterctlv1.BlockMoveAnnotation] = ""
	}
	if len(marks) == 0 {
		return nil
	}
	// Locked: a cache that lags behind our own write must not make a second owner id.
	return objects.PatchLocked(ctx, r.Client, maasCluster, func(c *infrav1.MaasCluster) {
		for key, value := range marks {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, key, value)
		}
	})
}

// lostOwnerID returns a problem if the MaasCluster had an owner id before: with a new one, its machines in MAAS would
// not be found.
func (r *Reconciler) lostOwnerID(
	ctx context.Context, c *infrav1.MaasCluster, machines []infrav1.MaasMachine,
) (*report.Problem, error) {
	for i := range machines {
		id := machines[i].Annotations[infrav1.OwnerIDAnnotation]
		original, err := clusters.OwnedElsewhere(ctx, r.Client, c, id)
		if err != nil {
			return nil, err
		}
		if original == nil && clusters.WasAskedFor(&machines[i]) {
			return clusters.OwnerIDLost(c, id), nil
		}
	}
	if ptr.Deref(c.Status.Initialization.Provisioned, false) {
		return clusters.OwnerIDLost(c, ""), nil
	}
	return nil, nil
}

// allowMove unblocks `clusterctl move` for a paused cluster once nothing is being done for it here any more. clusterctl
// lists the objects before it pauses the cluster, and moves each one as if it were not being deleted: a machine created
// since would be lost, and a machine being deleted would come back. Both block the move, until clusterctl gives up and
// unpauses the cluster. An event names them, once. The API server has the last word: the cache may show the pause
// before it shows that a machine is being deleted, or is worked on again.
func (r *Reconciler) allowMove(
	ctx context.Context, cluster *clusterv1.Cluster, maasCluster *infrav1.MaasCluster,
) (ctrl.Result, error) {
	if !metav1.HasAnnotation(maasCluster.ObjectMeta, clusterctlv1.BlockMoveAnnotation) {
		return ctrl.Result{}, nil
	}
	machines, err := clusters.MachinesOf(ctx, r.Client, cluster, maasCluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	if after := r.blockMove(maasCluster, machines); after > 0 {
		return ctrl.Result{RequeueAfter: after}, nil
	}
	if machines, err = r.machinesNow(ctx, cluster, maasCluster); err != nil {
		return ctrl.Result{}, err
	}
	if after := r.blockMove(maasCluster, machines); after > 0 {
		return ctrl.Result{RequeueAfter: after}, nil
	}
	return ctrl.Result{}, objects.PatchNow(ctx, r.Client, maasCluster, func(c *infrav1.MaasCluster) {
		delete(c.Annotations, clusterctlv1.BlockMoveAnnotation)
	})
}

// blockMove returns when to look again whether the machines let their cluster be moved; 0 if they do.
func (r *Reconciler) blockMove(maasCluster *infrav1.MaasCluster, machines []infrav1.MaasMachine) time.Duration {
	if names := onTheirWay(machines); len(names) > 0 {
		if r.toldBlocked.First(maasCluster) {
			r.Tell(maasCluster, moveBlockedReason, "Pause",
				"the cluster can't be moved while machines come or go (%s): unpause the Cluster, and pause or move it when they "+
					"have", text.List(names, maxNamed))
		}
		return report.SafetyRetry
	}
	if slices.ContainsFunc(machines, r.isBusy) {
		return stoppedRetry
	}
	return 0
}

// onTheirWay names the machines that are being created or deleted.
func onTheirWay(machines []infrav1.MaasMachine) (names []string) {
	for i := range machines {
		if m := &machines[i]; m.Spec.ProviderID == "" || !m.DeletionTimestamp.IsZero() {
			names = append(names, m.Name)
		}
	}
	slices.Sort(names)
	return names
}

// isBusy reports whether a machine's reconciler has not reported the pause yet: a call to MAAS may still be under way.
// It reconciles one machine only once at a time.
func (r *Reconciler) isBusy(m infrav1.MaasMachine) bool {
	return objects.Watched(&m, r.WatchFilter) && controllerutil.ContainsFinalizer(&m, infrav1.MachineFinalizer) &&
		!conditions.IsTrue(&m, clusterv1.PausedCondition)
}
