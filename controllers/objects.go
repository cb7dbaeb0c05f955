// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// patchable is an API object that knows how to copy itself.
type patchable[T any] interface {
	*T
	client.Object
	DeepCopy() *T
}

// patchNow stores at once what is so, whoever else has changed the object. The rest of it, which may hold changes that are stored later, is left
// alone.
func patchNow[T any, P patchable[T]](ctx context.Context, c client.Client, object P, change func(P)) error {
	err := patchLocked(ctx, c, object, change)
	if !apierrors.IsConflict(err) {
		return err
	}
	// The resource version stays as it was read: what follows may not be noted on an object that others have changed.
	_, err = patchWith(ctx, c, object, change)
	return err
}

// patchLocked stores what MAAS is about to be asked. If the object was changed since this reconcile read it, the error is a conflict. A
// manager that was stopped, and wakes up when another one has taken over, must not ask for what that one has done.
func patchLocked[T any, P patchable[T]](ctx context.Context, c client.Client, object P, change func(P)) error {
	version, err := patchWith(ctx, c, object, change, client.MergeFromWithOptimisticLock{})
	if err == nil {
		object.SetResourceVersion(version)
	}
	return err
}

// patchWith applies a change to the object, here and in Kubernetes, and returns the resource version that it has there.
func patchWith[T any, P patchable[T]](
	ctx context.Context, c client.Client, object P, change func(P), options ...client.MergeFromOption,
) (version string, err error) {
	before := P(object.DeepCopy())
	after := P(object.DeepCopy())
	change(after)
	if err := c.Patch(ctx, after, client.MergeFromWithOptions(before, options...)); err != nil {
		return "", fmt.Errorf("patching %s: %w", client.ObjectKeyFromObject(object), err)
	}
	change(object)
	return after.GetResourceVersion(), nil
}

// patcher stores at the end of a reconcile, in few patches, what it found out.
type patcher struct {
	*patch.Helper
	record *record.Record // nil if it can't be read
	read   string         // the resource version that was read
}

// newPatcher makes a patcher. unreadable is why the record can't be read; nothing else may be done then.
func newPatcher(object client.Object, c client.Client) (p *patcher, unreadable, err error) {
	helper, err := patch.NewHelper(object, c)
	if err != nil {
		return nil, nil, fmt.Errorf("preparing to patch: %w", err)
	}
	record, unreadable := record.Open(c, object)
	return &patcher{helper, record, object.GetResourceVersion()}, unreadable, nil
}

// store patches the object with the conditions that are its reconciler's.
func (p *patcher) store(ctx context.Context, object client.Object, owned []string) error {
	if !object.GetDeletionTimestamp().IsZero() && len(object.GetFinalizers()) == 0 {
		return nil // It went with its last finalizer.
	}
	var failed error
	if p.record != nil {
		failed = p.record.Close(ctx)
		p.record.LeaveOut()
	}
	object.SetResourceVersion(p.read) // The helper would take a newer one for a change.
	return errors.Join(failed, p.Patch(ctx, object, patch.WithOwnedConditions{Conditions: owned}))
}

// watched reports whether an object is ours to reconcile. The reconcilers call it, because watches on other objects wake them past the
// predicates of their own kind.
func watched(object client.Object, filter string) bool {
	return filter == "" || labels.HasWatchLabel(object, filter)
}

// annotate sets an annotation, or removes it where the value is "".
func annotate(object client.Object, key, value string) {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	if value == "" {
		delete(annotations, key)
	}
	object.SetAnnotations(annotations)
}
