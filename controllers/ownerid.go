// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// ensureMarks writes the mark that everything of this cluster in MAAS is found by, and that `clusterctl move` has to wait. Both must be
// stored before MAAS is changed. The owner id is made once: a problem is returned where it was lost.
func (r *MaasClusterReconciler) ensureMarks(ctx context.Context, maasCluster *infrav1.MaasCluster, machines []infrav1.MaasMachine) (*problem, error) {
	marks := map[string]string{}
	switch id := maasCluster.Annotations[infrav1.OwnerIDAnnotation]; {
	case id == "":
		p, err := r.lostOwnerID(ctx, maasCluster, machines)
		if err != nil || p != nil {
			return p, err
		}
		marks[infrav1.OwnerIDAnnotation] = rand.String(maas.OwnerIDLength)
	case !maas.ValidOwnerID(id):
		return invalidOwnerID(), nil
	}
	if !blocksMove(maasCluster) {
		marks[clusterctlv1.BlockMoveAnnotation] = ""
	}
	if len(marks) == 0 {
		return nil, nil
	}
	// Locked: a cache that lags behind our own write must not make a second owner id.
	err := patchLocked(ctx, r.Client, maasCluster, func(c *infrav1.MaasCluster) {
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		maps.Copy(c.Annotations, marks)
	})
	return nil, err
}

// lostOwnerID returns a problem if the MaasCluster had an owner id before: what belongs to it in MAAS would not be found by a new one.
func (r *MaasClusterReconciler) lostOwnerID(ctx context.Context, c *infrav1.MaasCluster, machines []infrav1.MaasMachine) (*problem, error) {
	for i := range machines {
		id := machines[i].Annotations[infrav1.OwnerIDAnnotation]
		original, err := ownedElsewhere(ctx, r.Client, c, id)
		if err != nil {
			return nil, err
		}
		if original == nil && wasAskedFor(&machines[i]) {
			return lostOwnerID(c, id), nil
		}
	}
	if ptr.Deref(c.Status.Initialization.Provisioned, false) {
		return lostOwnerID(c, ""), nil
	}
	return nil, nil
}

// lostOwnerID is what is said of a MaasCluster whose owner id is gone or was changed, and of its machines. id is the one that it had, or "".
func lostOwnerID(c *infrav1.MaasCluster, id string) *problem {
	was := cmp.Or(id, "what the workload annotation "+ownership.AnnotationOwner+" of its machines in MAAS says")
	return &problem{reason: infrav1.OwnerIDLostReason, retryAfter: mendRetry, message: fmt.Sprintf(
		"the annotation %s of MaasCluster %s, which proves what is ours in MAAS, is gone or was changed: set it back to %s", infrav1.OwnerIDAnnotation, c.Name, was)}
}

func invalidOwnerID() *problem {
	return &problem{reason: infrav1.OwnerIDInvalidReason, retryAfter: mendRetry, message: fmt.Sprintf(
		"the annotation %s of the MaasCluster must be %d characters of a-z and 0-9: correct it, or remove it to have one made", infrav1.OwnerIDAnnotation, maas.OwnerIDLength)}
}

// wasAskedFor reports whether MAAS was asked for a machine. A system id alone may be the user's choice.
func wasAskedFor(m *infrav1.MaasMachine) bool {
	recorded, err := record.Of(m)
	asked := err != nil || recorded.MayAcquire() || len(recorded.Hosts) > 0
	return asked || m.Annotations[infrav1.OwnerIDAnnotation] != "" || m.Spec.ProviderID != ""
}

// ownerProblem is why it can't be proven what in MAAS belongs to a machine; nil where it can.
func ownerProblem(m *owners) *problem {
	id, noted := m.maasCluster.Annotations[infrav1.OwnerIDAnnotation], m.maasMachine.Annotations[infrav1.OwnerIDAnnotation]
	switch {
	case id != "" && !maas.ValidOwnerID(id):
		return invalidOwnerID()
	case noted != "" && noted != id, id == "" && wasAskedFor(m.maasMachine):
		return lostOwnerID(m.maasCluster, noted)
	}
	return nil
}

// ownedElsewhere returns another MaasCluster that has an owner id, the oldest one, or nil.
func ownedElsewhere(ctx context.Context, reader client.Reader, c *infrav1.MaasCluster, id string) (oldest *infrav1.MaasCluster, err error) {
	if id == "" {
		return nil, nil
	}
	all := &infrav1.MaasClusterList{}
	if err := reader.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil { // Nothing of it is changed.
		return nil, fmt.Errorf("looking for the owner id of another MaasCluster: %w", err)
	}
	for i := range all.Items {
		other := &all.Items[i]
		if other.UID != c.UID && other.Annotations[infrav1.OwnerIDAnnotation] == id && (oldest == nil || isOlder(other, oldest)) {
			oldest = other
		}
	}
	return oldest, nil
}

// copiedFrom returns the MaasCluster that another one was copied from, together with the mark that everything in MAAS is found by; nil where
// it is none. That happens when manifests or a backup are applied in another namespace. Of two that have the same mark all belongs to the older
// one: the copy would take over its machines, and give them back when it goes.
func copiedFrom(ctx context.Context, reader client.Reader, maasCluster *infrav1.MaasCluster) (*infrav1.MaasCluster, error) {
	other, err := ownedElsewhere(ctx, reader, maasCluster, maasCluster.Annotations[infrav1.OwnerIDAnnotation])
	if err != nil || other == nil || !isOlder(other, maasCluster) {
		return nil, err
	}
	return other, nil
}

func isOlder(one, other *infrav1.MaasCluster) bool {
	return cmp.Or(one.CreationTimestamp.Compare(other.CreationTimestamp.Time), cmp.Compare(one.UID, other.UID)) < 0
}

// copied is what is said about a copy, and about its machines.
func copied(original *infrav1.MaasCluster) *problem {
	return &problem{
		reason: infrav1.OwnerIDTakenReason, retryAfter: mendRetry,
		message: fmt.Sprintf("the MaasCluster has the annotation %s of MaasCluster %s, which is older: everything in MAAS is that one's. Delete this "+
			"cluster, which touches nothing in MAAS; or delete its machines and remove the annotation, to have it made anew",
			infrav1.OwnerIDAnnotation, client.ObjectKeyFromObject(original)),
	}
}
