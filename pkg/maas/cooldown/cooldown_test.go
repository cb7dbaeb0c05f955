// SPDX-License-Identifier: Apache-2.0

package cooldown

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
	if _, cooling := c.Get("b"); cooling || c.Known("b") {
		t.Error("what never failed cools down")
	}
	now = now.Add(time.Hour + time.Second)
	if c.Known("a") {
		t.Error("it is not forgotten")
	}
	c.Fail("a")
	if e, _ := c.Get("a"); e.Failures != 1 {
		t.Errorf("a failure long ago still counts: %+v", e)
	}
}

func TestRestartAndClear(t *testing.T) {
	t.Parallel()
	c := New[int](Limits{First: time.Minute, Longest: time.Hour, Remembered: time.Hour})
	now := time.Unix(1000, 0)
	c.SetClock(func() time.Time { return now })
	c.Restart(1)
	if c.Known(1) {
		t.Error("what never failed cools down")
	}
	c.Fail(1)
	now = now.Add(30 * time.Second)
	c.Restart(1)
	want := Entry{Failures: 1, Until: now.Add(time.Minute)}
	if e, _ := c.Get(1); !cmp.Equal(e, want) {
		t.Errorf("got %+v, want %+v", e, want)
	}
	c.Clear(1)
	if c.Known(1) {
		t.Error("what succeeded cools down")
	}
}
