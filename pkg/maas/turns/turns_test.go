// SPDX-License-Identifier: Apache-2.0

package turns

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var host = OnHost("1", "lxd-a")

func take(t *testing.T, turns *Turns, line Line, rank Rank) (done func()) {
	t.Helper()
	done, err := turns.Take(t.Context(), "maas", line, rank)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func TestWhoIsNearestToTheEndIsNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := &Turns{}
		done := take(t, turns, host, Acquire)
		var order []string
		for _, next := range []struct {
			name string
			rank Rank
		}{{"first", Acquire}, {"second", Acquire}, {"claim", Claim}, {"deploy", Deploy}, {"later deploy", Deploy}} {
			go func() {
				defer take(t, turns, host, next.rank)()
				order = append(order, next.name)
			}()
			synctest.Wait()
		}
		done()
		synctest.Wait()
		if want := []string{"deploy", "later deploy", "claim", "first", "second"}; !slices.Equal(order, want) {
			t.Errorf("the order was %v, want %v", order, want)
		}
		if len(turns.lines) != 0 || turns.waiting != 0 {
			t.Errorf("lines without anybody in them are left: %+v", turns)
		}
	})
}

func TestALineHasItsLimitAndOthersAreFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var taken atomic.Int32
		turns, over := &Turns{}, make(chan struct{})
		for range 2 * Machines.limit {
			go func() {
				defer take(t, turns, Machines, Deploy)()
				taken.Add(1)
				<-over
			}()
		}
		synctest.Wait()
		if got := int(taken.Load()); got != Machines.limit {
			t.Errorf("%d have a turn at once, want %d", got, Machines.limit)
		}
		take(t, turns, host, Acquire)()
		done, err := turns.Take(t.Context(), "another MAAS", Machines, Acquire)
		if err != nil {
			t.Fatal(err)
		}
		done()
		close(over)
		synctest.Wait()
		if got := int(taken.Load()); got != 2*Machines.limit {
			t.Errorf("%d had a turn in the end, want all", got)
		}
	})
}

func TestNobodyWaitsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := &Turns{}
		done := take(t, turns, host, Acquire)
		var later *LaterError
		if _, err := turns.Take(t.Context(), "maas", host, Acquire); !errors.As(err, &later) || later.After <= 0 {
			t.Errorf("the error is %v, want a *LaterError", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := turns.Take(ctx, "maas", host, Acquire); !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v, want that the context was cancelled", err)
		}
		for range maxWaiting {
			go func() { _, _ = turns.Take(t.Context(), "maas", host, Acquire) }()
		}
		synctest.Wait()
		if _, err := turns.Take(t.Context(), "maas", host, Deploy); !errors.As(err, &later) {
			t.Errorf("the error is %v, want a *LaterError: too many wait", err)
		}
		first := later.After
		for range 4 * maxWaiting {
			_, _ = turns.Take(t.Context(), "maas", host, Deploy)
		}
		if _, err := turns.Take(t.Context(), "maas", host, Deploy); !errors.As(err, &later) || later.After <= first || later.After > maxRetry {
			t.Errorf("of many who can't wait, each is to come back after %s, the first after %s", later.After, first)
		}
		<-time.After(2 * lately)
		if _, err := turns.Take(t.Context(), "maas", host, Deploy); !errors.As(err, &later) || later.After > first {
			t.Errorf("when few can't wait, each is to come back after %s, want %s", later.After, first)
		}
		done()
	})
}
