// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"
)

type idleKey struct{}

// WithIdle returns a context whose user gives up its worker while it waits for a server: each call calls idle before it
// waits, and the returned function afterwards. It is for callers that share a limited number of workers. Both may be
// called many times, and resume may block.
func WithIdle(ctx context.Context, idle func() (resume func())) context.Context {
	return context.WithValue(ctx, idleKey{}, idle)
}

// Idle marks the user of the context as waiting, until it calls resume. Without WithIdle it does nothing.
func Idle(ctx context.Context) (resume func()) {
	if idle, ok := ctx.Value(idleKey{}).(func() func()); ok {
		return idle()
	}
	return func() {}
}

type serverKey struct{}

// WithServer returns a context whose user's next waits are for a server, as at is told: see At.
func WithServer(ctx context.Context, at func(Server)) context.Context {
	return context.WithValue(ctx, serverKey{}, at)
}

// At tells that the user of the context waits for a server from now on. Who shares workers does not give all of them to
// those who wait for one server.
func At(ctx context.Context, server Server) {
	if at, ok := ctx.Value(serverKey{}).(func(Server)); ok {
		at(server)
	}
}

// Lock is a mutex that is held during calls. Waiting for it respects the context and frees the worker. Make it with
// NewLock.
type Lock struct{ held chan struct{} }

// NewLock returns a lock that is free.
func NewLock() Lock { return Lock{held: make(chan struct{}, 1)} }

// Acquire waits for the lock, until the context ends.
func (l Lock) Acquire(ctx context.Context) (release func(), err error) {
	defer Idle(ctx)()
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for another call: %w", ctx.Err())
	}
}
