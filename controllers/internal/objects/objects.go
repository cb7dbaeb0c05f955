// SPDX-License-Identifier: Apache-2.0

// Package objects reads and patches the objects that are reconciled.
package objects

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// patchable is an API object that knows how to copy itself.
type patchable[T any] interface {
	*T
	client.Object
	DeepCopy() *T
}

// PatchNow stores at once what is so, whoever else has changed the object. The rest of it, which may hold changes that are stored later, is left
// alone.
func PatchNow[T any, P patchable[T]](ctx context.Context, c client.Client, object P, change func(P)) error {
	err := PatchLocked(ctx, c, object, change)
	if !apierrors.IsConflict(err) {
		return err
	}
	// The resource version stays as it was read: what follows may not be noted on an object that others have changed.
	_, err = patchWith(ctx, c, object, change)
	return err
}

// PatchLocked stores what MAAS is about to be asked. If the object was changed since this reconcile read it, the error is a conflict. A
// manager that was stopped, and wakes up when another one has taken over, must not ask for what that one has done.
func PatchLocked[T any, P patchable[T]](ctx context.Context, c client.Client, object P, change func(P)) error {
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

// Patcher stores at the end of a reconcile, in few patches, what it found out.
type Patcher struct {
	*patch.Helper
	Record *record.Record // nil if it can't be read
	read   string         // the resource version that was read
}

// NewPatcher makes a patcher. unreadable is why the record can't be read; nothing else may be done then.
func NewPatcher(object client.Object, c client.Client) (p *Patcher, unreadable, err error) {
	helper, err := patch.NewHelper(object, c)
	if err != nil {
		return nil, nil, fmt.Errorf("preparing to patch: %w", err)
	}
	record, unreadable := record.Open(c, object)
	return &Patcher{helper, record, object.GetResourceVersion()}, unreadable, nil
}

// Store patches the object with the conditions that are its reconciler's.
func (p *Patcher) Store(ctx context.Context, object client.Object, owned []string) error {
	if !object.GetDeletionTimestamp().IsZero() && len(object.GetFinalizers()) == 0 {
		return nil // It went with its last finalizer.
	}
	var failed error
	if p.Record != nil {
		failed = p.Record.Close(ctx)
		p.Record.LeaveOut()
	}
	object.SetResourceVersion(p.read) // The helper would take a newer one for a change.
	return errors.Join(failed, p.Patch(ctx, object, patch.WithOwnedConditions{Conditions: owned}))
}

// Watched reports whether an object is ours to reconcile. The reconcilers call it, because watches on other objects wake them past the
// predicates of their own kind.
func Watched(object client.Object, filter string) bool {
	return filter == "" || labels.HasWatchLabel(object, filter)
}

// Annotate sets an annotation, or removes it where the value is "".
func Annotate(object client.Object, key, value string) {
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

// IgnoreBookkeeping drops updates that only change our own annotations: otherwise each record would trigger the next attempt at once.
var IgnoreBookkeeping = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	resync := e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion()
	return resync || !equality.Semantic.DeepEqual(withoutBookkeeping(e.ObjectOld), withoutBookkeeping(e.ObjectNew))
}}

// withoutBookkeeping returns an object without our own annotations, and without what changes with each write.
func withoutBookkeeping(object client.Object) client.Object {
	object = object.DeepCopyObject().(client.Object)
	object.SetResourceVersion("")
	object.SetManagedFields(nil)
	annotations := object.GetAnnotations()
	delete(annotations, infrav1.RecordAnnotation)
	delete(annotations, infrav1.StaticIPAnnotation)
	object.SetAnnotations(annotations)
	return object
}

// MovedAway reports whether `clusterctl move` has copied an object to another management cluster, and deletes it here. What the object
// stands for lives on: it is not changed even if the pause of its Cluster was not seen.
func MovedAway(object client.Object) bool {
	_, moved := object.GetAnnotations()[clusterctlv1.DeleteForMoveAnnotation]
	return moved
}
