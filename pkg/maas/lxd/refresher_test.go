// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// refreshTakes is how long a refresh takes in these tests.
const refreshTakes = 5 * time.Second

// pass advances the time of the test's bubble.
func pass(d time.Duration) { <-time.After(d) }

var one, two = Host{ID: 1, Name: "host"}, Host{ID: 2, Name: "other"}

// vmKey is the key of a VM in these tests.
func vmKey(name string) guard.Key { return guard.Server{}.Key(name) }

// eye counts the refreshes, and checks that nothing is composed meanwhile.
type eye struct {
	*HostRefresher
	t  *testing.T
	mu sync.Mutex
	// began are the times at which refreshes began.
	began                 []time.Time
	refreshing, composing int
	err                   error
}

func newEye(t *testing.T) *eye {
	t.Helper()
	return &eye{HostRefresher: NewHostRefresher(), t: t}
}

func (e *eye) refreshOnce(context.Context) error {
	e.step(&e.refreshing, 1)
	e.mu.Lock()
	e.began = append(e.began, time.Now())
	e.mu.Unlock()
	pass(refreshTakes)
	e.step(&e.refreshing, -1)
	return e.err
}

func (e *eye) make(ctx context.Context, takes time.Duration) error {
	done, err := e.compose(ctx, one.Key())
	if err != nil {
		return err
	}
	defer done()
	e.step(&e.composing, 1)
	pass(takes)
	e.step(&e.composing, -1)
	return nil
}

func (e *eye) step(what *int, by int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if *what += by; e.refreshing > 0 && e.composing > 0 {
		e.t.Error("MAAS refreshes a host on which it composes")
	}
	if e.refreshing > 1 {
		e.t.Error("MAAS refreshes a host twice at a time")
	}
}

// until retries until the refresh is done, as a reconciler does. It returns when it first asked, and the last error.
func (e *eye) until(ctx context.Context, vm string) (asked time.Time, err error) {
	asked = e.askedSince(vmKey(vm), "1/host")
	for {
		err := e.refresh(ctx, one.Key(), asked, e.refreshOnce)
		var later *guard.LaterError
		if !errors.As(err, &later) {
			return asked, err
		}
		pass(later.After)
	}
}

func TestManyVMsThatAreDeletedTogetherTakeOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEye(t)
		var group sync.WaitGroup
		for i := range 20 {
			group.Go(func() {
				done := e.remove(one.Key(), vmKey(fmt.Sprint("vm-", i)))
				pass(time.Duration(i) * 100 * time.Millisecond)
				done()
				if _, err := e.until(t.Context(), fmt.Sprint("vm-", i)); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if len(e.began) != 1 {
			t.Errorf("MAAS refreshed %d times, want once", len(e.began))
		}
	})
}

func TestWhoWaitsSharesALaterLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEye(t)
		var group sync.WaitGroup
		for i := range 20 {
			group.Go(func() {
				pass(time.Duration(i%10) * 90 * time.Millisecond)
				since := time.Now()
				if err := e.await(t.Context(), one.Key(), since, e.refreshOnce); err != nil {
					t.Error(err)
				}
				e.mu.Lock()
				defer e.mu.Unlock()
				if began := e.began[len(e.began)-1]; !began.After(since) {
					t.Errorf("a look of %s was taken for one after %s", began, since)
				}
			})
		}
		group.Wait()
		if len(e.began) != 1 {
			t.Errorf("the host was looked at %d times, want once", len(e.began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := e.await(ctx, one.Key(), time.Now(), e.refreshOnce); !errors.Is(err, context.Canceled) {
			t.Errorf("who left gets %v", err)
		}
	})
}

func TestOnlyALaterRefreshCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEye(t)
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				pass(time.Duration(i) * 1700 * time.Millisecond)
				asked, err := e.until(t.Context(), fmt.Sprint("vm-", i))
				if err != nil {
					t.Error(err)
				}
				e.mu.Lock()
				defer e.mu.Unlock()
				if last := e.began[len(e.began)-1]; !last.After(asked) {
					t.Errorf("vm-%d asked at %s, and was told what was seen at %s", i, asked, last)
				}
			})
		}
		group.Wait()
		if len(e.began) < 2 || len(e.began) > 4 {
			t.Errorf("MAAS refreshed %d times within 12 s, want a few", len(e.began))
		}
	})
}

// A refresh from before a VM was deleted again proves nothing.
func TestADeletionAsksAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEye(t)
		for range 2 {
			if _, err := e.until(t.Context(), "vm"); err != nil {
				t.Fatal(err)
			}
			e.remove(one.Key(), vmKey("vm"))()
		}
		if len(e.began) != 2 {
			t.Errorf("MAAS refreshed %d times, want once for each deletion", len(e.began))
		}
	})
}

func TestRefreshesAndComposesExcludeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEye(t)
		var group sync.WaitGroup
		made := 0
		for i := range 30 {
			group.Go(func() {
				pass(time.Duration(i) * 900 * time.Millisecond)
				if i%5 == 0 {
					if _, err := e.until(t.Context(), fmt.Sprint("vm-", i)); err != nil {
						t.Error(err)
					}
					return
				}
				for {
					err := e.make(t.Context(), 6*time.Second)
					var later *guard.LaterError
					if err == nil {
						break
					}
					if !errors.As(err, &later) {
						t.Error(err)
						return
					}
					pass(later.After)
				}
				e.mu.Lock()
				made++
				e.mu.Unlock()
			})
		}
		group.Wait()
		if made != 24 || len(e.began) == 0 {
			t.Errorf("%d of 24 VMs were composed, with %d refreshes", made, len(e.began))
		}
	})
}

// A worker is not blocked while MAAS waits for a host that does not respond.
func TestAComposeGivesUpWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEye(t)
		release := make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() {
			asked := e.askedSince(vmKey("vm"), "1/host")
			pass(gatherWindow)
			if err := e.refresh(t.Context(), one.Key(), asked, func(context.Context) error { <-release; return nil }); err != nil {
				t.Error(err)
			}
		})
		pass(2 * gatherWindow)
		var later *guard.LaterError
		if err := e.make(t.Context(), 0); !errors.As(err, &later) {
			t.Errorf("composing while MAAS refreshes: %v, want a *guard.LaterError", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.make(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("composing with a context that ends: %v", err)
		}
		if done, err := e.compose(t.Context(), two.Key()); err != nil {
			t.Errorf("another host is held, too: %v", err)
		} else {
			done()
		}
		close(release)
		group.Wait()
		if err := e.make(t.Context(), 0); err != nil {
			t.Errorf("after the refresh: %v", err)
		}
	})
}

// A caller that requests a refresh and does not come back must not block composes for ever.
func TestARequestForARefreshEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEye(t)
		var later *guard.LaterError
		if err := e.refresh(t.Context(), one.Key(), e.askedSince(vmKey("vm"), "1/host"), e.refreshOnce); !errors.As(err, &later) {
			t.Fatalf("the first to ask: %v, want a *guard.LaterError", err)
		}
		pass(requestLasts)
		begun := time.Now()
		if err := e.make(t.Context(), 0); err != nil || time.Since(begun) > 0 {
			t.Errorf("composing: %v, after %s", err, time.Since(begun))
		}
	})
}

func TestAFailedRefreshIsSharedAndRetriedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEye(t)
		e.err = &maas.Error{Kind: maas.Unavailable, Message: "Failed talking to pod"}
		var group sync.WaitGroup
		for i := range 10 {
			group.Go(func() {
				for begun := time.Now(); time.Since(begun) < 3*time.Minute; {
					_, err := e.until(t.Context(), fmt.Sprint("vm-", i))
					var failed *refreshFailedError
					if !errors.As(err, &failed) || !errors.Is(err, maas.Unavailable) {
						t.Errorf("the refresh returned %v, want MAAS's error", err)
						return
					}
					pass(failed.after)
				}
			})
		}
		group.Wait()
		if len(e.began) < 4 || len(e.began) > 7 {
			t.Errorf("MAAS refreshed %d times in 3 minutes, want growing pauses", len(e.began))
		}
		for i := 2; i < len(e.began); i++ {
			if pause, before := e.began[i].Sub(e.began[i-1]), e.began[i-1].Sub(e.began[i-2]); pause < before {
				t.Errorf("pause %d is %s, after one of %s", i, pause, before)
			}
		}
		e.err = nil
		if _, err := e.until(t.Context(), "vm-0"); err != nil {
			var failed *refreshFailedError
			if !errors.As(err, &failed) {
				t.Fatal(err)
			}
			pass(failed.after)
			if _, err := e.until(t.Context(), "vm-0"); err != nil {
				t.Errorf("after the host was mended: %v", err)
			}
		}
	})
}

// A user who may not refresh a host is no failure of the host.
func TestARefusalIsNotTheHostsFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEye(t)
		e.err = &maas.Error{Kind: maas.Forbidden}
		if _, err := e.until(t.Context(), "vm-0"); !errors.Is(err, maas.Forbidden) {
			t.Fatalf("the refresh returned %v, want %s", err, maas.Forbidden)
		}
		e.err = nil
		if _, err := e.until(t.Context(), "vm-1"); err != nil {
			t.Errorf("another user's refresh: %v", err)
		}
	})
}

// A deletion on a host that does not respond takes minutes; the refresh for others does not wait for it.
func TestARefreshDoesNotWaitForSlowDeletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEye(t)
		defer e.remove(one.Key(), vmKey("slow"))()
		begun := time.Now()
		if _, err := e.until(t.Context(), "vm"); err != nil {
			t.Fatal(err)
		}
		if waited := e.began[0].Sub(begun); waited < 2*gatherWindow || waited > 2*maxGather {
			t.Errorf("the refresh began after %s, want it to wait for a while", waited)
		}
	})
}

func TestWhatWasAskedLongAgoIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEye(t)
		first := e.askedSince(vmKey("vm"), "1/host")
		pass(2 * rememberAsked)
		e.askedSince(vmKey("other"), "1/host")
		if len(e.asked) != 1 {
			t.Errorf("%d questions are kept, want that of the other alone", len(e.asked))
		}
		if again := e.askedSince(vmKey("vm"), "1/host"); !again.After(first) {
			t.Error("who asks again is taken for who asked first")
		}
	})
}

// The replacement of a VM that went down with its host must not be placed there again.
func TestAHostThatCannotBeRefreshedCoolsDownUntilItResponds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEye(t)
		leftAlone := func() bool {
			list := []Host{one, two}
			e.markCoolingDown(list)
			if !list[1].CooldownUntil.IsZero() {
				t.Errorf("%s is skipped", list[1].Name)
			}
			return time.Now().Before(list[0].CooldownUntil)
		}
		refresh := func(vm string, failure error) {
			t.Helper()
			e.err = failure
			if _, err := e.until(t.Context(), vm); !errors.Is(err, failure) {
				t.Fatalf("the refresh ended with %v, want %v", err, failure)
			}
			pass(firstRefreshRetry)
		}
		refresh("vm-1", nil)
		if leftAlone() {
			t.Error("a host that responds is skipped")
		}
		refresh("vm-2", talkingFailed)
		if !leftAlone() {
			t.Error("a host that does not respond is not skipped")
		}
		refresh("vm-2", nil)
		if leftAlone() {
			t.Error("a host that responds again is skipped")
		}
		refresh("vm-3", talkingFailed)
		pass(cooldowns.First - firstRefreshRetry - time.Second)
		if !leftAlone() {
			t.Error("it is skipped for too short")
		}
		pass(time.Second)
		if leftAlone() {
			t.Error("it is skipped for too long: nobody refreshes it any more, and only a VM can show whether it is back")
		}
	})
}

func TestARefreshThatFailsForAnotherReasonIsNotTheHostsFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, failure := range []*maas.Error{
			{Kind: maas.Unauthorized, Status: 401}, {Kind: maas.Forbidden, Status: 403}, {Kind: maas.Unavailable},
			{Kind: maas.Unavailable, Status: 502}, {Kind: maas.Unavailable, NotSent: true},
		} {
			e := newEye(t)
			e.err = failure
			if _, err := e.until(t.Context(), "vm"); !errors.Is(err, failure) {
				t.Fatalf("the refresh ended with %v, want %v", err, failure)
			}
			list := []Host{{ID: 1, Name: "host"}}
			if e.markCoolingDown(list); !list[0].CooldownUntil.IsZero() {
				t.Errorf("after %v it is skipped", failure)
			}
		}
	})
}
