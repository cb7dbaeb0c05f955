// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"net/http"
	"testing"
	"time"
	"unsafe"
)

// ahead returns a time whose wall clock is ahead of its monotonic one, as after the computer was suspended; behind if
// by is negative.
func ahead(t *testing.T, at time.Time, by time.Duration) time.Time {
	t.Helper()
	later := at.Add(by)
	monotonic := (*int64)(unsafe.Add(unsafe.Pointer(&later), unsafe.Sizeof(uint64(0)))) //nolint:gosec // Go has no other way to a clock that stood still.
	*monotonic -= int64(by)
	if later.Sub(at) != 0 || later.Round(0).Sub(at.Round(0)) != by {
		t.Fatalf("time.Time has another form: %s and %s", later.Sub(at), later.Round(0).Sub(at.Round(0)))
	}
	return later
}

func TestTheClockThatSaysMoreCounts(t *testing.T) {
	t.Parallel()
	began := time.Now()
	for name, tc := range map[string]struct {
		now  time.Time
		want time.Duration
	}{
		"both":                               {began.Add(time.Minute), time.Minute},
		"the computer was suspended":         {ahead(t, began.Add(time.Second), time.Minute), time.Minute + time.Second},
		"the clock was set back":             {ahead(t, began.Add(time.Minute), -time.Hour), time.Minute},
		"one that has no monotonic clock":    {began.Round(0).Add(time.Minute), time.Minute},
		"before, by both":                    {began.Add(-time.Minute), -time.Minute},
		"before, and set back in that time":  {ahead(t, began.Add(-time.Minute), -time.Hour), -time.Minute},
		"before, by the monotonic one alone": {ahead(t, began.Add(-time.Minute), time.Hour), 59 * time.Minute},
	} {
		if got := Elapsed(began, tc.now); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// The computer was suspended after the call was recorded: by the monotonic clock there is time left.
func TestNothingIsSentAfterTheComputerWasSuspended(t *testing.T) {
	t.Parallel()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://127.0.0.1:1/", nil)
	if err != nil {
		t.Fatal(err)
	}
	base := roundTrip(func(*http.Request) (*http.Response, error) {
		t.Error("it was sent")
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})
	limit := ahead(t, time.Now().Add(15*time.Second), -time.Minute) // Recorded a minute ago by the wall clock.
	response, err := NewSending(limit).RoundTrip(base, request)
	if response != nil {
		_ = response.Body.Close()
	}
	if !errors.Is(err, ErrTooLate) {
		t.Errorf("the error is %v", err)
	}
}
