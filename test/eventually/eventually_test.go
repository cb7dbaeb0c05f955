// SPDX-License-Identifier: Apache-2.0

package eventually

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestWait(t *testing.T) {
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		limit    time.Duration // 0: none
		done     time.Duration // 0: never
		fails    error
		want     error
		min, max time.Duration // how long it waits
	}{
		"what is so at once":   {done: 1},
		"what is so later":     {done: 5 * time.Minute, min: 5 * time.Minute, max: 5*time.Minute + lastPause},
		"what is never so":     {want: context.DeadlineExceeded, min: Limit, max: Limit},
		"what the caller ends": {limit: time.Second, want: context.DeadlineExceeded, min: time.Second, max: time.Second},
		"what may take longer": {limit: 3 * Limit, done: 2 * Limit, min: 2 * Limit, max: 2*Limit + lastPause},
		"what fails":           {fails: broken, want: broken},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, began := t.Context(), time.Now()
				if tc.limit > 0 {
					limited, cancel := context.WithTimeout(ctx, tc.limit)
					defer cancel()
					ctx = limited
				}
				err := Wait(ctx, name, func() (bool, string, error) {
					return tc.done > 0 && (tc.done == 1 || time.Since(began) >= tc.done), "", tc.fails
				})
				waited := time.Since(began)
				if !errors.Is(err, tc.want) || waited < tc.min || waited > tc.max {
					t.Errorf("it ended after %s with %v, want %v after %s to %s", waited, err, tc.want, tc.min, tc.max)
				}
			})
		})
	}
}

func TestSucceedsWhenACallDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		Succeeds(t, "the third call succeeds", func(context.Context) error {
			if calls++; calls < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		True(t, "three calls were made", func() bool { return calls == 3 })
	})
}
