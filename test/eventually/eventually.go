// SPDX-License-Identifier: Apache-2.0

// Package eventually waits until something is so, for tests and for the sandbox.
package eventually

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Limit bounds a wait. It only ends one that hangs: on a busy computer everything takes ten times as long.
const Limit = 10 * time.Minute

// The first looks are soon one after the other, the later ones keep no API server busy.
const firstPause, lastPause = 10 * time.Millisecond, 400 * time.Millisecond

// Wait calls check until it is done, fails, or the context ends: after Limit, if it has no deadline. The error then names
// what was waited for, and the last status.
func Wait(ctx context.Context, what string, check func() (done bool, status string, err error)) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, Limit)
		defer cancel()
	}
	for pause := firstPause; ; pause = min(pause*3/2, lastPause) {
		done, status, err := check()
		if err != nil {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w; last seen: %s", what, context.Cause(ctx), status)
		case <-time.After(pause):
		}
	}
}

// True waits until a condition holds, and ends the test if it never does, with what else is to be seen then.
func True(t testing.TB, what string, holds func() bool, seen ...func() any) {
	t.Helper()
	err := Wait(t.Context(), "this: "+what, func() (bool, string, error) { return holds(), "that it does not hold", nil })
	if err == nil {
		return
	}
	for _, last := range seen {
		t.Log(last())
	}
	t.Fatal(err)
}

// Succeeds waits until a call succeeds, and ends the test if it never does, with the call's last error.
func Succeeds(t testing.TB, what string, call func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	defer cancel()
	err := Wait(ctx, "this: "+what, func() (bool, string, error) {
		last := call(ctx)
		return last == nil, fmt.Sprint(last), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
