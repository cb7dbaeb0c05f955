// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"time"
)

// Grace is how long after the end of a context a call that is under way may take: a program that is told to stop lets
// it end, and learns what became of it. The manager's pod has longer to stop.
const Grace = 10 * time.Second

// lingers is the key of the value that a context of Linger carries.
type lingers struct{}

// Linger returns a context that lasts for Grace longer than its parent, if that is canceled; the parent's deadline is
// its own. Call end when what has begun is over. A context that was made from such a one lasts no longer.
func Linger(parent context.Context) (ctx context.Context, end context.CancelFunc) {
	if parent.Value(lingers{}) != nil {
		return context.WithCancel(parent)
	}
	ctx, cancel := context.WithCancel(context.WithValue(context.WithoutCancel(parent), lingers{}, true))
	if at, limited := parent.Deadline(); limited {
		ctx, cancel = context.WithDeadline(ctx, at)
	}
	stop := context.AfterFunc(parent, func() { time.AfterFunc(Grace, cancel) })
	return ctx, func() { stop(); cancel() }
}
