// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

func TestAQueueThatStopsLetsAllWorkersGo(t *testing.T) {
	const workers, rounds = 20, 100
	for round := range rounds {
		limiter := workqueue.DefaultTypedItemBasedRateLimiter[reconcile.Request]()
		q := newQueue(workers)(t.Name(), limiter).(priorityqueue.PriorityQueue[reconcile.Request])
		var wait sync.WaitGroup
		busy := make(chan struct{}, 100*workers)
		for worker := range workers {
			wait.Go(func() {
				for n := 0; ; n++ {
					q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: fmt.Sprint(worker, n)}})
					request, _, stopped := q.GetWithPriority()
					if stopped {
						return
					}
					q.Done(request)
					select {
					case busy <- struct{}{}:
					default:
					}
				}
			})
		}
		for range cap(busy) / 2 { // The queue is at work when it stops.
			<-busy
		}
		q.ShutDown()
		gone := make(chan struct{})
		go func() { defer close(gone); wait.Wait() }()
		select {
		case <-gone:
		case <-time.After(eventually.Limit):
			t.Fatalf("round %d: workers wait for a queue that has stopped", round)
		}
		if !q.ShuttingDown() {
			t.Fatal("a queue that was stopped does not say so")
		}
	}
}
