// SPDX-License-Identifier: Apache-2.0

// Package workers limits how many reconciles run at once, not counting those that wait for a server.
package workers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	capicontroller "sigs.k8s.io/cluster-api/util/controller"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

const (
	// maxWaiting is how many reconciles of one kind may wait for servers at once, in addition to those that compute.
	maxWaiting = 200
	// firstRetry is when a reconcile comes back for which there was no place. It grows with their number, up to
	// lastRetry: otherwise the workers would do little else.
	firstRetry = 5 * time.Second
	lastRetry  = time.Minute
)

// errCrowded ends the context of a reconcile that would wait for a server for which too many wait already.
var errCrowded = errors.New("too many others wait for the same server")

// Manage begins to set up a controller, whose workers are limited. Complete, or Build, takes the reconciler that it
// returns.
func Manage(
	ctx context.Context, mgr ctrl.Manager, name string, r reconcile.Reconciler, options controller.Options,
) (*capicontroller.Builder, reconcile.Reconciler) {
	limited := Limit(r, &options)
	log := ctrl.LoggerFrom(ctx).WithValues("controller", name)
	return capicontroller.NewControllerManagedBy(mgr, log).Named(name).WithOptions(options), limited
}

// Limit makes MaxConcurrentReconciles limit only the reconciles that compute. A reconcile that waits for a server, for
// minutes if MAAS composes or deploys, does not count: otherwise a few slow calls would block all other objects.
//
// Nor do those that wait for one server block those that wait for another: for one server at most as many may wait as
// there are free places. One that finds no place ends at its first wait, before it asked anything, and comes back.
//
// What only waits is no error in the log: a condition has its reason. It comes back as an error does.
func Limit(r reconcile.Reconciler, options *controller.Options) reconcile.Reconciler {
	all := &pool{workers: make(chan struct{}, max(options.MaxConcurrentReconciles, 1)), free: maxWaiting,
		waiting: map[guard.Server]int{}}
	options.MaxConcurrentReconciles = cap(all.workers) + maxWaiting
	options.NewQueue = newQueue(options.MaxConcurrentReconciles)
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		select {
		case all.workers <- struct{}{}:
		case <-ctx.Done():
			return reconcile.Result{}, fmt.Errorf("waiting for a worker: %w", ctx.Err())
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		w := &worker{all: all, has: true, cancel: cancel}
		defer w.end()
		result, err := r.Reconcile(guard.WithServer(guard.WithIdle(ctx, w.idle), w.at), request)
		if errors.Is(context.Cause(ctx), errCrowded) {
			return reconcile.Result{RequeueAfter: all.later()}, nil
		}
		if report.OnlyWaits(err) {
			ctrl.LoggerFrom(ctx).V(1).Info("Waits", "error", text.Lines(err))
			return reconcile.Result{Requeue: true}, nil //nolint:staticcheck // No other result has a backoff that grows.
		}
		return result, err
	})
}

// pool has the workers of one kind of reconciles, and the places of those that wait.
type pool struct {
	workers chan struct{}

	mu      sync.Mutex
	free    int
	waiting map[guard.Server]int // the places that are taken
	refused guard.Crowd          // those that found no place
}

// take takes a place for a server, and returns the one of another server that is not needed any more.
func (p *pool) take(server, instead guard.Server, moves bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting[server] >= p.free {
		return false
	}
	p.waiting[server]++
	p.free--
	if moves {
		p.drop(instead)
	}
	return true
}

func (p *pool) leave(server guard.Server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(server)
}

// drop returns a place. Call it with the lock held.
func (p *pool) drop(server guard.Server) {
	p.free++
	if p.waiting[server]--; p.waiting[server] == 0 {
		delete(p.waiting, server)
	}
}

// later returns when a reconcile comes back for which there was no place.
func (p *pool) later() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused.Refuse(firstRetry, lastRetry, maxWaiting)
}

// worker is the worker of one reconcile.
type worker struct {
	all    *pool
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	waits  int // waits under way: one may be part of another
	has    bool
	server guard.Server // for which it waits next
	// place is the server for which it has a place, from its first wait to its end.
	place    guard.Server
	hasPlace bool
}

// at says for which server the reconcile waits from now on.
func (w *worker) at(server guard.Server) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.server = server
}

// idle gives the worker away until resume is called. Without a place for it, the reconcile ends.
func (w *worker) idle() (resume func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.hasPlace || w.place != w.server {
		if !w.all.take(w.server, w.place, w.hasPlace) {
			w.cancel(errCrowded)
			return func() {}
		}
		w.place, w.hasPlace = w.server, true
	}
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
	case w.all.workers <- struct{}{}:
		w.has = true
	default:
	}
}

func (w *worker) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.giveAway()
	if w.hasPlace {
		w.all.leave(w.place)
	}
}

func (w *worker) giveAway() {
	if w.has {
		w.has = false
		<-w.all.workers
	}
}
