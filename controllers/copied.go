// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// copiedFrom answers the MaasCluster that another one was copied from, together with the mark that everything in MAAS is found by; nil where
// it is none. That happens when manifests or a backup are applied in another namespace. Of two that have the same mark all belongs to the older
// one: the copy would take over its machines, and give them back when it goes.
func copiedFrom(ctx context.Context, reader client.Reader, maasCluster *infrav1.MaasCluster) (*infrav1.MaasCluster, error) {
	id := maasCluster.Annotations[infrav1.OwnerIDAnnotation]
	if id == "" {
		return nil, nil
	}
	all := &infrav1.MaasClusterList{}
	if err := reader.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil { // Nothing of it is changed.
		return nil, fmt.Errorf("looking for the owner id of another MaasCluster: %w", err)
	}
	for i := range all.Items {
		other := &all.Items[i]
		if other.UID != maasCluster.UID && other.Annotations[infrav1.OwnerIDAnnotation] == id && isOlder(other, maasCluster) {
			return other, nil
		}
	}
	return nil, nil
}

func isOlder(one, other *infrav1.MaasCluster) bool {
	return cmp.Or(one.CreationTimestamp.Compare(other.CreationTimestamp.Time), cmp.Compare(one.UID, other.UID)) < 0
}

// copied is what is said about a copy, and about its machines.
func copied(original *infrav1.MaasCluster) *problem {
	return &problem{
		reason: infrav1.OwnerIDTakenReason, retryAfter: mendRetry,
		message: fmt.Sprintf("the MaasCluster has the annotation %s of MaasCluster %s, which is older: everything in MAAS is that one's. Delete this "+
			"cluster, which touches nothing in MAAS; or remove the annotation to have it made anew",
			infrav1.OwnerIDAnnotation, client.ObjectKeyFromObject(original)),
	}
}
