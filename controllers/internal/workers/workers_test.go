// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

// Reconciles that wait for MAAS free their workers for others, however few workers there are.
func TestAReconcileThatWaitsForMAASHoldsNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 20
		var computing, most atomic.Int32
		release := make(chan struct{})
		options := controller.Options{MaxConcurrentReconciles: 2}
		r := Limit(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			most.Store(max(most.Load(), computing.Add(1)))
			computing.Add(-1)
			outer := guard.Idle(ctx)
			inner := guard.Idle(ctx) // One wait may be part of another.
			<-release
			inner()
			outer()
			return reconcile.Result{}, nil
		}), &options)
		if options.MaxConcurrentReconciles < many {
			t.Fatalf("only %d reconciles may be under way", options.MaxConcurrentReconciles)
		}
		done := make(chan error, many)
		for range many {
			go func() {
				_, err := r.Reconcile(t.Context(), reconcile.Request{})
				done <- err
			}()
		}
		synctest.Wait() // All of them wait: no wait blocks another one.
		close(release)
		for range many {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if got := most.Load(); got > 2 {
			t.Errorf("%d reconciles computed at once, want 2 at most", got)
		}
	})
}

// A reconcile that waits for MAAS while it holds a lock must not wait for a worker when it resumes: the reconciles that
// have all workers may wait for its lock.
func TestReconcilesThatWaitForEachOtherEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 20
		lock := make(chan struct{}, 1)
		options := controller.Options{MaxConcurrentReconciles: 2}
		r := Limit(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			lock <- struct{}{}
			defer func() { <-lock }()
			resume := guard.Idle(ctx)
			<-time.After(time.Second)
			resume()
			return reconcile.Result{}, nil
		}), &options)
		done := make(chan error, many)
		for range many {
			go func() {
				_, err := r.Reconcile(t.Context(), reconcile.Request{})
				done <- err
			}()
		}
		for range many {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
