// SPDX-License-Identifier: Apache-2.0

package maascluster

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
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
	if !blocksMove(maasCluster) {
		marks[clusterctlv1.BlockMoveAnnotation] = ""
	}
	if len(marks) == 0 {
		return nil, nil
	}
	// Locked: a cache that lags behind our own write must not make a second owner id.
	err := objects.PatchLocked(ctx, r.Client, maasCluster, func(c *infrav1.MaasCluster) {
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		maps.Copy(c.Annotations, marks)
	})
	return nil, err
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
