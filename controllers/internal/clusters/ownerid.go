// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"cmp"
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// OwnerIDLost is the problem of a MaasCluster whose owner id is gone or was changed, and of its machines. id is the one that it had, or "".
func OwnerIDLost(c *infrav1.MaasCluster, id string) *report.Problem {
	was := cmp.Or(id, "what the workload annotation "+ownership.AnnotationOwner+" of its machines in MAAS says")
	return &report.Problem{Reason: infrav1.OwnerIDLostReason, RetryAfter: report.MendRetry, Message: fmt.Sprintf(
		"the annotation %s of MaasCluster %s, which proves what is ours in MAAS, is gone or was changed: set it back to %s", infrav1.OwnerIDAnnotation, c.Name, was)}
}

// OwnerIDInvalid is the problem of a MaasCluster whose owner id is not one.
func OwnerIDInvalid() *report.Problem {
	return &report.Problem{Reason: infrav1.OwnerIDInvalidReason, RetryAfter: report.MendRetry, Message: fmt.Sprintf(
		"the annotation %s of the MaasCluster must be %d characters of a-z and 0-9: correct it, or remove it to have one made", infrav1.OwnerIDAnnotation, maas.OwnerIDLength)}
}

// WasAskedFor reports whether MAAS was asked for a machine. A system id alone may be the user's choice.
func WasAskedFor(m *infrav1.MaasMachine) bool {
	recorded, err := record.Of(m)
	asked := err != nil || recorded.MayAcquire() || len(recorded.Hosts) > 0
	return asked || m.Annotations[infrav1.OwnerIDAnnotation] != "" || m.Spec.ProviderID != ""
}

// OwnerProblem returns why nothing in MAAS can be proven to belong to a machine; nil if it can.
func OwnerProblem(c *infrav1.MaasCluster, m *infrav1.MaasMachine) *report.Problem {
	id, noted := c.Annotations[infrav1.OwnerIDAnnotation], m.Annotations[infrav1.OwnerIDAnnotation]
	switch {
	case id != "" && !maas.ValidOwnerID(id):
		return OwnerIDInvalid()
	case noted != "" && noted != id, id == "" && WasAskedFor(m):
		return OwnerIDLost(c, noted)
	}
	return nil
}

// OwnedElsewhere returns another MaasCluster that has an owner id, the oldest one, or nil.
func OwnedElsewhere(ctx context.Context, reader client.Reader, c *infrav1.MaasCluster, id string) (oldest *infrav1.MaasCluster, err error) {
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

// CopiedFrom returns the MaasCluster that another one was copied from, together with the mark that everything in MAAS is found by; nil where
// it is none. That happens when manifests or a backup are applied in another namespace. Of two that have the same mark all belongs to the older
// one: the copy would take over its machines, and give them back when it goes.
func CopiedFrom(ctx context.Context, reader client.Reader, maasCluster *infrav1.MaasCluster) (*infrav1.MaasCluster, error) {
	other, err := OwnedElsewhere(ctx, reader, maasCluster, maasCluster.Annotations[infrav1.OwnerIDAnnotation])
	if err != nil || other == nil || !isOlder(other, maasCluster) {
		return nil, err
	}
	return other, nil
}

func isOlder(one, other *infrav1.MaasCluster) bool {
	return cmp.Or(one.CreationTimestamp.Compare(other.CreationTimestamp.Time), cmp.Compare(one.UID, other.UID)) < 0
}

// CopyProblem is the problem of a copy of a MaasCluster, and of its machines.
func CopyProblem(original *infrav1.MaasCluster) *report.Problem {
	return &report.Problem{
		Reason: infrav1.OwnerIDTakenReason, RetryAfter: report.MendRetry,
		Message: fmt.Sprintf("the MaasCluster has the annotation %s of MaasCluster %s, which is older: everything in MAAS is that one's. Delete this "+
			"cluster, which touches nothing in MAAS; or delete its machines and remove the annotation, to have it made anew",
			infrav1.OwnerIDAnnotation, client.ObjectKeyFromObject(original)),
	}
}
