// SPDX-License-Identifier: Apache-2.0

package turns

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

var (
	here  = maas.Config{Endpoint: "http://maas.example.com/MAAS"}.Server()
	there = maas.Config{Endpoint: "http://maas.example.org/MAAS"}.Server()
	host  = OnHost(here.Key("1"), "lxd-a")
)

func take(t *testing.T, turns *Turns, line Line, rank Rank) (done func()) {
	t.Helper()
	done, err := turns.Take(t.Context(), here, line, rank)
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
		}{{"refused", Again}, {"first", Acquire}, {"second", Acquire}, {"claim", Claim}, {"deploy", Deploy}, {"later deploy", Deploy}} {
			go func() {
				defer take(t, turns, host, next.rank)()
				order = append(order, next.name)
			}()
			synctest.Wait()
		}
		done()
		synctest.Wait()
		if want := []string{"deploy", "later deploy", "claim", "first", "second", "refused"}; !slices.Equal(order, want) {
			t.Errorf("the order was %v, want %v", order, want)
		}
		if len(turns.lines) != 0 || turns.queues[here].waiting != 0 {
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
		done, err := turns.Take(t.Context(), there, Machines, Acquire)
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
		var later *guard.LaterError
		if _, err := turns.Take(t.Context(), here, host, Acquire); !errors.As(err, &later) || later.After <= 0 {
			t.Errorf("the error is %v, want a *guard.LaterError", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := turns.Take(ctx, here, host, Acquire); !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v, want that the context was cancelled", err)
		}
		for range maxWaiting {
			go func() { _, _ = turns.Take(t.Context(), here, host, Acquire) }()
		}
		synctest.Wait()
		if _, err := turns.Take(t.Context(), here, host, Deploy); !errors.As(err, &later) {
			t.Errorf("the error is %v, want a *guard.LaterError: too many wait", err)
		}
		first := later.After
		for range 4 * maxWaiting {
			_, _ = turns.Take(t.Context(), here, host, Deploy)
		}
		if _, err := turns.Take(t.Context(), here, host, Deploy); !errors.As(err, &later) || later.After <= first || later.After > maxRetry {
			t.Errorf("of many who can't wait, each is to come back after %s, the first after %s", later.After, first)
		}
		<-time.After(2 * guard.Lately)
		if _, err := turns.Take(t.Context(), here, host, Deploy); !errors.As(err, &later) || later.After > first {
			t.Errorf("when few can't wait, each is to come back after %s, want %s", later.After, first)
		}
		done()
	})
}

// However many are tried again that MAAS refuses, there is a place to wait for others.
func TestWhatMAASRefusesLeavesPlacesToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := &Turns{}
		ends := []func(){take(t, turns, Machines, Again), take(t, turns, Machines, Again)}
		var refused atomic.Int32
		for range 1000 {
			go func() {
				var later *guard.LaterError
				if done, err := turns.Take(t.Context(), here, Machines, Again); errors.As(err, &later) {
					refused.Add(1)
				} else if err == nil {
					done()
				}
			}()
		}
		synctest.Wait()
		if got, want := int(refused.Load()), 1000-maxWaitingAgain; got != want {
			t.Errorf("%d are sent away, want %d", got, want)
		}
		got := make(chan Rank, maxWaiting)
		for range maxWaitingAgain {
			go func() {
				defer take(t, turns, Machines, Acquire)()
				got <- Acquire
			}()
		}
		synctest.Wait()
		for _, end := range ends {
			end()
		}
		synctest.Wait()
		if len(got) != maxWaitingAgain {
			t.Errorf("%d others had a turn, want %d", len(got), maxWaitingAgain)
		}
	})
}

// One MAAS takes its time, and as many as may wait for it do. Whoever needs another one waits in its line as ever.
func TestASlowServerSendsNobodyAwayFromAnother(t *testing.T) {
	lxdHost := OnHost(guard.ServerAt("10.0.0.1:8443", []byte("a certificate")).Key("project"), "direct")
	for name, line := range map[string]Line{"another MAAS": Machines, "removals there": Removal, "an LXD that several MAASes use": lxdHost} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turns := &Turns{}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				for range Machines.limit + 100 {
					go func() { _, _ = turns.Take(ctx, here, Machines, Acquire) }()
				}
				synctest.Wait()
				var later *guard.LaterError
				if _, err := turns.Take(ctx, here, Machines, Deploy); !errors.As(err, &later) {
					t.Fatalf("as many wait for the slow one as may, and the next one gets %v", err)
				}
				var ends []func()
				for range line.limit {
					done, err := turns.Take(ctx, there, line, Acquire)
					if err != nil {
						t.Fatal(err)
					}
					ends = append(ends, done)
				}
				got := make(chan error, 1)
				go func() {
					done, err := turns.Take(ctx, there, line, Deploy)
					if err == nil {
						done()
					}
					got <- err
				}()
				synctest.Wait()
				ends[0]()
				if err := <-got; err != nil {
					t.Errorf("the next in the other line gets %v, want a turn", err)
				}
			})
		})
	}
}

// Two MAASes show a host of the same id: a compose on one of them is no turn of the other.
func TestHostsOfTwoServersHaveLinesOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := &Turns{}
		if here.Key("1") == there.Key("1") {
			t.Fatal("two servers have one key for their hosts")
		}
		defer take(t, turns, OnHost(here.Key("1"), "lxd-a"), Acquire)()
		take(t, turns, OnHost(there.Key("1"), "lxd-a"), Acquire)() // At once.
	})
}

// Whoever names MAASes of their own could fill the manager's memory otherwise.
func TestServersForWhichNobodyWaitsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := &Turns{}
		visit := func(endpoint string) {
			server := maas.Config{Endpoint: "http://maas.example.com/" + endpoint}.Server()
			var all sync.WaitGroup
			for range Machines.limit + 1 {
				all.Go(func() {
					done, err := turns.Take(t.Context(), server, Machines, Acquire)
					if err != nil {
						t.Error(err)
						return
					}
					<-time.After(time.Second)
					done()
				})
			}
			all.Wait()
		}
		for i := range 20 {
			visit(strconv.Itoa(i))
		}
		<-time.After(2 * guard.Lately)
		visit("last")
		if len(turns.lines) != 0 || len(turns.queues) > 1 {
			t.Errorf("%d lines and %d servers are remembered, and nobody waits", len(turns.lines), len(turns.queues))
		}
	})
}
