// SPDX-License-Identifier: Apache-2.0

// Package objects reads and patches the objects that are reconciled.
package objects

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/cluster-api/util/patch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// patchable is an API object that knows how to copy itself.
type patchable[T any] interface {
	*T
	client.Object
	DeepCopy() *T
}

// PatchNow stores a change at once, even if others have changed the object since it was read. It leaves other changes
// in object, which may be stored later, alone.
func PatchNow[T any, P patchable[T]](ctx context.Context, c client.Client, object P, change func(P)) error {
	err := PatchLocked(ctx, c, object, change)
	if !apierrors.IsConflict(err) {
		return err
	}
	// Keep the resource version that was read: later writes must still conflict with the changes of others.
	_, err = patchWith(ctx, c, object, change)
	return err
}

// PatchLocked stores the request that MAAS is about to get. The error is a conflict if the object was changed since
// this reconcile read it: a manager that was suspended, and resumes when another one leads, must not repeat the
// other object's requests.
func PatchLocked[T any, P patchable[T]](ctx context.Context, c client.Client, object P, change func(P)) error {
	version, err := patchWith(ctx, c, object, change, client.MergeFromWithOptimisticLock{})
	if err == nil {
		object.SetResourceVersion(version)
	}
	return err
}

// PatchConditions stores what change sets in the conditions of an object, and those that owned names. Others may write
// its other conditions meanwhile: they stay, also those that the cache does not have yet.
func PatchConditions(ctx context.Context, c client.Client, object client.Object, change func(), owned ...string) error {
	helper, err := patch.NewHelper(object, c)
	if err == nil {
		change()
		err = helper.Patch(ctx, object, patch.WithOwnedConditions{Conditions: owned})
	}
	if all, is := errors.AsType[kerrors.Aggregate](err); is {
		err = errors.Join(all.Errors()...) // Callers look for NotFound, which an Aggregate hides.
	}
	if err != nil {
		return fmt.Errorf("patching the conditions of %s: %w", client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// patchWith applies a change to the object, here and in Kubernetes, and returns the resource version in Kubernetes.
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

// Wake returns requests for those objects of a kind that wake says; nil: for all. list is an empty list of them, of
// which nothing is changed.
func Wake(
	ctx context.Context, c client.Reader, list client.ObjectList, wake func(client.Object) bool,
	options ...client.ListOption,
) (requests []reconcile.Request) {
	if err := c.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to find the objects that are concerned", "list", fmt.Sprintf("%T", list))
		return nil
	}
	_ = meta.EachListItem(list, func(item runtime.Object) error { // A list always has items.
		if object := item.(client.Object); wake == nil || wake(object) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
		}
		return nil
	})
	return requests
}

// Watched reports whether this manager reconciles an object. The reconcilers call it, because watches on other objects
// enqueue requests past the predicates of their own kind.
func Watched(object client.Object, filter string) bool {
	return filter == "" || labels.HasWatchLabel(object, filter)
}

// IgnoreBookkeeping drops updates that only change our own annotations, or words: otherwise each record would trigger
// the next attempt at once.
var IgnoreBookkeeping = ignoreUnless(withoutBookkeeping)

// IgnoreWords drops updates that only change the messages of conditions: they may be another server's words, which
// differ from try to try, and would trigger the next one.
var IgnoreWords = ignoreUnless(withoutWords)

// ignoreUnless drops updates that leave the same of an object.
func ignoreUnless(rest func(client.Object) client.Object) predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		resync := e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion()
		return resync || !equality.Semantic.DeepEqual(rest(e.ObjectOld), rest(e.ObjectNew))
	}}
}

// IgnoreFigures drops updates of an LXDHost that change neither its conditions Ready and Schedulable, nor its key pair,
// nor whether it is being deleted: what is free there changes all the time.
var IgnoreFigures = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*infrav1.LXDHost), e.ObjectNew.(*infrav1.LXDHost)
	differs := func(condition string) bool {
		return !equality.Semantic.DeepEqual(conditions.Get(before, condition), conditions.Get(after, condition))
	}
	return before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		!equality.Semantic.DeepEqual(before.Status.ClientCertificate, after.Status.ClientCertificate) ||
		differs(infrav1.ReadyCondition) || differs(infrav1.SchedulableCondition)
}}

// IgnoreUnlessCordoned drops all of LXDHosts but updates by which a person cordons one, or takes that back.
var IgnoreUnlessCordoned = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*infrav1.LXDHost), e.ObjectNew.(*infrav1.LXDHost)
		return before.Spec.Cordoned() != after.Spec.Cordoned()
	},
}

// IgnoreUnlessSwitched drops all of MaasRemediations but changes of whether their machines are in the endpoint.
var IgnoreUnlessSwitched = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*infrav1.MaasRemediation), e.ObjectNew.(*infrav1.MaasRemediation)
		return before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
			before.Status.PowerCycles != after.Status.PowerCycles
	},
}

// withoutBookkeeping returns an object without our own annotations and the fields that change with each write.
func withoutBookkeeping(object client.Object) client.Object {
	object = withoutWords(object)
	annotations := object.GetAnnotations()
	delete(annotations, infrav1.RecordAnnotation)
	delete(annotations, infrav1.StaticIPAnnotation)
	delete(annotations, infrav1.InterfacesAnnotation)
	object.SetAnnotations(annotations)
	return object
}

func withoutWords(object client.Object) client.Object {
	object = object.DeepCopyObject().(client.Object)
	object.SetResourceVersion("")
	object.SetManagedFields(nil)
	if explained, is := object.(conditions.Getter); is {
		said := explained.GetConditions() // Of the copy.
		for i := range said {
			said[i].Message = ""
		}
	}
	return object
}

// MovedAway reports whether `clusterctl move` has copied an object to another management cluster and is deleting it
// here. The machine or cluster itself lives on: it is not changed, even if this manager missed the pause of its
// Cluster.
func MovedAway(object client.Object) bool {
	_, moved := object.GetAnnotations()[clusterctlv1.DeleteForMoveAnnotation]
	return moved
}
