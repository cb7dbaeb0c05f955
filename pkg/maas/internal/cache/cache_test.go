// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

// slow is a fetch that takes a second.
type slow struct {
	fetches atomic.Int32
	err     error
}

func (s *slow) fetch(ctx context.Context) (int, error) {
	n := int(s.fetches.Add(1))
	select {
	case <-time.After(time.Second):
		return n, s.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func TestCallersThatWaitShareTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Value[int]
		s := &slow{err: errors.New("no")}
		for range 10 {
			go func() {
				if _, err := c.Get(t.Context(), time.Minute, s.fetch); !errors.Is(err, s.err) {
					t.Errorf("the error is %v, want that of the fetch", err)
				}
			}()
		}
		<-time.After(time.Minute) // On the fake clock.
		if n := s.fetches.Load(); n != 1 {
			t.Errorf("ten callers made %d fetches", n)
		}
	})
}

func TestWhoWaitsGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Value[int]
		s := &slow{}
		go func() { _, _ = c.Get(t.Context(), time.Minute, s.fetch) }()
		synctest.Wait()
		resumed := 0
		ctx, cancel := context.WithTimeout(guard.WithIdle(t.Context(), func() func() { return func() { resumed++ } }), 100*time.Millisecond)
		defer cancel()
		if _, err := c.Get(ctx, time.Minute, s.fetch); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v, want that of the context", err)
		}
		if resumed != 1 {
			t.Errorf("it waited %d times without its worker, want once", resumed)
		}
		<-time.After(time.Second) // On the fake clock.
	})
}

func TestACancelledFetchIsDoneByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Value[int]
		s := &slow{}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		go func() { _, _ = c.Get(ctx, time.Minute, s.fetch) }()
		synctest.Wait()
		if value, err := c.Get(t.Context(), time.Minute, s.fetch); err != nil || value != 2 {
			t.Errorf("got %d, error %v; want what the second fetch got", value, err)
		}
	})
}

func TestAResponseWithoutAgeWasRequestedAfterTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Value[int]
		s := &slow{}
		go func() { _, _ = c.Get(t.Context(), 0, s.fetch) }()
		<-time.After(100 * time.Millisecond) // On the fake clock.
		for range 5 {
			go func() {
				called := time.Now()
				if value, at, err := c.GetAt(t.Context(), 0, s.fetch); err != nil || value != 2 || at.Before(called) {
					t.Errorf("got %d, asked for %s after the call, error %v", value, at.Sub(called), err)
				}
			}()
		}
		<-time.After(3 * time.Second) // On the fake clock.
		synctest.Wait()
		if n := s.fetches.Load(); n != 2 {
			t.Errorf("%d fetches, want one for all who called during the first", n)
		}
	})
}

func TestWritesOvertakeAFetch(t *testing.T) {
	for name, tc := range map[string]struct {
		write func(*Value[int])
		want  int
	}{
		"what was written":         {func(c *Value[int]) { c.Set(100) }, 100},
		"what was asked for since": {func(c *Value[int]) { c.Drop() }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var c Value[int]
				s := &slow{}
				go func() { _, _ = c.Get(t.Context(), time.Hour, s.fetch) }()
				<-time.After(100 * time.Millisecond) // On the fake clock.
				tc.write(&c)
				for range 2 {
					if value, err := c.Get(t.Context(), time.Hour, s.fetch); err != nil || value != tc.want {
						t.Errorf("got %d, error %v; want %d", value, err, tc.want)
					}
					<-time.After(2 * time.Second) // On the fake clock.
				}
			})
		})
	}
}

// Who has a Value and has yet to ask keeps it, whoever comes in between.
func TestAValueIsKeptForWhoIsAboutToAsk(t *testing.T) {
	var values Values[int, int]
	first := values.Within(1, time.Minute, 2)
	values.Within(2, time.Minute, 2)
	if values.Within(1, time.Minute, 2) != first {
		t.Error("what the first caller reads is lost to all others")
	}
}

func TestValuesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var values Values[int, int]
		fetches := 0
		get := func(key int) {
			_, _ = values.Within(key, time.Minute, 2).Get(t.Context(), time.Hour, func(context.Context) (int, error) {
				fetches++
				return key, nil
			})
		}
		for _, key := range []int{1, 2, 3, 1, 2, 3} {
			get(key)
		}
		if fetches != 4 {
			t.Errorf("%d fetches, want one for each key that is kept and two for the third one", fetches)
		}
		<-time.After(2 * time.Minute) // On the fake clock.
		get(3)
		if n := len(values.values); n != 1 {
			t.Errorf("%d values are kept, want those that are not too old", n)
		}
	})
}
