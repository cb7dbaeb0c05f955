// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// queue is a priority queue whose ShutDown always lets all workers go. That of controller-runtime before 0.25 may hand
// a request to a worker that has just left, and hold its locks forever: the others never end, and the manager stops
// only after its grace period (kubernetes-sigs/controller-runtime#3538).
type queue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	workers int
	stopped atomic.Bool
	waiting sync.RWMutex // read-locked by each worker that waits for a request
	// next has the workers that wait for the next requests. The others wait to be among them, which takes no more than
	// half of the memory: most never have anything to do.
	next chan struct{}
}

// maxNext is how many workers wait for the next requests.
const maxNext = 10

type (
	rateLimiter = workqueue.TypedRateLimiter[reconcile.Request]
	requests    = workqueue.TypedRateLimitingInterface[reconcile.Request]
)

// newQueue returns a constructor of queues for this number of workers.
func newQueue(workers int) func(string, rateLimiter) requests {
	return func(name string, limiter rateLimiter) requests {
		return &queue{workers: workers, next: make(chan struct{}, maxNext), PriorityQueue: priorityqueue.New(name,
			func(o *priorityqueue.Opts[reconcile.Request]) { o.RateLimiter = limiter })}
	}
}

// GetWithPriority waits for a request, or for ShutDown.
func (q *queue) GetWithPriority() (reconcile.Request, int, bool) {
	q.waiting.RLock()
	defer q.waiting.RUnlock()
	q.next <- struct{}{}
	defer func() { <-q.next }()
	if q.stopped.Load() {
		return reconcile.Request{}, 0, true
	}
	request, priority, _ := q.PriorityQueue.GetWithPriority()
	return request, priority, q.stopped.Load()
}

// ShuttingDown says whether ShutDown was called.
func (q *queue) ShuttingDown() bool { return q.stopped.Load() }

// ShutDown wakes each worker by a request of its own, and ends the queue when none waits any more.
func (q *queue) ShutDown() {
	q.stopped.Store(true)
	wake := make([]reconcile.Request, q.workers)
	for i := range wake {
		wake[i].NamespacedName = client.ObjectKey{Name: "stop-" + strconv.Itoa(i)}
	}
	q.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(1)}, wake...)
	q.waiting.Lock()
	defer q.waiting.Unlock()
	q.PriorityQueue.ShutDown()
}
