// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// span is long enough for three settle times.
const span = 3 * settleTime

// woken sends a call in each second of span, as an object that is woken all the time would, and returns how often it
// reached MAAS. recorded is whether the call is recorded.
func (b *bed) woken(recorded bool, answer error) (sent int) {
	b.Helper()
	for began := time.Now(); time.Since(began) < span; <-time.After(time.Second) { // On the fake clock.
		r, _ := b.open()
		var err error
		if recorded {
			err = r.Call(b.Context(), Deploy, func(context.Context, maas.Permit) error { sent++; return answer })
			b.must(r.Close(b.Context()))
		} else {
			err = r.Try(Deploy, func() error { sent++; return answer })
		}
		var unsettled *UnsettledError
		if answer != nil && !errors.Is(err, answer) && (maas.HadNoEffect(answer) || !errors.As(err, &unsettled)) {
			b.Fatalf("the error is %v, want what MAAS answered", err)
		}
	}
	return sent
}

func TestWhatMAASRefusedIsKnownWhenItIsTriedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		answer  error
		refused bool
	}{
		"refused": {&maas.Error{Kind: maas.Invalid, Status: 400}, true},
		"busy":    {&maas.Error{Kind: maas.Busy, Status: 409, RetryAfter: refusedPause}, false},
		"lost":    {&maas.Error{Kind: maas.Unavailable}, false},
		"done":    {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, interceptor.Funcs{})
				b.records.SettleTime = settleTime
				r, _ := b.open()
				_ = r.Try(Deploy, func() error { return tc.answer })
				if _, err := r.Again(Deploy); (err != nil) != (tc.answer != nil) {
					t.Errorf("at once the error is %v", err)
				}
				<-time.After(settleTime + refusedPause) // On the fake clock.
				if refusal, err := r.Again(Deploy); tc.refused != (refusal != nil) || err != nil {
					t.Errorf("later the refusal is %v, the error %v", refusal, err)
				}
				_ = r.Try(Deploy, func() error { return nil })
				if refusal, _ := r.Again(Deploy); refusal != nil {
					t.Errorf("the refusal is %v, though it was done since", refusal)
				}
			})
		})
	}
}

// An object may have several machines: what failed for one holds no other.
func TestAMachineThatMAASRefusesHoldsNoOther(t *testing.T) {
	b := newBed(t, interceptor.Funcs{})
	r, _ := b.open()
	refusal := &maas.Error{Kind: maas.Invalid, Status: 400}
	r.About("one")
	_ = r.Try(Release, func() error { return refusal })
	if _, err := r.Again(Release); !errors.Is(err, refusal) {
		t.Errorf("for the same the error is %v", err)
	}
	r.About("other")
	if err := r.Try(Release, func() error { return nil }); err != nil {
		t.Errorf("for another one the error is %v", err)
	}
}

func TestACallIsNotSentAgainBeforeItsTime(t *testing.T) {
	for name, tc := range map[string]struct {
		answer error
		every  time.Duration
	}{
		"refused":         {&maas.Error{Kind: maas.Invalid, Status: 400}, refusedPause},
		"forbidden":       {&maas.Error{Kind: maas.Forbidden, Status: 403}, refusedPause},
		"not found":       {&maas.Error{Kind: maas.NotFound, Status: 404}, refusedPause},
		"in a conflict":   {&maas.Error{Kind: maas.Conflict, Status: 409}, refusedPause},
		"no address left": {&maas.Error{Kind: maas.Exhausted, Status: 503}, refusedPause},
		"busy":            {&maas.Error{Kind: maas.Busy, Status: 409, RetryAfter: 5 * time.Second}, 5 * time.Second},
		"lost":            {&maas.Error{Kind: maas.Unavailable}, settleTime},
		"a server error":  {&maas.Error{Kind: maas.Unavailable, Status: 500}, settleTime},
		"not sent":        {&maas.Error{Kind: maas.Unavailable, NotSent: true}, time.Second},
		"done":            {nil, time.Second},
	} {
		for _, recorded := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBed(t, interceptor.Funcs{})
					b.records.SettleTime = settleTime
					want := int(span / tc.every)
					if sent := b.woken(recorded, tc.answer); sent > want || sent < want*9/10 {
						t.Errorf("MAAS got the call %d times, want %d (recorded %t)", sent, want, recorded)
					}
				})
			})
		}
	}
}
