// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// gather is how long to wait for further machines before polling a new one.
	gather = 200 * time.Millisecond
	// maxBackoff is the longest time between two tries while MAAS can't be read.
	maxBackoff = 30 * time.Second
)

// Run polls MAAS until the context ends, and closes the inventory's client then. With nothing tracked it sends nothing,
// unless MAAS does not respond: then it sends the probes.
func (i *Inventory) Run(ctx context.Context) {
	defer i.client.Close()
	defer i.end()
	failures := 0
	for {
		if err := i.poll(ctx); err != nil {
			failures++
			i.opts.Logger.V(1).Info("MAAS can't be read", "error", err.Error(), "failures", failures)
		} else {
			failures = 0
		}
		if !i.pause(ctx, failures) {
			return
		}
	}
}

// pause waits until the next poll is due; false means that the context ended.
func (i *Inventory) pause(ctx context.Context, failures int) bool {
	next, wake, soon := i.untilSweep(), i.wake, i.soon
	if left, waiting := i.client.NextProbe(); waiting {
		next, wake, soon = left, nil, nil // Then the next poll is the probe.
	} else if failures > 0 {
		next, wake, soon = jitter(min(i.opts.ActiveInterval<<min(failures-1, 16), maxBackoff)), nil, nil
	} else if len(i.due()) > 0 {
		next = min(next, i.opts.ActiveInterval)
	}
	ends := i.now().Add(next)
	for {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(ends.Sub(i.now())):
			return true
		case <-i.client.StateChanged():
			return true
		case <-wake:
			return sleep(ctx, gather)
		case <-soon:
			if at := i.now().Add(i.opts.ActiveInterval); at.Before(ends) {
				ends = at
			}
		}
	}
}

// untilSweep returns the time until the next sweep.
func (i *Inventory) untilSweep() time.Duration {
	at := i.pace.due
	if i.pace.wanted || at.Before(i.pace.rested) {
		at = i.pace.rested
	}
	return at.Sub(i.now())
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// jitter adds up to a fifth, so that several managers don't poll at the same time.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration(rand.Int64N(int64(d)/5+1)) // Not a secret.
}
