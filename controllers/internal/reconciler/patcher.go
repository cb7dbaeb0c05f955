// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// opened is the record of an object, as a pointer.
type opened interface {
	comparable
	Close(ctx context.Context) error
	LeaveOut()
}

// Patcher stores the results of a reconcile at its end, in few patches.
type Patcher[R opened] struct {
	*patch.Helper
	Record R      // nil if it can't be read
	read   string // the resource version as read
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
	record, unreadable := open(object)
	return &Patcher[R]{helper, record, object.GetResourceVersion()}, unreadable, nil
}

// Store patches the object with the conditions that its reconciler owns, and the generation that they are about.
func (p *Patcher[R]) Store(ctx context.Context, object client.Object, owned []string) error {
	if !object.GetDeletionTimestamp().IsZero() && len(object.GetFinalizers()) == 0 {
		return nil // Kubernetes removed it with its last finalizer.
	}
	var failed error
	var none R
	if p.Record != none {
		failed = p.Record.Close(ctx)
		p.Record.LeaveOut()
	}
	object.SetResourceVersion(p.read) // The helper would take a newer one for a change.
	return errors.Join(failed, p.Patch(ctx, object, patch.WithOwnedConditions{Conditions: owned},
		patch.WithStatusObservedGeneration{}))
}
