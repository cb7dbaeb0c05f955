// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Locks has a lock for each control plane. All that take Machines down in this process share one; the zero value is
// ready.
type Locks struct {
	mu    sync.Mutex
	locks map[client.ObjectKey]*lock
}

// lock is that of one control plane, by the name of its Cluster.
type lock struct {
	taken chan struct{} // has one element while the lock is taken
	users int           // who have it, or wait
}

// take waits for the locks of all control planes, in one order for all who do, and returns what ends that.
func (l *Locks) take(ctx context.Context, planes []client.ObjectKey) (end func(), err error) {
	planes = slices.Clone(planes)
	slices.SortFunc(planes, compareKeys)
	var taken []client.ObjectKey
	end = sync.OnceFunc(func() {
		for _, plane := range taken {
			<-l.get(plane).taken
			l.put(plane, 2)
		}
	})
	for _, plane := range slices.Compact(planes) {
		select {
		case l.get(plane).taken <- struct{}{}:
			taken = append(taken, plane)
		case <-ctx.Done():
			l.put(plane, 1)
			end()
			return nil, fmt.Errorf("waiting for what else is done to the control plane of Cluster %s: %w", plane, ctx.Err())
		}
	}
	return end, nil
}

func compareKeys(a, b client.ObjectKey) int { return strings.Compare(a.String(), b.String()) }

// get returns the lock of a control plane, with one more user.
func (l *Locks) get(plane client.ObjectKey) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.locks == nil {
		l.locks = map[client.ObjectKey]*lock{}
	}
	of := l.locks[plane]
	if of == nil {
		of = &lock{taken: make(chan struct{}, 1)}
		l.locks[plane] = of
	}
	of.users++
	return of
}

// put removes users of a lock, which goes with the last.
func (l *Locks) put(plane client.ObjectKey, users int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.locks[plane]
	if of.users -= users; of.users == 0 {
		delete(l.locks, plane)
	}
}
