// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/cooldown"
)

const (
	// gatherWindow is how long a refresh waits for further callers: VMs are deleted several at a time.
	gatherWindow = time.Second
	// maxGather bounds how long a refresh waits for further callers and for deletions under way on the host. A deletion
	// takes seconds, unless the host does not respond.
	maxGather = 30 * time.Second
	// refreshRetry is when to come back while another caller refreshes the host or waits for that.
	refreshRetry = 2 * time.Second
	// composeWait is how long a compose waits for a refresh to end. A refresh takes seconds; with a host that does not
	// respond it takes minutes.
	composeWait = 10 * time.Second
	// requestLasts is how long a refresh that was requested holds back composes, so that a caller that does not come
	// back blocks no others.
	requestLasts = 3 * refreshRetry
	// firstRefreshRetry and maxRefreshRetry bound the backoff after failed refreshes.
	firstRefreshRetry = 5 * time.Second
	maxRefreshRetry   = time.Minute
	// rememberAsked is how long the first question about a VM is kept. A later one begins anew.
	rememberAsked = time.Hour
)

// notLooked is for a host that could not be looked at before a VM was made there: nothing was asked for. The error of
// MAAS itself would mean that the VM may come.
func notLooked(err error) error {
	return &guard.LaterError{After: refreshRetry,
		What: "whether it may still have the VM could not be read: " + err.Error()}
}

// HostRefresher lets many callers share one look at a host: a refresh of a VM host by MAAS, or a list of an LXD's own.
//
// It makes MAAS refresh its VM hosts, and never while MAAS composes a VM there. All who compose or refresh
// must share it, with whatever key of whatever MAAS.
//
// A refresh during a compose takes the unfinished VM for an unknown one: MAAS creates a machine for it and commissions
// it, and refuses the compose because its name is taken (MAAS retries a transaction that conflicts with another, and
// then finds the name). A refresh by MAAS's UI, which reads the host before its transaction begins, even deletes the
// machine with its new VM.
type HostRefresher struct {
	mu     sync.Mutex
	hosts  map[HostKey]*hostState
	asked  map[question]time.Time       // when a caller first asked it
	silent *cooldown.Cooldowns[HostKey] // the hosts that did not respond to MAAS, and have not since
}

// question is whether a VM is gone from a host, by the reference that is recorded.
type question struct {
	vm   guard.Key
	host string
}

// hostState is one host.
type hostState struct {
	composing, deleting int // calls under way
	refreshing          bool
	requestedAt         time.Time     // when a refresh was last requested; zero: none is
	newest              time.Time     // the latest since of the callers
	done                chan struct{} // closed when the refresh that is requested or under way has ended
	seen                time.Time     // when the last successful refresh began
	failures            int           // in a row
	failure             error         // of the last refresh
	next                time.Time     // when to refresh again after a failure
	used                time.Time     // when it was last looked at
}

// NewHostRefresher returns a HostRefresher.
func NewHostRefresher() *HostRefresher {
	return &HostRefresher{
		hosts: map[HostKey]*hostState{}, asked: map[question]time.Time{},
		silent: cooldown.New[HostKey](cooldown.Limits{First: cooldowns.First, Longest: cooldowns.First}),
	}
}

// host returns the state of a host, and forgets the hosts of which nothing is known that counts. The caller holds r.mu.
func (r *HostRefresher) host(key HostKey) *hostState {
	if r.hosts[key] == nil {
		now := time.Now()
		maps.DeleteFunc(r.hosts, func(_ HostKey, h *hostState) bool { return h.isIdle() && now.Sub(h.used) > rememberAsked })
		r.hosts[key] = &hostState{}
	}
	r.hosts[key].used = time.Now()
	return r.hosts[key]
}

// isIdle reports whether nothing is under way on the host.
func (h *hostState) isIdle() bool {
	return h.composing == 0 && h.deleting == 0 && !h.refreshing
}

// compose waits until a VM may be composed on a host; call done after the compose. *guard.LaterError: a refresh of the
// host takes long.
func (r *HostRefresher) compose(ctx context.Context, host HostKey) (done func(), err error) {
	defer guard.Idle(ctx)()
	patience := time.NewTimer(composeWait)
	defer patience.Stop()
	for {
		busy := r.beginCompose(host)
		if busy == nil {
			return func() { r.change(host, func(h *hostState) { h.composing-- }) }, nil
		}
		select {
		case <-busy:
		case <-patience.C:
			return nil, &guard.LaterError{After: refreshRetry, What: "MAAS is refreshing its list of VMs on the host; " +
				"nothing is composed there meanwhile"}
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting until MAAS has refreshed the VM host: %w", ctx.Err())
		}
	}
}

// beginCompose counts a compose. If it can't begin now, beginCompose returns a channel that is closed when it may be
// tried again.
func (r *HostRefresher) beginCompose(host HostKey) (busy <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.host(host)
	if h.refreshing || (!h.requestedAt.IsZero() && time.Since(h.requestedAt) < requestLasts) {
		return h.done
	}
	h.composing++
	return nil
}

// remove counts a deletion of a VM on a host; call done after it. Deletions don't wait for each other: they only delay
// the refresh, so that one serves them all. Earlier questions about the VM are dropped.
func (r *HostRefresher) remove(host HostKey, vm guard.Key) (done func()) {
	r.forget(vm)
	r.change(host, func(h *hostState) { h.deleting++ })
	return func() { r.change(host, func(h *hostState) { h.deleting-- }) }
}

func (r *HostRefresher) change(host HostKey, do func(*hostState)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do(r.host(host))
}

// askedSince returns when a caller first asked whether a VM is gone from a host. A refresh that began later
// shows it.
func (r *HostRefresher) askedSince(vm guard.Key, host string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(r.asked, func(_ question, at time.Time) bool { return now.Sub(at) > rememberAsked })
	key := question{vm, host}
	if _, known := r.asked[key]; !known {
		r.asked[key] = now
	}
	return r.asked[key]
}

// forget drops the questions about a VM.
func (r *HostRefresher) forget(vm guard.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.asked, func(q question, _ time.Time) bool { return q.vm == vm })
}

// refreshFailedError is why MAAS could not refresh a host.
type refreshFailedError struct {
	after time.Duration // when to try again
	cause error
}

func (e *refreshFailedError) Error() string { return e.cause.Error() }

func (e *refreshFailedError) Unwrap() error { return e.cause }

// refresh makes sure that a refresh of the host began after since and succeeded: another caller's, or do.
// *guard.LaterError: not yet; *refreshFailedError: do failed, here or elsewhere a moment ago.
func (r *HostRefresher) refresh(
	ctx context.Context, host HostKey, since time.Time, do func(context.Context) error,
) error {
	began, err := r.beginRefresh(host, since)
	if began.IsZero() {
		return err
	}
	err = fmt.Errorf("the refresh was interrupted") // A panic must not leave the host locked.
	defer func() { r.endRefresh(host, began, err) }()
	if err = do(ctx); err != nil {
		return &refreshFailedError{after: firstRefreshRetry, cause: err}
	}
	return nil
}

// await refreshes and waits, for callers that need the result now. It never returns a *guard.LaterError.
func (r *HostRefresher) await(
	ctx context.Context, host HostKey, since time.Time, do func(context.Context) error,
) error {
	defer guard.Idle(ctx)()
	for {
		err := r.refresh(ctx, host, since, do)
		var later *guard.LaterError
		if !errors.As(err, &later) {
			return err
		}
		var made <-chan struct{}
		r.change(host, func(h *hostState) { made = h.done })
		select {
		case <-made:
		case <-time.After(later.After):
		case <-ctx.Done():
			return fmt.Errorf("waiting until others have asked the host, too: %w", ctx.Err())
		}
	}
}

// beginRefresh returns when the caller's own refresh begins. Zero: there is nothing to do, or the error says why not.
func (r *HostRefresher) beginRefresh(host HostKey, since time.Time) (time.Time, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, now := r.host(host), time.Now()
	later := func(after time.Duration) (time.Time, error) {
		return time.Time{}, &guard.LaterError{After: after, What: "MAAS is refreshing its list of VMs on the host"}
	}
	switch {
	case h.seen.After(since):
		return time.Time{}, nil
	case now.Before(h.next):
		return time.Time{}, &refreshFailedError{after: h.next.Sub(now), cause: h.failure}
	case h.refreshing:
		return later(refreshRetry)
	}
	if h.done == nil {
		h.done = make(chan struct{})
	}
	h.requestedAt = now
	if since.After(h.newest) {
		h.newest = since
	}
	alone, longAgo := now.Sub(h.newest), now.Sub(since) >= maxGather
	switch {
	case alone < gatherWindow && !longAgo:
		return later(gatherWindow - alone)
	case h.composing > 0, h.deleting > 0 && !longAgo:
		return later(refreshRetry)
	}
	h.refreshing = true
	return now, nil
}

func (r *HostRefresher) endRefresh(host HostKey, began time.Time, err error) {
	r.change(host, func(h *hostState) {
		h.refreshing, h.requestedAt = false, time.Time{}
		close(h.done)
		h.done = nil
		if err == nil {
			h.seen, h.failures, h.failure, h.next = began, 0, nil, time.Time{}
			r.silent.Clear(host)
			return
		}
		if isOurOwn(err) {
			return // Other callers may succeed.
		}
		h.failures++
		h.failure, h.next = err, time.Now().Add(guard.Doubled(firstRefreshRetry, maxRefreshRetry, h.failures))
		if blames(err) {
			r.silent.Fail(host)
		}
	})
}

// markCoolingDown marks the hosts that did not respond to MAAS at the last refresh. They are skipped for a while: the
// replacement of a VM that went down with its host must not wait for that host, and a zone without another host is no
// failure domain meanwhile.
func (r *HostRefresher) markCoolingDown(hosts []Host) {
	for i := range hosts {
		if e, cooling := r.silent.Get(hosts[i].Key()); cooling {
			hosts[i].coolDown(e.Until, toAnswer)
		}
	}
}
