// SPDX-License-Identifier: Apache-2.0

// Package record keeps, in one annotation of a Kubernetes object, what MAAS was asked for and is not known to be over, and how far the
// object's machine is.
//
// A process can end between any two calls, a response can be lost, and a manager that was stopped can wake up when another one has taken over.
// So a call that changes MAAS is recorded before it is sent, sent soon after or not at all, and taken off the record when its outcome is
// certain. Package maas takes such calls only with a permit, and only this package makes permits.
package record

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/internal/permit"
)

// sendWithin is how long after it is recorded a call is sent at the latest; a compose may wait for a look at its host. What is left of the
// settle time is for MAAS to go on with the call.
const sendWithin = 15 * time.Second

// Record is the record of one object during one reconcile. What is changed in Data is stored by the next Call or Store, or by Close.
type Record struct {
	Data
	client client.Client
	object client.Object
	opened string // what the annotation held when it was opened
	stored string // what it holds in Kubernetes, as far as is known here
}

// Open reads the record of an object. The error is that of Of.
func Open(c client.Client, object client.Object) (*Record, error) {
	data, err := Of(object)
	if err != nil {
		return nil, err
	}
	text := object.GetAnnotations()[infrav1.RecordAnnotation]
	return &Record{Data: data, client: c, object: object, opened: text, stored: text}, nil
}

// Call records an operation, does it, and takes it off the record if its outcome is certain and gave nothing to the object: what was acquired
// stays pending until Acquired is stored together with what it is. also changes the object in the patch that records the operation.
//
// The error is a conflict if the object was changed since this reconcile read it; do is not called then.
func (r *Record) Call(ctx context.Context, op Op, do func(context.Context, maas.Permit) error, also ...func(client.Object)) error {
	now := time.Now()
	earlier := slices.Clone(r.Pending)
	r.Pending = append(without(earlier, op), Pending{Op: op, At: asStored(now)})
	if err := r.Write(ctx, also...); err != nil {
		r.Pending = earlier
		return err
	}
	err := do(ctx, permit.Before(now.Add(sendWithin)))
	if (err == nil && op.acquires()) || (err != nil && !maas.HadNoEffect(err)) {
		return err
	}
	noted := r.Pending
	r.Pending = earlier // What became of this call is known, if not of an earlier one.
	forgotten := r.Write(ctx)
	if apierrors.IsConflict(forgotten) {
		// On an object that others have changed it stays: it may be theirs.
		r.Pending, forgotten = noted, nil
	}
	return errors.Join(err, forgotten)
}

func without(pending []Pending, op Op) []Pending {
	return slices.DeleteFunc(slices.Clone(pending), func(p Pending) bool { return p.Op == op })
}

// Store stores at once what change records, and what also changes in the object, whoever else has changed them. After an error nothing is changed.
func (r *Record) Store(ctx context.Context, change func(*Data), also ...func(client.Object)) error {
	before := r.Data
	change(&r.Data)
	err := r.Write(ctx, also...)
	for range maxConflicts {
		if !apierrors.IsConflict(err) {
			break
		}
		var live client.Object
		if live, err = r.read(ctx); err != nil {
			break
		}
		if r.stored != live.GetAnnotations()[infrav1.RecordAnnotation] {
			if err = r.rebase(live); err != nil {
				break
			}
			before = r.Data
			change(&r.Data)
		}
		err = r.writeOver(ctx, live, also...)
	}
	if err != nil {
		r.Data = before // Or Close would store the half of it: that a call is over, and not what it acquired.
	}
	return err
}

// maxConflicts is how often Store and Close try again what others changed meanwhile.
const maxConflicts = 5

// Close stores what is left to store. The error is a conflict if somebody else has changed the record.
func (r *Record) Close(ctx context.Context) error {
	if r.text() == r.stored {
		return nil
	}
	err := r.Write(ctx)
	for range maxConflicts {
		if !apierrors.IsConflict(err) {
			break
		}
		live, failed := r.read(ctx)
		if failed != nil {
			return failed
		}
		if r.stored != live.GetAnnotations()[infrav1.RecordAnnotation] {
			return err
		}
		err = r.writeOver(ctx, live)
	}
	return err
}

// Write stores the record, and what also changes, if the object is as this reconcile read it; otherwise the error is a conflict. A cache may lag, and
// a manager that was stopped, and wakes up when another one has taken over, must not do what that one has done.
func (r *Record) Write(ctx context.Context, also ...func(client.Object)) error {
	version, err := r.writeAt(ctx, r.object.GetResourceVersion(), also...)
	if err == nil {
		r.object.SetResourceVersion(version)
	}
	return err
}

// writeOver stores the record over an object that others have changed. The resource version stays as it was read, so that no call is
// recorded there.
func (r *Record) writeOver(ctx context.Context, live client.Object, also ...func(client.Object)) error {
	_, err := r.writeAt(ctx, live.GetResourceVersion(), also...)
	return err
}

func (r *Record) writeAt(ctx context.Context, version string, also ...func(client.Object)) (string, error) {
	text := r.text()
	before := r.copy()
	setAnnotation(before, r.stored)
	before.SetResourceVersion(version)
	after := before.DeepCopyObject().(client.Object)
	setAnnotation(after, text)
	for _, change := range also {
		change(after)
	}
	if err := r.client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return "", fmt.Errorf("recording on %s: %w", client.ObjectKeyFromObject(r.object), err)
	}
	r.stored = text
	setAnnotation(r.object, text)
	for _, change := range also {
		change(r.object)
	}
	return after.GetResourceVersion(), nil
}

// read returns the object as Kubernetes has it now. An empty patch needs no right but that to patch.
func (r *Record) read(ctx context.Context) (client.Object, error) {
	live := r.copy()
	if err := r.client.Patch(ctx, live, client.RawPatch(types.MergePatchType, []byte("{}"))); err != nil {
		return nil, fmt.Errorf("reading %s again: %w", client.ObjectKeyFromObject(r.object), err)
	}
	return live, nil
}

// rebase takes over what others have recorded meanwhile.
func (r *Record) rebase(live client.Object) error {
	data, err := Of(live)
	if err != nil {
		return err
	}
	r.Data, r.stored = data, live.GetAnnotations()[infrav1.RecordAnnotation]
	return nil
}

func (r *Record) copy() client.Object { return r.object.DeepCopyObject().(client.Object) }

// setAnnotation sets the record's annotation, or removes it where there is nothing to record.
func setAnnotation(object client.Object, text string) {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[infrav1.RecordAnnotation] = text
	if text == "" {
		delete(annotations, infrav1.RecordAnnotation)
	}
	object.SetAnnotations(annotations)
}

// LeaveOut puts the annotation back to what it was when the record was opened. A patch that is computed from the object as it was then leaves
// the record alone, which may be another's by now.
func (r *Record) LeaveOut() { setAnnotation(r.object, r.opened) }
