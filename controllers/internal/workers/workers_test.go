// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
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

// Whatever waits for one server, or for a few, there is a place for who waits for another.
func TestWhoWaitsForOneServerLeavesPlacesForAnother(t *testing.T) {
	for name, slow := range map[string]int{"one slow server": 1, "several slow servers": 5} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var waiting, asked atomic.Int32
				release := make(chan struct{})
				options := controller.Options{MaxConcurrentReconciles: 2}
				r := Limit(reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
					guard.At(ctx, guard.ServerAt(request.Namespace, nil))
					defer guard.Idle(ctx)()
					if ctx.Err() != nil {
						return reconcile.Result{}, ctx.Err()
					}
					if request.Namespace == "good" {
						asked.Add(1)
						return reconcile.Result{}, nil
					}
					waiting.Add(1)
					<-release
					return reconcile.Result{}, nil
				}), &options)
				var all sync.WaitGroup
				var sentAway atomic.Int32
				reconcileIn := func(namespace string) {
					result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace}})
					if err != nil {
						t.Errorf("%s: %v", namespace, err)
					}
					if result.RequeueAfter > 0 {
						sentAway.Add(1)
					}
				}
				for n := range slow {
					for range options.MaxConcurrentReconciles {
						all.Go(func() { reconcileIn(fmt.Sprint("slow-", n)) })
						synctest.Wait()
					}
				}
				if got, want := int(waiting.Load()+sentAway.Load()), slow*options.MaxConcurrentReconciles; got != want || sentAway.Load() == 0 {
					t.Errorf("%d wait or come back later, %d of them later; want %d", got, sentAway.Load(), want)
				}
				if got := int(waiting.Load()); got >= maxWaiting {
					t.Errorf("%d wait for slow servers, which are all places", got)
				}
				before := sentAway.Load()
				reconcileIn("good")
				if asked.Load() != 1 || sentAway.Load() != before {
					t.Error("a reconcile that waits for another server found no place")
				}
				close(release)
				all.Wait()
				reconcileIn("slow-0")
				if sentAway.Load() != before {
					t.Error("the places are not free again")
				}
			})
		})
	}
}

// A reconcile that got a place keeps it: it is not ended half done.
func TestAReconcileThatHasAPlaceKeepsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		options := controller.Options{MaxConcurrentReconciles: 2}
		first, second, others := make(chan struct{}), make(chan struct{}), make(chan struct{})
		r := Limit(reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			guard.At(ctx, guard.ServerAt("slow", nil))
			resume := guard.Idle(ctx)
			if request.Name != "first" {
				<-others
				resume()
				return reconcile.Result{}, nil
			}
			<-first
			resume()
			resume = guard.Idle(ctx)
			<-second
			resume()
			return reconcile.Result{}, ctx.Err()
		}), &options)
		done := make(chan reconcile.Result, 1)
		go func() {
			result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "first"}})
			if err != nil {
				t.Error(err)
			}
			done <- result
		}()
		synctest.Wait()
		var all sync.WaitGroup
		for range maxWaiting {
			all.Go(func() { _, _ = r.Reconcile(t.Context(), reconcile.Request{}) })
		}
		synctest.Wait()
		close(first)
		synctest.Wait()
		close(second)
		if result := <-done; result.RequeueAfter != 0 {
			t.Error("a reconcile that had a place was ended, because many others wait")
		}
		close(others)
		all.Wait()
	})
}

// What only waits comes back with a growing backoff, and is no error, which would be in the log as one.
func TestAReconcileThatOnlyWaitsIsNoError(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		isWait bool
	}{
		"MAAS does not respond": {&maas.Error{Kind: maas.Unavailable}, true},
		"a bug":                 {errors.New("a bug"), false},
	} {
		result, err := Limit(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			return report.Explain(tc.err).Result(tc.err)
		}), &controller.Options{}).Reconcile(t.Context(), reconcile.Request{})
		if (err == nil) != tc.isWait || result.IsZero() == tc.isWait {
			t.Errorf("%s: %+v, %v; want a wait: %t", name, result, err, tc.isWait)
		}
	}
}
