// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// opened is the record of an object, as a pointer.
type opened interface {
	comparable
	Close(ctx context.Context) error
	Written() client.Object
}

// Patcher stores the results of a reconcile at its end: the record, the status, and the rest, each in one patch if it
// has changed.
type Patcher[R opened] struct {
	Record R // nil if it can't be read
	client client.Client
	read   client.Object
	helper *patch.Helper
}

// NewPatcher makes a patcher, and opens the record. unreadable is why that can't be read; the reconcile must do nothing
// else then.
func NewPatcher[O client.Object, R opened](
	c client.Client, object O, open func(O) (R, error),
) (p *Patcher[R], unreadable, err error) {
	helper, err := patch.NewHelper(object, c)
	if err != nil {
		return nil, nil, fmt.Errorf("preparing to patch: %w", err)
	}
	read := object.DeepCopyObject().(client.Object)
	opened, unreadable := open(object)
	return &Patcher[R]{opened, c, read, helper}, unreadable, nil
}

// Store patches the object with the conditions that its reconciler owns, and the generation that they are about.
func (p *Patcher[R]) Store(ctx context.Context, object client.Object, owned []string) error {
	if !object.GetDeletionTimestamp().IsZero() && len(object.GetFinalizers()) == 0 {
		return nil // Kubernetes removed it with its last finalizer.
	}
	var failed error
	var none R
	before := p.read
	if p.Record != none {
		failed = p.Record.Close(ctx)
		if written := p.Record.Written(); written != nil {
			before = written
		}
	}
	observe(object)
	err := p.store(ctx, before, object)
	if apierrors.IsConflict(err) { // Others have changed the object meanwhile, maybe their conditions.
		rest := copyFor(object, p.read) // The helper would take a newer version, or record, for a change.
		err = p.helper.Patch(ctx, rest, patch.WithOwnedConditions{Conditions: owned})
	}
	return errors.Join(failed, err)
}

// store patches what differs from the object as it was before. The error is a conflict if others have changed it since.
func (p *Patcher[R]) store(ctx context.Context, before, object client.Object) error {
	after := copyFor(object, before)
	after.SetGeneration(before.GetGeneration())
	without := before.DeepCopyObject().(client.Object)
	for _, o := range []client.Object{without, after} {
		o.SetManagedFields(nil) // A cache does not have them.
	}
	data, err := client.MergeFrom(without).Data(after)
	if err != nil {
		return fmt.Errorf("comparing the object with what it was: %w", err)
	}
	change := map[string]any{}
	if err := json.Unmarshal(data, &change); err != nil {
		return fmt.Errorf("comparing the object with what it was: %w", err)
	}
	status, has := change["status"]
	for _, key := range []string{"status", "kind", "apiVersion"} {
		delete(change, key)
	}
	// The rest first: who reads in the status that a machine or cluster is there reads the spec next.
	version := object.GetResourceVersion() // The newest that is known, also from objects.PatchLocked.
	if len(change) > 0 {
		into := after.DeepCopyObject().(client.Object)
		if err := p.client.Patch(ctx, into, mergePatch(change, version)); err != nil {
			return fmt.Errorf("patching %s: %w", client.ObjectKeyFromObject(object), err)
		}
		version = into.GetResourceVersion()
	}
	if has {
		err := p.client.Status().Patch(ctx, after, mergePatch(map[string]any{"status": status}, version))
		if err != nil {
			return fmt.Errorf("patching the status of %s: %w", client.ObjectKeyFromObject(object), err)
		}
	}
	return nil
}

// mergePatch returns a merge patch of what was read from one, for a version of the object.
func mergePatch(change map[string]any, version string) client.Patch {
	metadata, _ := change["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["resourceVersion"] = version
	change["metadata"] = metadata
	data, err := json.Marshal(change)
	if err != nil {
		panic(err) // All of it was JSON.
	}
	return client.RawPatch(types.MergePatchType, data)
}

// copyFor returns a copy of an object with the version and the record of another one: what has changed in these is not
// for the patcher to store.
func copyFor(object, of client.Object) client.Object {
	c := object.DeepCopyObject().(client.Object)
	c.SetResourceVersion(of.GetResourceVersion())
	record.SetAnnotation(c, infrav1.RecordAnnotation, of.GetAnnotations()[infrav1.RecordAnnotation])
	return c
}

// observe says in the status of an object which generation it is about. The helper would do that only if something else
// has changed: a person, or a restore, may have taken it out of a status that stays as it is.
func observe(object client.Object) {
	switch o := object.(type) {
	case *infrav1.MaasCluster:
		o.Status.ObservedGeneration = o.Generation
	case *infrav1.MaasMachine:
		o.Status.ObservedGeneration = o.Generation
	case *infrav1.MaasRemediation:
		o.Status.ObservedGeneration = o.Generation
	}
}
