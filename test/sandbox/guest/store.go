// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	inmemory "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// store is where a workload cluster keeps objects.
type store interface {
	Get(ctx context.Context, key client.ObjectKey, object client.Object) error
	List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error
	Create(ctx context.Context, object client.Object) error
	Update(ctx context.Context, object client.Object) error
	UpdateStatus(ctx context.Context, object client.Object) error
	Delete(ctx context.Context, object client.Object) error
}

// memory keeps objects as they are, their status with them.
type memory struct{ inmemory.Client }

// UpdateStatus writes the whole object.
func (m memory) UpdateStatus(ctx context.Context, object client.Object) error {
	return m.Update(ctx, object)
}

// apiTimeout bounds a call of a real API server, which is a process on this machine.
const apiTimeout = 5 * time.Minute

// realAPI keeps objects in a real API server.
type realAPI struct{ client client.Client }

func (a realAPI) Get(ctx context.Context, key client.ObjectKey, object client.Object) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return a.client.Get(ctx, key, object)
}

func (a realAPI) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return a.client.List(ctx, list, options...)
}

func (a realAPI) Create(ctx context.Context, object client.Object) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return a.client.Create(ctx, object)
}

func (a realAPI) Update(ctx context.Context, object client.Object) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return a.client.Update(ctx, object)
}

func (a realAPI) UpdateStatus(ctx context.Context, object client.Object) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return a.client.Status().Update(ctx, object)
}

// Delete removes an object at once: no process is left to end it in an orderly way.
func (a realAPI) Delete(ctx context.Context, object client.Object) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return a.client.Delete(ctx, object, client.GracePeriodSeconds(0))
}

func create(s store, object client.Object) error {
	if err := s.Create(noContext, object); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating %s in the workload cluster: %w", object.GetName(), err)
	}
	return nil
}

// change reads an object, changes it and writes it, and retries if another client wrote it meanwhile. An object that is
// gone is skipped.
func change(s store, object client.Object, mutate func()) error {
	return changeWith(s, s.Update, object, mutate)
}

// changeStatus is change for an object's status.
func changeStatus(s store, object client.Object, mutate func()) error {
	return changeWith(s, s.UpdateStatus, object, mutate)
}

func changeWith(s store, write func(context.Context, client.Object) error, object client.Object, mutate func()) error {
	for {
		if err := s.Get(noContext, client.ObjectKeyFromObject(object), object); err != nil {
			return client.IgnoreNotFound(err)
		}
		mutate()
		err := write(noContext, object)
		if !apierrors.IsConflict(err) {
			return client.IgnoreNotFound(err)
		}
	}
}
