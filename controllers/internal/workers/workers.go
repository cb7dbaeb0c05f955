// SPDX-License-Identifier: Apache-2.0

// Package workers limits how many reconciles run at once, not counting those that wait for MAAS.
package workers

import (
	"context"
	"fmt"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

// maxAtMAAS is how many reconciles of one kind may wait for MAAS at once, in addition to those that compute.
const maxAtMAAS = 100

// Limit makes MaxConcurrentReconciles limit only the reconciles that compute. A reconcile that waits for MAAS, for
// minutes if MAAS composes or deploys, does not count: otherwise a few slow calls would block all other objects.
func Limit(r reconcile.Reconciler, options *controller.Options) reconcile.Reconciler {
	workers := make(chan struct{}, max(options.MaxConcurrentReconciles, 1))
	options.MaxConcurrentReconciles = cap(workers) + maxAtMAAS
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		select {
		case workers <- struct{}{}:
		case <-ctx.Done():
			return reconcile.Result{}, fmt.Errorf("waiting for a worker: %w", ctx.Err())
		}
		w := &worker{all: workers, has: true}
		defer w.end()
		return r.Reconcile(guard.WithIdle(ctx, w.idle), request)
	})
}

// worker is the worker of one reconcile.
type worker struct {
	all chan struct{}

	mu    sync.Mutex
	waits int // waits under way: one may be part of another
	has   bool
}

// idle gives the worker away until resume is called.
func (w *worker) idle() (resume func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits++
	w.giveAway()
	return w.resume
}

// resume takes a worker if one is free, and continues without one otherwise. Waiting for one could be a deadlock: other
// reconciles may have all of them, and wait for a lock that this one holds.
func (w *worker) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waits--; w.waits > 0 {
		return
	}
	select {
	case w.all <- struct{}{}:
		w.has = true
	default:
	}
}

func (w *worker) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.giveAway()
}

func (w *worker) giveAway() {
	if w.has {
		w.has = false
		<-w.all
	}
}
