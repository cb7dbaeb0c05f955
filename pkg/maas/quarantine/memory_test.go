// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"errors"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// A MaasMachine reports its machine's failure in each reconcile, and may keep the machine for hours: that is one
// failure, and the pause begins when the machine is back in the pool.
func TestThePauseOfWhatIsRememberedBeginsInThePool(t *testing.T) {
	s, at := NewService(nil), now
	s.SetClock(func() time.Time { return at })
	m := &maas.Machine{SystemID: "aaa111"}
	remembers := func(want Note) {
		t.Helper()
		if list := s.Remembered(); len(list) != 1 || list[0].Note != want {
			t.Fatalf("at %v: %+v, want %+v", at, list, want)
		}
	}
	held := Note{Since: now, Until: now.Add(heldAtMost), Pause: Limits.First, Failures: 1, By: "m1"}
	for ; at.Before(now.Add(3 * time.Hour)); at = at.Add(5 * time.Minute) {
		s.Remember(m, Cause{By: "m1"})
		remembers(held)
	}
	back := held.inPool(at)
	for range 3 { // For example until its network is restored.
		s.BackInPool(m)
		remembers(back)
		at = at.Add(time.Second)
	}
	s.BackInPool(&maas.Machine{SystemID: "unknown"})
	remembers(back)
	if at = back.Until; len(s.Remembered()) != 0 || s.FailedRecently(m) {
		t.Errorf("it is left alone after its pause: %+v", s.Remembered())
	}
	if at = at.Add(Limits.Remembered + time.Second); len(s.Remembered()) != 0 || len(s.failed) != 0 {
		t.Errorf("it is never forgotten: %+v", s.failed)
	}
}

func TestWhatIsRememberedIsForgivenWhenItIsDeployed(t *testing.T) {
	b := newBed(t)
	s, m := b.manager(plainKey), &maas.Machine{SystemID: b.a}
	s.Remember(m, Cause{By: "m1"})
	if !s.FailedRecently(m) {
		t.Error("it is not left alone")
	}
	if err := s.Succeeded(t.Context(), aTest, b.a, 0); err != nil && !errors.Is(err, maas.Forbidden) {
		t.Fatal(err)
	}
	if s.FailedRecently(m) {
		t.Error("it is left alone still")
	}
}

// A person lifts in MAAS what MAAS knows.
func TestWhatIsRememberedIsForgottenWhenMAASKnowsIt(t *testing.T) {
	b := newBed(t)
	s, cause := b.manager(adminKey), Cause{By: "m1", Checks: "metal", Set: 3}
	s.Remember(&maas.Machine{SystemID: b.a}, cause)
	if _, err := s.Put(t.Context(), aTest, b.a, cause); err != nil || len(s.Remembered()) != 0 {
		t.Errorf("%v; remembered are %+v", err, s.Remembered())
	}
}
