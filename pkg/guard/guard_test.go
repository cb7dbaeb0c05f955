// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

func TestIdleNeedsNobody(t *testing.T) {
	Idle(t.Context())()
}

func TestALockRespectsTheContextAndFreesTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := NewLock()
		release, err := lock.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		idle, resumed := 0, 0
		ctx := WithIdle(t.Context(), func() func() { idle++; return func() { resumed++ } })
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := lock.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) || idle != 1 || resumed != 1 {
			t.Errorf("the lock of another: %v; idle %d, resumed %d", err, idle, resumed)
		}
		release()
		if again, err := lock.Acquire(t.Context()); err != nil {
			t.Error(err)
		} else {
			again()
		}
	})
}

// A process that was paused resumes anywhere: the deadline of the call may be noticed too late, too.
func TestNothingIsSentOnAConnectionThatIsThereTooLate(t *testing.T) {
	there, _ := net.Pipe()
	ctx, cancel := context.WithCancelCause(t.Context())
	s := NewSending(time.Now().Add(-time.Second))
	s.cancel = cancel
	s.gotConn(httptrace.GotConnInfo{Conn: there})
	if _, err := there.Write([]byte("POST")); err == nil || !errors.Is(context.Cause(ctx), ErrTooLate) {
		t.Errorf("the request can be written: %v, %v", err, context.Cause(ctx))
	}
	if s.IsConnected() || !s.IsLate() {
		t.Errorf("connected %v, late %v", s.IsConnected(), s.IsLate())
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestNothingIsSentThatIsTooLateAlready(t *testing.T) {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://127.0.0.1:1/", nil)
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	base := roundTrip(func(*http.Request) (*http.Response, error) {
		sent++
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})
	for before, want := range map[time.Time]error{
		time.Now().Add(-time.Second): ErrTooLate, time.Now().Add(time.Hour): nil, {}: nil,
	} {
		sent = 0
		response, err := NewSending(before).RoundTrip(base, request)
		if response != nil {
			_ = response.Body.Close()
		}
		if !errors.Is(err, want) || (sent == 0) != (want != nil) {
			t.Errorf("before %v: %v, sent %d times", before, err, sent)
		}
	}
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(into []byte) (int, error) { return len(into), nil }

func TestResponsesHaveABudgetTogether(t *testing.T) {
	const all, each = 1 << 20, 64 << 10
	b := NewBudget(all, each)
	read := func(n int64) (func(), error) {
		content, release, err := b.ReadAll(io.LimitReader(endless{}, n))
		if err == nil && int64(len(content)) != n {
			t.Errorf("%d of %d bytes were read", len(content), n)
		}
		return release, err
	}
	if _, err := read(2 * all); !errors.Is(err, ErrTooMany) {
		t.Errorf("more than there is: %v", err)
	}
	release, err := read(all / 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := read(all / 2); !errors.Is(err, ErrTooMany) {
		t.Errorf("while there is another one: %v", err)
	}
	if _, err := read(each / 2); err != nil {
		t.Errorf("a short one: %v", err)
	}
	release()
	if got := b.left.Load(); got != all {
		t.Errorf("%d are left of %d", got, all)
	}
	if _, _, err := b.ReadAll(iotest.ErrReader(io.ErrUnexpectedEOF)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a broken connection: %v", err)
	}
}
