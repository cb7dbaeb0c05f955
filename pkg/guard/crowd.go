// SPDX-License-Identifier: Apache-2.0

package guard

import "time"

// LaterError means that what was wanted must wait for what others do. It is no failure.
type LaterError struct {
	// After is how long to wait before the next try.
	After time.Duration
	// What is what the caller waits for.
	What string
}

// Error names what the caller waits for.
func (e *LaterError) Error() string { return e.What }

// Lately is the period in which a Crowd is counted.
const Lately = 10 * time.Second

// Crowd counts those who were sent away lately. It is not safe for concurrent use; the zero value is ready.
type Crowd struct {
	refused int
	counted time.Time
}

// Refuse sends one away, and returns when to come back: the later the more were sent away, up to a limit.
func (c *Crowd) Refuse(first, limit time.Duration, places int) time.Duration {
	if c.IsOver() {
		c.refused, c.counted = 0, time.Now()
	}
	c.refused++
	return min(limit, first*time.Duration(1+c.refused/places))
}

// IsOver reports whether no caller was sent away lately.
func (c *Crowd) IsOver() bool { return time.Since(c.counted) > Lately }
