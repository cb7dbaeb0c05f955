// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/internal/permit"
)

func allocate(ctx context.Context, permit Permit, c *Client) error {
	_, err := c.AllocateMachine(ctx, permit, AllocateParams{AgentName: "x"})
	return err
}

// busy has all requests under way that may be, until the function that it returns is called.
func (r *region) busy(t *testing.T, client *Client) (free func()) {
	t.Helper()
	done := make(chan struct{})
	r.is(roundTrip(func(request *http.Request) (*http.Response, error) {
		<-done
		return says(http.StatusOK, `{"system_id": "abc123"}`).RoundTrip(request)
	}))
	var group sync.WaitGroup
	for range maxUnderWay {
		group.Go(func() {
			if err := compose(t.Context(), client); err != nil {
				t.Errorf("a call that takes long: %v", err)
			}
		})
	}
	synctest.Wait()
	if n := len(r.requests()); n != maxUnderWay {
		t.Fatalf("%d requests are under way", n)
	}
	return func() { close(done); group.Wait() }
}

func TestNothingIsSentAfterItsTimeForWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		maas := &region{}
		client := maas.client(t)
		free := maas.busy(t, client)
		for range guard.SilentCalls + 1 {
			began := time.Now()
			err := allocate(t.Context(), permit.Before(began.Add(time.Second), nil), client)
			if !errors.Is(err, guard.ErrTooLate) || !errors.Is(err, Unavailable) || NotSent(err) {
				t.Errorf("the error is %v (not sent: %v), want one of which nothing is known", err, NotSent(err))
			}
			if time.Since(began) != time.Second {
				t.Errorf("it waited %v", time.Since(began))
			}
		}
		free()
		if n := len(maas.requests()); n != maxUnderWay {
			t.Errorf("%d requests were sent too late", n-maxUnderWay)
		}
		maas.is(works)
		if err := read(t.Context(), client); err != nil {
			t.Errorf("nobody was silent: %v", err)
		}
	})
}

func TestWaitingForOtherCallsIsNoSilence(t *testing.T) {
	for name, tc := range map[string]struct {
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		want error
	}{
		"for long": {context.WithCancel, context.DeadlineExceeded},
		"the caller leaves": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, context.DeadlineExceeded},
		"the caller is stopped": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				maas := &region{}
				client := maas.client(t)
				free := maas.busy(t, client)
				for range guard.SilentCalls + 1 {
					ctx, cancel := tc.ctx(t.Context())
					err := read(ctx, client)
					if cancel(); !errors.Is(err, tc.want) || !errors.Is(err, Unavailable) || !NotSent(err) {
						t.Errorf("the error is %v (not sent: %v)", err, NotSent(err))
					}
				}
				if _, open := client.NextProbe(); open {
					t.Error("calls that were never sent count as silence of MAAS")
				}
				free()
			})
		})
	}
}

// A call that waited for its turn must not be sent to a MAAS that stopped responding meanwhile.
func TestCallsThatWaitedAreRefusedWhileMAASDoesNotRespond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		maas := &region{answer: works}
		client := maas.client(t)
		for range maxUnderWay {
			client.underWay <- struct{}{}
		}
		ended := make(chan error, 1)
		go func() { ended <- allocate(t.Context(), Unrecorded("a test"), client) }()
		synctest.Wait()
		for range guard.SilentCalls {
			client.circuit.Leave(false, time.Now(), guard.Silent, "nobody answers")
		}
		<-client.underWay
		if err := <-ended; !NotSent(err) || RetryAfter(err) == 0 || len(maas.requests()) > 0 {
			t.Errorf("it was sent: %v", err)
		}
	})
}

// wire records what is written to it, and never responds.
type wire struct {
	net.Conn
	mu      sync.Mutex
	written []byte
	closed  bool
}

func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, net.ErrClosed
	}
	w.written = append(w.written, p...)
	return len(p), nil
}

func (w *wire) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	return w.Conn.Close()
}

func newWire() *wire {
	conn, _ := net.Pipe()
	return &wire{Conn: conn}
}

func TestNothingIsSentAfterItsTimeForConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newWire()
		client := (&region{}).client(t)
		transport := newTransport(nil)
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			<-time.After(2 * time.Second)
			return conn, nil
		}
		client.base = transport
		began := time.Now()
		err := allocate(t.Context(), permit.Before(began.Add(time.Second), nil), client)
		if !errors.Is(err, guard.ErrTooLate) || NotSent(err) || time.Since(began) != time.Second {
			t.Errorf("after %v the error is %v (not sent: %v)", time.Since(began), err, NotSent(err))
		}
		<-time.After(2 * time.Second)
		transport.CloseIdleConnections()
		if len(conn.written) > 0 {
			t.Errorf("it was sent: %q", conn.written)
		}
	})
}

// A request that is on its way is not given up: its response is the only way to know its effect.
func TestWhatWasSentInTimeMayTakeLonger(t *testing.T) {
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		at, _ := time.Parse(time.RFC3339Nano, r.FormValue("comment"))
		<-time.After(time.Until(at.Add(50 * time.Millisecond)))
		_, _ = io.WriteString(w, `{"system_id": "abc123"}`)
	})
	if err := client.DeleteMachine(t.Context(), Unrecorded("a test"), "abc123"); err != nil { // There is a connection from here on.
		t.Fatal(err)
	}
	for within := 500 * time.Millisecond; ; within *= 2 {
		at := time.Now().Add(within)
		_, err := client.AllocateMachine(t.Context(), permit.Before(at, nil), AllocateParams{Comment: at.Format(time.RFC3339Nano)})
		if errors.Is(err, guard.ErrTooLate) && NotSent(err) && within < time.Minute { // The computer was too busy to send it.
			continue
		}
		if err != nil {
			t.Errorf("it was sent in time: %v", err)
		}
		return
	}
}

// A proxy for MAAS alone is asked for nothing else, and needs no list of what it is not for.
func TestMAASHasAProxyOfItsOwn(t *testing.T) {
	var through atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Host != "maas.example.com:5240" {
			t.Errorf("the proxy is asked for %s", r.URL)
		}
		through.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	t.Setenv(ProxyVariable, server.URL)
	client, err := NewClient(Config{Endpoint: "http://maas.example.com:5240/MAAS", APIKey: "a:b:c"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.ListMachines(t.Context(), MachineFilter{}); err == nil || through.Load() == 0 {
		t.Errorf("the proxy was asked %d times: %v", through.Load(), err)
	}
}

func TestAProxyThatIsNoURLIsNamedWithoutItsPassword(t *testing.T) {
	for _, text := range []string{"proxy:3128", "http://user:secret@", "socks5://user:secret@proxy:1080", "http://user:secret@proxy:port"} {
		t.Setenv(ProxyVariable, text)
		_, err := NewClient(Config{Endpoint: "http://maas.example.com:5240/MAAS", APIKey: "a:b:c"})
		problem, is := errors.AsType[*ConfigError](err)
		if !is || problem.Field != "proxy" || strings.Contains(problem.Error(), "secret") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
