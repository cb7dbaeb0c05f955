// SPDX-License-Identifier: Apache-2.0

// Package cache shares the responses of servers among all callers that ask for the same.
package cache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

// Value is one response, shared by all callers. Callers during a fetch wait for its result. The zero value is ready.
type Value[T any] struct {
	mu     sync.Mutex
	value  T
	at     time.Time // when it was requested
	flight *flight[T]
	given  time.Time // when Values gave it to a caller first, who has yet to ask
}

// flight is a fetch under way.
type flight[T any] struct {
	asked time.Time
	done  chan struct{}
	// Set when done is closed.
	value     T
	err       error
	cancelled bool // the fetch ended because its caller's context did
}

// Get returns a value that is no older than maxAge, or was requested after Get was called. Callers that wait for a
// fetch that fails share its error.
func (v *Value[T]) Get(
	ctx context.Context, maxAge time.Duration, fetch func(context.Context) (T, error),
) (T, error) {
	value, _, err := v.GetAt(ctx, maxAge, fetch)
	return value, err
}

// GetAt is Get, and returns when the value was requested.
func (v *Value[T]) GetAt(
	ctx context.Context, maxAge time.Duration, fetch func(context.Context) (T, error),
) (T, time.Time, error) {
	called := time.Now()
	recent := func(asked time.Time) bool { return !asked.Before(called) || called.Sub(asked) <= maxAge }
	for {
		value, at, f, mine := v.join(recent)
		if f == nil {
			return value, at, nil
		}
		if mine {
			v.fetch(ctx, f, fetch)
			return f.value, f.asked, f.err
		}
		if err := f.wait(ctx); err != nil {
			return value, time.Time{}, err
		}
		if recent(f.asked) && !f.cancelled {
			return f.value, f.asked, f.err
		}
	}
}

// Await is Get with a fetch that goes on, within life, when the caller's context ends.
func (v *Value[T]) Await(
	ctx, life context.Context, maxAge time.Duration, fetch func(context.Context) (T, error),
) (T, error) {
	called := time.Now()
	value, _, f, mine := v.join(func(asked time.Time) bool { return called.Sub(asked) <= maxAge })
	if f == nil {
		return value, nil
	}
	if mine {
		go v.fetch(life, f, fetch)
	}
	if err := f.wait(ctx); err != nil {
		return value, err
	}
	return f.value, f.err
}

// join returns the value if it is recent, else the fetch under way, else a new one that the caller must do.
func (v *Value[T]) join(recent func(time.Time) bool) (value T, at time.Time, f *flight[T], mine bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.at.IsZero() && recent(v.at) {
		return v.value, v.at, nil, false
	}
	if mine = v.flight == nil; mine {
		v.flight = &flight[T]{asked: time.Now(), done: make(chan struct{})}
	}
	return value, at, v.flight, mine
}

// Last returns the last value, and when it was requested; zero if there is none.
func (v *Value[T]) Last() (T, time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.value, v.at
}

// fetch stores its result, unless a write came in between.
func (v *Value[T]) fetch(ctx context.Context, f *flight[T], fetch func(context.Context) (T, error)) {
	f.err, f.cancelled = errCutOff, true // For the waiting callers, if fetch panics.
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.flight == f {
			v.flight = nil
			if f.err == nil {
				v.value, v.at = f.value, f.asked
			}
		}
		close(f.done)
	}()
	value, err := fetch(ctx)
	if err == nil {
		f.value = value
	}
	f.err, f.cancelled = err, err != nil && ctx.Err() != nil
}

var errCutOff = errors.New("the call was interrupted")

func (f *flight[T]) wait(ctx context.Context) error {
	defer guard.Idle(ctx)()
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for another caller's request: %w", ctx.Err())
	}
}

// Set stores the result of a write.
func (v *Value[T]) Set(value T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.value, v.at, v.flight = value, time.Now(), nil
}

// Drop forgets the value, and the result of a fetch under way.
func (v *Value[T]) Drop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.at, v.flight = time.Time{}, nil
}

// isOlder reports whether there is nothing that was requested within a time, nor a fetch under way, nor a caller that
// is about to begin one.
func (v *Value[T]) isOlder(than time.Duration) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.flight == nil && time.Since(v.at) > than && time.Since(v.given) > than
}

// Values are one Value for each key. The zero value is ready.
type Values[K comparable, T any] struct {
	mu     sync.Mutex
	values map[K]*Value[T]
}

// At returns the Value of a key.
func (v *Values[K, T]) At(key K) *Value[T] { return v.Within(key, math.MaxInt64, math.MaxInt) }

// Within is At for what is kept for a time at most, and for so many keys. Beyond that, nothing is kept.
func (v *Values[K, T]) Within(key K, keep time.Duration, most int) *Value[T] {
	v.mu.Lock()
	defer v.mu.Unlock()
	if has := v.values[key]; has != nil && !has.isOlder(keep) {
		return has
	}
	maps.DeleteFunc(v.values, func(_ K, other *Value[T]) bool { return other.isOlder(keep) })
	made := &Value[T]{given: time.Now()}
	if v.values == nil {
		v.values = map[K]*Value[T]{}
	}
	if len(v.values) < most {
		v.values[key] = made
	}
	return made
}

// Drop forgets the value of a key.
func (v *Values[K, T]) Drop(key K) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.values, key)
}

// DropAll forgets all values.
func (v *Values[K, T]) DropAll() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.values = nil
}
