// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
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
		var c cached[int]
		s := &slow{err: errors.New("no")}
		for range 10 {
			go func() {
				if _, err := c.get(t.Context(), time.Minute, s.fetch); !errors.Is(err, s.err) {
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
		var c cached[int]
		s := &slow{}
		go func() { _, _ = c.get(t.Context(), time.Minute, s.fetch) }()
		synctest.Wait()
		resumed := 0
		ctx, cancel := context.WithTimeout(guard.WithIdle(t.Context(), func() func() { return func() { resumed++ } }), 100*time.Millisecond)
		defer cancel()
		if _, err := c.get(ctx, time.Minute, s.fetch); !errors.Is(err, context.DeadlineExceeded) {
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
		var c cached[int]
		s := &slow{}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		go func() { _, _ = c.get(ctx, time.Minute, s.fetch) }()
		synctest.Wait()
		if value, err := c.get(t.Context(), time.Minute, s.fetch); err != nil || value != 2 {
			t.Errorf("got %d, error %v; want what the second fetch got", value, err)
		}
	})
}

func TestAResponseWithoutAgeWasRequestedAfterTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cached[int]
		s := &slow{}
		go func() { _, _ = c.get(t.Context(), 0, s.fetch) }()
		<-time.After(100 * time.Millisecond) // On the fake clock.
		for range 5 {
			go func() {
				called := time.Now()
				if value, at, err := c.getAt(t.Context(), 0, s.fetch); err != nil || value != 2 || at.Before(called) {
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
		write func(*cached[int])
		want  int
	}{
		"what was written":         {func(c *cached[int]) { c.set(100) }, 100},
		"what was asked for since": {func(c *cached[int]) { c.drop() }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var c cached[int]
				s := &slow{}
				go func() { _, _ = c.get(t.Context(), time.Hour, s.fetch) }()
				<-time.After(100 * time.Millisecond) // On the fake clock.
				tc.write(&c)
				for range 2 {
					if value, err := c.get(t.Context(), time.Hour, s.fetch); err != nil || value != tc.want {
						t.Errorf("got %d, error %v; want %d", value, err, tc.want)
					}
					<-time.After(2 * time.Second) // On the fake clock.
				}
			})
		})
	}
}

// hanging is a MAAS whose list of all machines ends when the test decides.
type hanging struct {
	source
	lists  atomic.Int32
	answer chan error
}

func (h *hanging) ListMachines(ctx context.Context, _ maas.MachineFilter) ([]*maas.Machine, error) {
	h.lists.Add(1)
	select {
	case err := <-h.answer:
		return []*maas.Machine{{SystemID: "metal"}}, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestTheListOfAllMachinesKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := New(nil, Options{})
		defer i.end()
		maasThatHangs := &hanging{answer: make(chan error)}
		i.source = maasThatHangs
		get := func(want int, wantErr error) {
			t.Helper()
			began := time.Now()
			machines, err := i.BareMetal(t.Context(), time.Minute)
			if len(machines) != want || !errors.Is(err, wantErr) {
				t.Errorf("got %d machines and the error %v, want %d and %v", len(machines), err, want, wantErr)
			}
			if time.Since(began) > metalPatience {
				t.Errorf("the caller waited for %s", time.Since(began))
			}
		}
		get(0, ErrPending)
		get(0, ErrPending)
		maasThatHangs.answer <- nil
		synctest.Wait()
		get(1, nil)
		if n := maasThatHangs.lists.Load(); n != 1 {
			t.Errorf("MAAS was asked for %d lists, want one", n)
		}
		<-time.After(2 * time.Minute) // On the fake clock.
		get(1, nil)                   // The old list, while MAAS lists again.
		refused := errors.New("no")
		maasThatHangs.answer <- refused
		synctest.Wait()
		get(0, refused)
		if n := maasThatHangs.lists.Load(); n != 2 {
			t.Errorf("MAAS was asked for %d lists, want no further one right after one that took long and failed", n)
		}
		<-time.After(time.Minute) // On the fake clock.
		get(1, nil)
		if n := maasThatHangs.lists.Load(); n != 3 {
			t.Errorf("MAAS was asked for %d lists, want another one after a while", n)
		}
	})
}

func TestTheListOfAllMachinesEndsWithTheInventory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := New(nil, Options{})
		i.source = &hanging{answer: make(chan error)}
		if _, err := i.BareMetal(t.Context(), time.Minute); !errors.Is(err, ErrPending) {
			t.Errorf("the error is %v", err)
		}
		i.end() // Else the test would end in a deadlock.
	})
}
