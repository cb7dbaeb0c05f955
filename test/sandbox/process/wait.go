// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Pause waits. It reports whether the time passed before the context ended.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// stopTimeout bounds AwaitEnd.
const stopTimeout = 10 * time.Minute

// AwaitEnd waits until all goroutines of a part of the sandbox have ended. DeadlineExceeded: they have not, after ten
// minutes.
func AwaitEnd(what string, goroutines *sync.WaitGroup) error {
	ended := make(chan struct{})
	go func() {
		goroutines.Wait()
		close(ended)
	}()
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-timer.C:
		return fmt.Errorf("%s have not ended after %s: %w", what, stopTimeout, context.DeadlineExceeded)
	}
}
