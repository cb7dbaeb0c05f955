// SPDX-License-Identifier: Apache-2.0

package guard

import "time"

// Elapsed returns the time between two readings of the clock, by that of its two parts which says more. The monotonic
// one stands still while the computer is suspended, and the other may be set back.
func Elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// Passed reports whether a time that was reckoned from the clock of this process is over: see Elapsed.
func Passed(at time.Time) bool { return Elapsed(at, time.Now()) > 0 }
