// SPDX-License-Identifier: Apache-2.0

package cooldown

import (
	"testing"
	"time"
)

func TestEachFurtherFailureDoublesTheCooldown(t *testing.T) {
	t.Parallel()
	c := New[string](Limits{First: time.Minute, Longest: 5 * time.Minute, Remembered: time.Hour})
	now := time.Unix(1000, 0)
	c.SetClock(func() time.Time { return now })
	for i, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute} {
		c.Fail("a")
		e, cooling := c.Get("a")
		if got := e.Until.Sub(now); !cooling || got != want || e.Failures != i+1 {
			t.Errorf("failure %d: cooling %v for %v, %+v, want %v", i+1, cooling, got, e, want)
		}
		now = e.Until
		if _, cooling := c.Get("a"); cooling {
			t.Errorf("failure %d: it cools down for too long", i+1)
		}
	}
	if _, cooling := c.Get("b"); cooling {
		t.Error("what never failed cools down")
	}
	now = now.Add(time.Hour + time.Second)
	c.Fail("a")
	if e, _ := c.Get("a"); e.Failures != 1 {
		t.Errorf("a failure long ago still counts: %+v", e)
	}
}

func TestWhatSucceededDoesNotCoolDown(t *testing.T) {
	t.Parallel()
	c := New[int](Limits{First: time.Minute, Longest: time.Hour, Remembered: time.Hour})
	c.Fail(1)
	c.Clear(1)
	if e, cooling := c.Get(1); cooling || e.Failures != 0 {
		t.Errorf("it cools down: %+v", e)
	}
}
