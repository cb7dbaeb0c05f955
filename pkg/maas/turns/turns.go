// SPDX-License-Identifier: Apache-2.0

// Package turns queues callers where MAAS does one thing after the other anyway. Many concurrent requests make MAAS
// slower: each allocate and deploy takes a lock of the whole region, those that waited for it restart, and MAAS gives
// up some of them (maas.Busy).
package turns

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

const (
	// maxWait is how long a caller waits for its turn. What it knows must not become too old meanwhile.
	maxWait = time.Minute
	// maxWaiting bounds how many wait in all, so that callers that need no turn find a worker.
	maxWaiting = 64
	// retry is how long a caller that could not wait, or waited too long, stays away. It grows with the number of such
	// callers, up to maxRetry: otherwise the workers would do little else.
	retry    = 5 * time.Second
	maxRetry = time.Minute
	// lately is the period in which callers that could not wait are counted.
	lately = 10 * time.Second
)

// LaterError means that the caller's turn did not come within the time that it may wait.
type LaterError struct {
	// After is how long to wait before the next try.
	After time.Duration
	line  Line
}

// Error names what the caller waits for.
func (e *LaterError) Error() string { return "waiting for a turn: " + e.line.what }

// Line is something that MAAS does one after the other, or a few at a time.
type Line struct {
	name, what string
	limit      int
	anywhere   bool // the name includes the MAAS
}

// Machines is for allocate and deploy, of which MAAS does one at a time for the whole region. Two keep it busy while
// one request is in transit.
var Machines = Line{name: "machines", what: "MAAS acquires and deploys machines one after the other", limit: 2}

// Removal is for releases and deletions, so that they don't use all connections.
var Removal = Line{name: "removal", what: "MAAS gives back other machines first", limit: 8}

// OnHost is for composing VMs on one VM host, which makes one after the other. The key is unique over all MAASes.
func OnHost(key, name string) Line {
	return Line{name: key, what: fmt.Sprintf("VM host %s composes one VM after the other", name), limit: 1, anywhere: true}
}

// Rank decides who is next: the caller closest to its end.
type Rank int

// From the first to the last step of a machine.
const (
	Acquire Rank = iota
	Claim
	Deploy
)

// Turns are the lines of all MAASes of a process. It is safe for concurrent use; the zero value is ready.
type Turns struct {
	mu      sync.Mutex
	lines   map[string]*line
	waiting int
	// refused is how many callers could not wait since counted.
	refused int
	counted time.Time
}

type line struct {
	taken   int
	waiting []*waiter
}

type waiter struct {
	rank Rank
	turn chan struct{} // closed when it is its turn
}

// Take waits for a turn in a line of one MAAS; done ends the turn. *LaterError: the wait was too long, or too many
// wait. The caller's worker is free meanwhile: see guard.Idle.
func (t *Turns) Take(ctx context.Context, where string, at Line, rank Rank) (done func(), err error) {
	key := at.name
	if !at.anywhere {
		key = where + " " + at.name
	}
	done = sync.OnceFunc(func() { t.leave(key) })
	w, err := t.enter(key, at, rank)
	if err != nil || w == nil {
		return done, err
	}
	defer guard.Idle(ctx)()
	patience := time.NewTimer(maxWait)
	defer patience.Stop()
	select {
	case <-w.turn:
		return done, nil
	case <-patience.C:
		err = &LaterError{After: retry, line: at}
	case <-ctx.Done():
		err = fmt.Errorf("waiting for a turn: %w", ctx.Err())
	}
	if t.giveUp(key, w) {
		return nil, err
	}
	return done, nil // The turn came in the same moment.
}

// enter takes a free turn, or joins the line.
func (t *Turns) enter(key string, at Line, rank Rank) (*waiter, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines == nil {
		t.lines = map[string]*line{}
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
	if t.waiting >= maxWaiting {
		return nil, &LaterError{After: t.refuse(), line: at}
	}
	t.waiting++
	w := &waiter{rank: rank, turn: make(chan struct{})}
	// Behind all of the same or a higher rank.
	next := slices.IndexFunc(l.waiting, func(other *waiter) bool { return other.rank < rank })
	if next < 0 {
		next = len(l.waiting)
	}
	l.waiting = slices.Insert(l.waiting, next, w)
	return w, nil
}

// refuse counts a caller that can't wait, and returns when it should come back. Call it with the lock held.
func (t *Turns) refuse() time.Duration {
	if time.Since(t.counted) > lately {
		t.refused, t.counted = 0, time.Now()
	}
	t.refused++
	return min(maxRetry, retry*time.Duration(1+t.refused/maxWaiting))
}

// leave ends a turn, and passes it to the next caller.
func (t *Turns) leave(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[key]
	if len(l.waiting) > 0 {
		close(l.waiting[0].turn)
		l.waiting = l.waiting[1:]
		t.waiting--
		return
	}
	if l.taken--; l.taken == 0 {
		delete(t.lines, key)
	}
}

// giveUp ends the wait; false means that the waiter already had its turn.
func (t *Turns) giveUp(key string, w *waiter) bool {
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
	t.waiting--
	return true
}
