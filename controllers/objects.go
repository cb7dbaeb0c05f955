// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// patchable is an API object that knows how to copy itself.
type patchable[T any] interface {
	*T
	client.Object
	DeepCopy() *T
}

// patchNow stores a change at once, because what follows must not happen without it. The rest of the object, which may hold
// changes that are stored later, is left alone.
func patchNow[T any, P patchable[T]](ctx context.Context, c client.Client, object P, change func(P)) error {
	before := P(object.DeepCopy())
	after := P(object.DeepCopy())
	change(after)
	if err := c.Patch(ctx, after, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("patching %s: %w", client.ObjectKeyFromObject(object), err)
	}
	// The resource version stays as it was read: the patch at the end of the reconcile would take a new one for a change.
	change(object)
	return nil
}

// watched tells whether an object is ours to reconcile. It is asked in the reconcilers, because watches on other objects wake them
// past the predicates of their own kind.
func watched(object client.Object, filter string) bool {
	return filter == "" || labels.HasWatchLabel(object, filter)
}

// ignoreGone drops what a patch says when the object went with its last finalizer.
func ignoreGone(err error, object client.Object) error {
	if object.GetDeletionTimestamp().IsZero() || len(object.GetFinalizers()) > 0 {
		return err
	}
	return kerrors.FilterOut(err, apierrors.IsNotFound)
}

// acquiring notes that MAAS is asked for something, before it is, or that nothing came of it.
func acquiring[T any, P patchable[T]](ctx context.Context, c client.Client, object P, started bool) error {
	return patchNow(ctx, c, object, func(object P) {
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		delete(annotations, infrav1.AcquireStartedAnnotation)
		if started {
			annotations[infrav1.AcquireStartedAnnotation] = time.Now().UTC().Format(time.RFC3339)
		}
		object.SetAnnotations(annotations)
	})
}

// unsettled is for how long something may still happen in MAAS that it was asked for, or 0: what was asked for may turn up, or a
// machine be changed.
func unsettled(object client.Object, settleTime time.Duration) (left time.Duration) {
	for _, note := range []string{infrav1.AcquireStartedAnnotation, infrav1.ChangeStartedAnnotation} {
		if started, err := time.Parse(time.RFC3339, object.GetAnnotations()[note]); err == nil {
			left = max(left, time.Until(started.Add(settleTime)))
		}
	}
	return left
}
