// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

const settleTime = 4 * time.Minute

// errLost is of a call whose outcome is not known.
var errLost = &maas.Error{Kind: maas.Unavailable, Message: "the connection to MAAS broke"}

func lose(context.Context, maas.Permit) error { return errLost }

// everyOp are all operations that are recorded.
var everyOp = []Op{
	Allocate, Claim, Compose, Reserve, Unreserve, TakeOver, LateClaim, StartVM, StopVM, DeleteVM,
	Storage, Link, Bridge, Arrange, Deploy, Annotate,
	PowerOff, PowerOn, Abort, Rescue, Release, Test, MarkBroken, Quarantine, Exclude, Publish,
}

func TestEveryOperationIsAttacked(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("ops.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`(?m)\bOp += "([a-z-]+)"`).FindAllSubmatch(source, -1) {
		if !slices.Contains(everyOp, Op(found[1])) {
			t.Errorf("everyOp lacks %s", found[1])
		}
	}
}

// release releases the machine, and reports whether that was sent.
func (b *bed) release() (sent bool, err error) {
	b.Helper()
	r, _ := b.open()
	err = r.CallRelease(b.Context(), Release, func(context.Context, maas.ReleasePermit) error { sent = true; return nil })
	return sent, err
}

// Whatever may still take effect would hit the next user's machine, were this one released before.
func TestAMachineIsNotReleasedWhileAnotherCallMayTakeEffect(t *testing.T) {
	for _, op := range everyOp {
		t.Run(string(op), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, interceptor.Funcs{})
				b.records.SettleTime = settleTime
				r, _ := b.open()
				if err := r.Call(t.Context(), op, lose); !errors.Is(err, maas.Unavailable) {
					t.Fatal(err)
				}
				sent, err := b.release()
				if slices.Contains([]Op{Quarantine, Exclude, Publish}, op) {
					if !sent || err != nil {
						t.Errorf("a tag or a name that comes late harms nobody; sent: %v, %v", sent, err)
					}
					return
				}
				var unsettled *UnsettledError
				if sent || !errors.As(err, &unsettled) || unsettled.Pending != op || unsettled.Remaining <= 0 {
					t.Errorf("sent: %v, the error is %v", sent, err)
				}
				<-time.After(b.records.settleTime(Pending{Op: op}) + time.Second)
				if sent, err := b.release(); !sent || err != nil {
					t.Errorf("after the settle time, sent: %v, %v", sent, err)
				}
			})
		})
	}
}

func TestACallOfUnknownOutcomeIsNotRepeatedBeforeItsTime(t *testing.T) {
	for _, op := range []Op{Deploy, Link, PowerOff, Storage, Arrange, Annotate} {
		t.Run(string(op), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, interceptor.Funcs{})
				b.records.SettleTime = settleTime
				calls := 0
				again := func() error {
					r, _ := b.open()
					return r.Call(t.Context(), op, func(context.Context, maas.Permit) error { calls++; return errLost })
				}
				_ = again()
				var unsettled *UnsettledError
				if err := again(); !errors.As(err, &unsettled) || calls != 1 {
					t.Errorf("%d calls, the error is %v", calls, err)
				}
				<-time.After(b.records.settleTime(Pending{Op: op}) + time.Second)
				if err := again(); errors.As(err, &unsettled) || calls != 2 {
					t.Errorf("%d calls after the settle time, the error is %v", calls, err)
				}
			})
		})
	}
}

// MAAS tries a BMC that does not respond for 15 minutes, whatever becomes of the request: unless it says itself that it
// tried in vain, or shows that it does not try. A manager that starts meanwhile knows it, too.
func TestACallThatSwitchesPowerMayTakeEffectForLonger(t *testing.T) {
	const tries = 15 * time.Minute
	for name, tc := range map[string]struct {
		op     Op
		answer *maas.Error
		seen   bool // that MAAS does not try now
		wants  time.Duration
	}{
		"switched off, lost":             {PowerOff, errLost, false, tries + time.Minute},
		"switched on, lost":              {PowerOn, errLost, false, tries + time.Minute},
		"a test that is aborted, lost":   {Abort, errLost, false, tries + time.Minute},
		"rescue mode that is left, lost": {Rescue, errLost, false, tries + time.Minute},
		"released, lost":                 {Release, errLost, false, tries + time.Minute},
		"released, lost, and seen":       {Release, errLost, true, tries + time.Minute},
		"a proxy that waited for MAAS":   {PowerOff, &maas.Error{Kind: maas.Unavailable, Status: 504}, false, tries + time.Minute},
		"MAAS tried in vain":             {PowerOff, &maas.Error{Kind: maas.Unavailable, Status: 500, Answered: true}, false, settleTime},
		"deployed, lost":                 {Deploy, errLost, false, settleTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, interceptor.Funcs{})
				b.records.SettleTime = settleTime
				r, _ := b.open()
				err := r.Call(t.Context(), tc.op, func(context.Context, maas.Permit) error { return tc.answer })
				if lost, is := errors.AsType[*LostError](err); !is || lost.Remaining != tc.wants {
					t.Errorf("the error is %v", err)
				}
				if tc.seen {
					r.Idle(tc.op)
					if left := r.Unsettled(); left != settleTime {
						t.Errorf("as MAAS shows it now, it may take effect for %s, want %s", left, settleTime)
					}
				}
				b.must(r.Close(t.Context()))
				b.records = &Records{Client: b.client, SettleTime: settleTime} // It starts anew.
				if r, _ = b.open(); r.Unsettled() != tc.wants {
					t.Errorf("it may take effect for %s, want %s", r.Unsettled(), tc.wants)
				}
			})
		})
	}
}

// A person who shortens the settle time does not shorten MAAS's tries.
func TestAShortSettleTimeDoesNotShortenThatOfPowerCalls(t *testing.T) {
	t.Parallel()
	s := Records{SettleTime: time.Minute, PowerSettleTime: 16 * time.Minute}
	for op, want := range map[Op]time.Duration{Deploy: s.SettleTime, Release: s.PowerSettleTime} {
		if got := s.settleTime(Pending{Op: op}); got != want {
			t.Errorf("%s may take effect for %s, want %s", op, got, want)
		}
	}
	s.SettleTime = time.Hour
	if got, want := s.settleTime(Pending{Op: Release}), 4*time.Hour; got != want {
		t.Errorf("a release may take effect for %s, want %s", got, want)
	}
}

// Another manager, or another reconciler, sees the same record.
func TestAnotherReconcilerKnowsWhatIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, interceptor.Funcs{})
		b.records.SettleTime = settleTime
		r, _ := b.open()
		_ = r.Call(t.Context(), PowerOff, lose)
		b.records = &Records{Client: b.client, SettleTime: settleTime} // It starts anew.
		if sent, err := b.release(); sent || err == nil {
			t.Errorf("sent: %v, %v", sent, err)
		}
	})
}

// A manager that is told to stop lets what MAAS is doing end, and stores the outcome.
func TestACallUnderWayEndsAndIsStoredWhenTheManagerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, interceptor.Funcs{})
		r, _ := b.open()
		ctx, stop := context.WithCancel(t.Context())
		err := r.Call(ctx, Deploy, func(ctx context.Context, _ maas.Permit) error {
			stop()
			<-time.After(guard.Grace / 2)
			return ctx.Err()
		})
		if err != nil {
			t.Error(err)
		}
		b.must(r.Close(ctx))
		b.wantPending()
	})
}

func TestACallThatNeverEndsIsGivenUpAfterTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, interceptor.Funcs{})
		r, _ := b.open()
		ctx, stop := context.WithCancel(t.Context())
		began := time.Now()
		err := r.Call(ctx, Deploy, func(ctx context.Context, _ maas.Permit) error {
			stop()
			<-ctx.Done()
			return errLost
		})
		if !errors.Is(err, maas.Unavailable) || time.Since(began) != guard.Grace {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		b.wantPending(Deploy)
	})
}

// A VM that is made meanwhile could have the name, and the marks, of the one that is started, stopped or deleted late.
func TestNothingIsAcquiredWhileAHostMayChangeAVM(t *testing.T) {
	for _, pending := range []Op{StartVM, StopVM, DeleteVM} {
		t.Run(string(pending), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, interceptor.Funcs{})
				b.records.SettleTime = settleTime
				onHost := func(outcome error) (sent bool, err error) {
					r, _ := b.open()
					err = r.OnHost(t.Context(), pending, func(context.Context, maas.VMPermit) error { sent = true; return outcome })
					return sent, errors.Join(err, r.Close(t.Context()))
				}
				if sent, err := onHost(errLost); !sent || !errors.Is(err, maas.Unavailable) {
					t.Fatalf("sent: %v, %v", sent, err)
				}
				var unsettled *UnsettledError
				if sent, err := onHost(nil); sent || !errors.As(err, &unsettled) {
					t.Errorf("it was repeated: %v, %v", sent, err)
				}
				for _, op := range everyOp {
					if !op.acquires() {
						continue
					}
					r, _ := b.open()
					err := r.Call(t.Context(), op, func(context.Context, maas.Permit) error {
						t.Errorf("%s was sent", op)
						return nil
					})
					if !errors.As(err, &unsettled) || unsettled.Pending != pending || unsettled.Op != op {
						t.Errorf("%s: %v", op, err)
					}
				}
				<-time.After(settleTime + time.Second)
				if sent, err := onHost(nil); !sent || err != nil {
					t.Errorf("after the settle time, sent: %v, %v", sent, err)
				}
				if r, m := b.open(); r.MayChangeHost() || len(m.Annotations) > 0 {
					t.Errorf("its outcome is known, and there is still %v", m.Annotations)
				}
				r, _ := b.open()
				if err := r.Call(t.Context(), Compose, func(context.Context, maas.Permit) error { return nil }); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A claim that is lost after a take-over that was lost may not be the one that has acquired the machine: it may come as
// long as if nothing had.
func TestALaterClaimOfTwoMayComeWhenTheMachineIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, interceptor.Funcs{})
		b.records.SettleTime = settleTime
		r, _ := b.open()
		takeOver := func(context.Context, maas.ReleasePermit) error { return errLost }
		if err := r.CallRelease(t.Context(), TakeOver, takeOver); !errors.Is(err, maas.Unavailable) {
			t.Fatal(err)
		}
		r, _ = b.open()
		r.Reclaim() // The release has taken effect, and lasts.
		b.must(r.Close(t.Context()))
		b.open()
		<-time.After(settleTime / 2)
		r, _ = b.open()
		if err := r.Call(t.Context(), Claim, lose); !errors.Is(err, maas.Unavailable) {
			t.Fatal(err)
		}
		r, _ = b.open()
		b.must(r.Store(t.Context(), r.Acquired)) // MAAS shows the machine as ours.
		b.wantPending(LateClaim)
		b.open() // The next reconcile sees it.
		<-time.After(settleTime - time.Second)
		r, _ = b.open()
		release := func(context.Context, maas.ReleasePermit) error { return nil }
		if err := r.CallRelease(t.Context(), Release, release); !guard.Is[*UnsettledError](err) {
			t.Errorf("the machine is let go before the later claim is settled: %v", err)
		}
		<-time.After(2 * time.Second)
		r, _ = b.open()
		b.must(r.CallRelease(t.Context(), Release, release))
	})
}

// The VM of a later object of the same name has the same marks as that which the manager was to delete when it was paused.
func TestAManagerThatStoodStillChangesNoVMOfALaterObject(t *testing.T) {
	b := newBed(t, interceptor.Funcs{})
	r, m := b.open()
	b.must(b.client.Delete(t.Context(), m.DeepCopy()))
	anew := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: "another"}}
	b.must(b.client.Create(t.Context(), anew))
	for _, op := range []Op{StartVM, StopVM, DeleteVM} {
		err := r.OnHost(t.Context(), op, func(context.Context, maas.VMPermit) error { t.Errorf("%s was sent", op); return nil })
		if err == nil || len(b.now().Annotations) > 0 {
			t.Errorf("%s: %v; the later one has %v", op, err, b.now().Annotations)
		}
	}
}

// A VM is looked at soon after the call was recorded, or not at all.
func TestTheTimeToStopOrDeleteAVMIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, interceptor.Funcs{})
		r, _ := b.open()
		began := time.Now()
		err := r.OnHost(t.Context(), DeleteVM, func(_ context.Context, permit maas.VMPermit) error {
			if before := permit.SendBefore(); !before.Equal(began.Add(sendWithin)) {
				t.Errorf("it may begin until %v, and was recorded at %v", before, began)
			}
			if _, limited := permit.Machine().SendBefore(); limited {
				t.Error("the machine's system id is never given again")
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
