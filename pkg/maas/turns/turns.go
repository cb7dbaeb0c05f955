// SPDX-License-Identifier: Apache-2.0

// Package turns queues callers where MAAS does one thing after the other anyway. Many concurrent requests make MAAS
// slower: each allocate and deploy takes a lock of the whole region, those that waited for it restart, and MAAS gives
// up some of them (maas.Busy).
package turns

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

const (
	// maxWait is how long a caller waits for its turn. What it knows must not become too old meanwhile.
	maxWait = time.Minute
	// maxWaiting bounds how many wait for one server, so that callers there that need no turn find a place.
	maxWaiting = 64
	// maxWaitingAgain is as many as may wait when one joins that MAAS refused before.
	maxWaitingAgain = maxWaiting / 2
	// retry is how long a caller that could not wait, or waited too long, stays away. It grows with the number of such
	// callers, up to maxRetry: otherwise the workers would do little else.
	retry    = 5 * time.Second
	maxRetry = time.Minute
)

// Line is something that MAAS does one after the other, or a few at a time.
type Line struct {
	name, what string
	limit      int
	host       guard.Key // of a line at one host; otherwise zero
}

// Machines is for allocate and deploy, of which MAAS does one at a time for the whole region. Two keep it busy while
// one request is in transit.
var Machines = Line{name: "machines", what: "MAAS acquires and deploys machines one after the other", limit: 2}

// Removal is for releases and deletions, so that they don't use all connections.
var Removal = Line{name: "removal", what: "MAAS gives back other machines first", limit: 8}

// Tests is for starts of tests: how many machines are tested is counted before each.
var Tests = Line{name: "tests", what: "MAAS starts other tests first", limit: 1}

// RemovalFrom is Removal for what the LXD of an LXDHost gives back, by the reference to that: it may be as slow as
// whoever added it wants, and holds up no other.
func RemovalFrom(host string) Line {
	return Line{what: "LXD gives back other machines first", limit: Removal.limit,
		host: guard.ServerAt(host, nil).Key(Removal.name)}
}

// OnHost is for composing VMs on one VM host, which makes one after the other.
func OnHost(host guard.Key, name string) Line {
	return Line{what: fmt.Sprintf("VM host %s composes one VM after the other", name), limit: 1, host: host}
}

// at returns the key of the line for a MAAS: that of a host is the same for all.
func (l Line) at(server guard.Server) guard.Key {
	if l.host != (guard.Key{}) {
		return l.host
	}
	return server.Key(l.name)
}

// later returns the error of a turn that did not come within the time that the caller may wait.
func (l Line) later(after time.Duration) error {
	return &guard.LaterError{After: after, What: "waiting for a turn: " + l.what}
}

// Rank decides who is next: the caller closest to its end.
type Rank int

// From the first to the last step of a machine. Again is for any of them that MAAS refused when it was last tried, and
// may refuse for ever: it comes last, and leaves places to wait to others.
const (
	Again Rank = iota
	Acquire
	Claim
	Deploy
)

// Turns are the lines of all servers of a process. Each server has its own bound of those who wait: a slow one sends
// nobody away from another. It is safe for concurrent use; the zero value is ready.
type Turns struct {
	mu     sync.Mutex
	lines  map[guard.Key]*line
	queues map[guard.Server]*queue
}

type line struct {
	taken   int
	waiting []*waiter
}

// queue is all who wait in the lines of one server.
type queue struct {
	waiting int
	refused guard.Crowd // the callers that could not wait
}

type waiter struct {
	rank Rank
	turn chan struct{} // closed when it is its turn
}

// Take waits for a turn in a line of one MAAS; done ends the turn. *guard.LaterError: the wait was too long, or too
// many wait there. The caller's worker is free meanwhile: see guard.Idle.
func (t *Turns) Take(ctx context.Context, server guard.Server, at Line, rank Rank) (done func(), err error) {
	key := at.at(server)
	done = sync.OnceFunc(func() { t.leave(key) })
	w, err := t.enter(key, at, rank)
	if err != nil || w == nil {
		return done, err
	}
	guard.At(ctx, key.Server())
	defer guard.Idle(ctx)()
	patience := time.NewTimer(maxWait)
	defer patience.Stop()
	select {
	case <-w.turn:
		return done, nil
	case <-patience.C:
		err = at.later(retry)
	case <-ctx.Done():
		err = fmt.Errorf("waiting for a turn: %w", ctx.Err())
	}
	if t.giveUp(key, w) {
		return nil, err
	}
	return done, nil // The turn came in the same moment.
}

// enter takes a free turn, or joins the line.
func (t *Turns) enter(key guard.Key, at Line, rank Rank) (*waiter, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines == nil {
		t.lines, t.queues = map[guard.Key]*line{}, map[guard.Server]*queue{}
	}
	l := t.lines[key]
	if l == nil {
		l = &line{}
		t.lines[key] = l
	}
	if l.taken < at.limit {
		l.taken++
		return nil, nil
	}
	all := t.queue(key.Server())
	if all.waiting >= maxWaiting || rank == Again && all.waiting >= maxWaitingAgain {
		return nil, at.later(all.refused.Refuse(retry, maxRetry, maxWaiting))
	}
	all.waiting++
	w := &waiter{rank: rank, turn: make(chan struct{})}
	// Behind all of the same or a higher rank.
	next := slices.IndexFunc(l.waiting, func(other *waiter) bool { return other.rank < rank })
	if next < 0 {
		next = len(l.waiting)
	}
	l.waiting = slices.Insert(l.waiting, next, w)
	return w, nil
}

// queue returns who waits for a server, and forgets the servers for which no caller waits. Call it with the lock held.
func (t *Turns) queue(server guard.Server) *queue {
	maps.DeleteFunc(t.queues, func(_ guard.Server, q *queue) bool {
		return q.waiting == 0 && q.refused.IsOver()
	})
	if t.queues[server] == nil {
		t.queues[server] = &queue{}
	}
	return t.queues[server]
}

// leave ends a turn, and passes it to the next caller.
func (t *Turns) leave(key guard.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[key]
	if len(l.waiting) > 0 {
		close(l.waiting[0].turn)
		l.waiting = l.waiting[1:]
		t.queues[key.Server()].waiting--
		return
	}
	if l.taken--; l.taken == 0 {
		delete(t.lines, key)
	}
}

// giveUp ends the wait; false means that the waiter already had its turn.
func (t *Turns) giveUp(key guard.Key, w *waiter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[key]
	if l == nil {
		return false
	}
	at := slices.Index(l.waiting, w)
	if at < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, at, at+1)
	t.queues[key.Server()].waiting--
	return true
}
