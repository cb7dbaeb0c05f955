// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"cmp"
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// OwnerIDLost returns the problem of a MaasCluster whose owner id is gone or was changed, and of its machines. id is
// the original one, or "" if it is not known.
func OwnerIDLost(c *infrav1.MaasCluster, id string) *report.Problem {
	original := cmp.Or(id, "the value of the workload annotation "+ownership.AnnotationOwner+" of its machines in MAAS")
	return &report.Problem{Reason: infrav1.OwnerIDLostReason, RetryAfter: report.MendRetry, Message: fmt.Sprintf(
		"the annotation %s of MaasCluster %s, which proves what is ours in MAAS, is gone or was changed: set it back to %s",
		infrav1.OwnerIDAnnotation, c.Name, original)}
}

// OwnerIDInvalid returns the problem of a MaasCluster whose owner id is malformed.
func OwnerIDInvalid() *report.Problem {
	return &report.Problem{Reason: infrav1.OwnerIDInvalidReason, RetryAfter: report.MendRetry, Message: fmt.Sprintf(
		"the annotation %s of the MaasCluster must be %d characters of a-z and 0-9: correct it, or remove it to have one "+
			"made", infrav1.OwnerIDAnnotation, maas.OwnerIDLength)}
}

// WasAskedFor reports whether MAAS was asked for a machine. A system id alone does not prove it: the user may have
// chosen it.
func WasAskedFor(m *infrav1.MaasMachine) bool {
	recorded, err := record.OfMachine(m)
	asked := err != nil || recorded.MayAcquire() || len(recorded.Hosts) > 0
	return asked || m.Annotations[infrav1.OwnerIDAnnotation] != "" || m.Spec.ProviderID != ""
}

// OwnerProblem returns why nothing in MAAS can be proven to belong to a machine; nil if it can.
func OwnerProblem(c *infrav1.MaasCluster, m *infrav1.MaasMachine) *report.Problem {
	id, recorded := c.Annotations[infrav1.OwnerIDAnnotation], m.Annotations[infrav1.OwnerIDAnnotation]
	switch {
	case id != "" && !maas.ValidOwnerID(id):
		return OwnerIDInvalid()
	case recorded != "" && recorded != id, id == "" && WasAskedFor(m):
		return OwnerIDLost(c, recorded)
	}
	return nil
}

// OwnedElsewhere returns another MaasCluster than c that has an owner id, the oldest one, or nil.
func OwnedElsewhere(
	ctx context.Context, reader client.Reader, c *infrav1.MaasCluster, id string, in ...client.ListOption,
) (oldest *infrav1.MaasCluster, err error) {
	if id == "" {
		return nil, nil
	}
	all := &infrav1.MaasClusterList{}
	// Nothing of it is changed.
	if err := reader.List(ctx, all, append(in, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("looking for another MaasCluster with the same owner id: %w", err)
	}
	for i := range all.Items {
		other := &all.Items[i]
		if other.UID != c.UID && other.Annotations[infrav1.OwnerIDAnnotation] == id &&
			(oldest == nil || isOlder(other, oldest)) {
			oldest = other
		}
	}
	return oldest, nil
}

// CopiedFrom returns the MaasCluster that another one was copied from, including its owner id; nil if it is no copy.
// Copies come from applying manifests or a backup in another namespace. If two MaasClusters have the same owner id,
// everything in MAAS belongs to the older one: the copy would take its machines for its own, and release them when
// it is deleted.
func CopiedFrom(
	ctx context.Context, reader client.Reader, maasCluster *infrav1.MaasCluster,
) (*infrav1.MaasCluster, error) {
	other, err := OwnedElsewhere(ctx, reader, maasCluster, maasCluster.Annotations[infrav1.OwnerIDAnnotation])
	if err != nil || other == nil || !isOlder(other, maasCluster) {
		return nil, err
	}
	return other, nil
}

func isOlder(one, other *infrav1.MaasCluster) bool {
	return cmp.Or(one.CreationTimestamp.Compare(other.CreationTimestamp.Time), cmp.Compare(one.UID, other.UID)) < 0
}

// CopyProblem returns the problem of a copy of a MaasCluster, and of its machines.
func CopyProblem(original *infrav1.MaasCluster) *report.Problem {
	return &report.Problem{
		Reason: infrav1.OwnerIDTakenReason, RetryAfter: report.MendRetry,
		Message: fmt.Sprintf("the MaasCluster has the annotation %s of MaasCluster %s, which is older: everything in MAAS "+
			"is that one's. Delete this "+
			"cluster, which touches nothing in MAAS; or delete its machines and remove the annotation, to have it made anew",
			infrav1.OwnerIDAnnotation, client.ObjectKeyFromObject(original)),
	}
}

// Provable reads the MaasCluster of a machine, as far as anything in MAAS can be proven to be the machine's. Errors:
// those of MaasClusterOf, and a *report.NotReadyError if it can't.
func Provable(
	ctx context.Context, reader client.Reader, cluster *clusterv1.Cluster, m *infrav1.MaasMachine,
) (*infrav1.MaasCluster, error) {
	c, err := MaasClusterOf(ctx, reader, cluster, m)
	if err != nil {
		return nil, err
	}
	if p := OwnerProblem(c, m); p != nil {
		return nil, report.NotReady(*p)
	}
	original, err := CopiedFrom(ctx, reader, c)
	if err == nil && original != nil {
		err = report.NotReady(*CopyProblem(original))
	}
	return c, err
}
