// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/cooldown"
)

const (
	// gatherLooks is how long a look at a host waits for another caller who wants one, too: VMs are deleted several at a time.
	gatherLooks = time.Second
	// maxGather is how long it waits at most for others, and for deletions on the host that are under way. A deletion takes seconds,
	// unless the host does not answer.
	maxGather = 30 * time.Second
	// lookRetry is when to come back for what another caller is waiting for, or doing.
	lookRetry = 2 * time.Second
	// composeWait is how long a compose waits for a look to end. A look takes seconds; with a host that does not answer it takes minutes.
	composeWait = 10 * time.Second
	// wantLasts is how long composes are held back for a look after it was last asked for, so that a caller who does not come back blocks no
	// others.
	wantLasts = 3 * lookRetry
	// firstLookRetry and maxLookRetry bound the growing pause after looks that failed.
	firstLookRetry = 5 * time.Second
	maxLookRetry   = time.Minute
	// rememberAsked is how long it is kept that a caller asked about a VM. Who asks for longer begins anew.
	rememberAsked = time.Hour
)

// LaterError says that MAAS can't be asked now, because of what it does on the host already. It is no failure.
type LaterError struct {
	// After is when to come back.
	After time.Duration
	what  string
}

// Error says what is waited for.
func (e *LaterError) Error() string { return e.what }

// HostRefresher has MAAS look at its hosts, and keeps such looks apart from composes there. It must be shared by all who compose or look there.
//
// MAAS must not look at a host while it composes a VM there. A look takes over a VM that is half made as one that it did not know: it
// is commissioned, and the compose is refused because its name is taken (MAAS retries a transaction that meets another, and then finds the
// name). Asked for by MAAS's UI, which looks before its transaction begins, it even deletes the machine with its new VM.
type HostRefresher struct {
	mu     sync.Mutex
	hosts  map[HostKey]*hostState
	asked  map[string]time.Time         // when a caller first asked whether a VM is gone, by VM and place
	silent *cooldown.Cooldowns[HostKey] // the hosts that did not answer MAAS, and did not since
}

// hostState is one host.
type hostState struct {
	composing, deleting int // calls under way
	looking             bool
	requestedAt         time.Time     // when a look was last asked for; zero: none is
	newest              time.Time     // the latest since of those who asked
	done                chan struct{} // closed when the look that is wanted or under way has ended
	seen                time.Time     // when the last look that succeeded began
	failures            int           // in a row
	failure             error         // the last look's
	next                time.Time     // when to look again after a failure
}

// NewHostRefresher makes one that knows of nothing.
func NewHostRefresher() *HostRefresher {
	return &HostRefresher{
		hosts: map[HostKey]*hostState{}, asked: map[string]time.Time{},
		silent: cooldown.New[HostKey](cooldown.Limits{First: cooldowns.First, Longest: cooldowns.First}),
	}
}

// host returns a host. The caller holds l.mu.
func (l *HostRefresher) host(key HostKey) *hostState {
	if l.hosts[key] == nil {
		l.hosts[key] = &hostState{}
	}
	return l.hosts[key]
}

// compose waits until a VM may be composed on a host; done must be called after it was. *LaterError: MAAS looks at the host for long.
func (l *HostRefresher) compose(ctx context.Context, host HostKey) (done func(), err error) {
	defer maas.Idle(ctx)()
	patience := time.NewTimer(composeWait)
	defer patience.Stop()
	for {
		busy := l.beginCompose(host)
		if busy == nil {
			return func() { l.change(host, func(h *hostState) { h.composing-- }) }, nil
		}
		select {
		case <-busy:
		case <-patience.C:
			return nil, &LaterError{After: lookRetry, what: "MAAS looks which VMs the host has; nothing is composed there meanwhile"}
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting until MAAS has looked at the VM host: %w", ctx.Err())
		}
	}
}

// beginCompose notes that a VM is composed. If that is not possible now, it returns a channel that is closed when it may be tried again.
func (l *HostRefresher) beginCompose(host HostKey) (busy <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.host(host)
	if h.looking || (!h.requestedAt.IsZero() && time.Since(h.requestedAt) < wantLasts) {
		return h.done
	}
	h.composing++
	return nil
}

// remove notes that a VM is being deleted on a host; done must be called after it was. No deletion waits for another: it is only for looks to be
// fewer. What was asked about the VM before counts no more.
func (l *HostRefresher) remove(host HostKey, vm string) (done func()) {
	l.forget(vm)
	l.change(host, func(h *hostState) { h.deleting++ })
	return func() { l.change(host, func(h *hostState) { h.deleting-- }) }
}

func (l *HostRefresher) change(host HostKey, do func(*hostState)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do(l.host(host))
}

// askedSince is when it was first asked whether a VM is gone from a place. A look that began later tells.
func (l *HostRefresher) askedSince(vm, place string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for key, at := range l.asked {
		if now.Sub(at) > rememberAsked {
			delete(l.asked, key)
		}
	}
	key := vm + "@" + place
	if _, known := l.asked[key]; !known {
		l.asked[key] = now
	}
	return l.asked[key]
}

// forget drops what was asked about a VM.
func (l *HostRefresher) forget(vm string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.asked {
		if strings.HasPrefix(key, vm+"@") {
			delete(l.asked, key)
		}
	}
}

// lookFailedError is why MAAS could not look at a host.
type lookFailedError struct {
	after time.Duration // when to try again
	cause error
}

func (e *lookFailedError) Error() string { return e.cause.Error() }

func (e *lookFailedError) Unwrap() error { return e.cause }

// look makes sure that a host was looked at by a look that began after since: by another caller's, or with do. *LaterError: not yet;
// *lookFailedError: do failed, here or elsewhere a moment ago.
func (l *HostRefresher) look(ctx context.Context, host HostKey, since time.Time, do func(context.Context) error) error {
	began, err := l.beginLook(host, since)
	if began.IsZero() {
		return err
	}
	err = fmt.Errorf("it was cut off") // A panic must not leave the host locked.
	defer func() { l.endLook(host, began, err) }()
	if err = do(ctx); err != nil {
		return &lookFailedError{after: firstLookRetry, cause: err}
	}
	return nil
}

// beginLook returns when the look began that the caller has to do, or zero and why there is none to do.
func (l *HostRefresher) beginLook(host HostKey, since time.Time) (time.Time, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, now := l.host(host), time.Now()
	later := func(after time.Duration) (time.Time, error) {
		return time.Time{}, &LaterError{After: after, what: "MAAS looks which VMs the host has"}
	}
	switch {
	case h.seen.After(since):
		return time.Time{}, nil
	case now.Before(h.next):
		return time.Time{}, &lookFailedError{after: h.next.Sub(now), cause: h.failure}
	case h.looking:
		return later(lookRetry)
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
	case alone < gatherLooks && !longAgo:
		return later(gatherLooks - alone)
	case h.composing > 0, h.deleting > 0 && !longAgo:
		return later(lookRetry)
	}
	h.looking = true
	return now, nil
}

func (l *HostRefresher) endLook(host HostKey, began time.Time, err error) {
	l.change(host, func(h *hostState) {
		h.looking, h.requestedAt = false, time.Time{}
		close(h.done)
		h.done = nil
		if err == nil {
			h.seen, h.failures, h.failure, h.next = began, 0, nil, time.Time{}
			l.silent.Clear(host)
			return
		}
		if isOurOwn(err) {
			return // Others may be able to.
		}
		h.failures++
		h.failure, h.next = err, time.Now().Add(maas.Doubled(firstLookRetry, maxLookRetry, h.failures))
		if blames(err) {
			l.silent.Fail(host)
		}
	})
}

// tell marks the hosts that did not answer MAAS when it last looked. They are skipped for a while: what replaces a VM that went down with its
// host must not wait for that host, and a zone that has no other is no failure domain meanwhile.
func (l *HostRefresher) tell(hosts []Host) {
	for i := range hosts {
		if e, cooling := l.silent.Get(hosts[i].Key()); cooling {
			hosts[i].coolDown(e.Until, toAnswer)
		}
	}
}
