// SPDX-License-Identifier: Apache-2.0

// Package cooldown delays the next try of something that failed, longer after each further failure.
package cooldown

import (
	"maps"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

// Limits bound cooldowns.
type Limits struct {
	// First is the cooldown after the first failure. Each further one doubles it, up to Longest.
	First, Longest time.Duration
	// Remembered is how long after its cooldown a further failure still counts as one in a row.
	Remembered time.Duration
}

// Cooldowns are the recent failures, by key. It is safe for concurrent use, and forgotten with the process.
type Cooldowns[K comparable] struct {
	limits  Limits
	mu      sync.Mutex
	entries map[K]Entry
	clock   func() time.Time
}

// Entry is the cooldown of one key.
type Entry struct {
	// Failures is how often it failed in a row.
	Failures int
	Until    time.Time
}

// New returns Cooldowns in which nothing has failed.
func New[K comparable](limits Limits) *Cooldowns[K] {
	return &Cooldowns[K]{limits: limits, entries: map[K]Entry{}, clock: time.Now}
}

// SetClock sets the clock, for tests.
func (c *Cooldowns[K]) SetClock(now func() time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock = now
}

// Fail counts a failure and begins a cooldown.
func (c *Cooldowns[K]) Fail(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock()
	maps.DeleteFunc(c.entries, func(_ K, e Entry) bool { return now.Sub(e.Until) > c.limits.Remembered })
	e := c.entries[key]
	e.Failures++
	e.Until = now.Add(guard.Doubled(c.limits.First, c.limits.Longest, e.Failures))
	c.entries[key] = e
}

// Clear forgets the failures of a key that succeeded.
func (c *Cooldowns[K]) Clear(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, key)
}

// Get returns the cooldown of a key, and whether it is still cooling down.
func (c *Cooldowns[K]) Get(key K) (e Entry, cooling bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e = c.entries[key]
	return e, c.clock().Before(e.Until)
}
