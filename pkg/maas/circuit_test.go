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
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/test/refused"
)

// region is a MAAS in memory: its responses can change, and each request that reaches it is recorded.
type region struct {
	mu     sync.Mutex
	answer http.RoundTripper
	sent   []time.Time
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (r *region) RoundTrip(request *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.sent = append(r.sent, time.Now())
	answer := r.answer
	r.mu.Unlock()
	return answer.RoundTrip(request)
}

func (r *region) is(answer http.RoundTripper) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

func (r *region) requests() []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]time.Time(nil), r.sent...)
}

// client is a client of a region. A test that changes the time makes it in its bubble.
func (r *region) client(t *testing.T) *Client {
	t.Helper()
	client, err := NewClient(Config{Endpoint: "http://" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")) + ".example/MAAS", APIKey: testKey})
	if err != nil {
		t.Fatal(err)
	}
	client.base = r
	t.Cleanup(client.Close)
	return client
}

func says(status int, body string) http.RoundTripper {
	return roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
	})
}

// refuses is a port without a listener.
var refuses = roundTrip(func(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 5240}, Err: syscall.ECONNREFUSED}
})

// hangs accepts requests and never responds.
var hangs = roundTrip(func(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
})

var works = says(http.StatusOK, "[]")

// read is a plain read.
func read(ctx context.Context, c *Client) error {
	_, err := c.ListZones(ctx)
	return err
}

func compose(ctx context.Context, c *Client) error {
	_, err := c.Compose(ctx, Unrecorded("a test"), 1, ComposeParams{Hostname: "vm"})
	return err
}

// open makes a client give up on a region.
func (r *region) open(t *testing.T, client *Client) {
	t.Helper()
	r.is(refuses)
	for range guard.SilentCalls {
		if err := read(t.Context(), client); !errors.Is(err, Unavailable) {
			t.Fatalf("a call to nobody: %v", err)
		}
	}
	if _, open := client.NextProbe(); !open {
		t.Fatal("calls go on to a MAAS that does not answer")
	}
}

func TestCallsToAMAASThatDoesNotRespondAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		answer http.RoundTripper
		call   func(context.Context, *Client) error
		why    string
		asked  int // how often MAAS is asked for its version
	}{
		"nobody listens":               {refuses, read, "connection refused", 0},
		"nobody listens to a write":    {refuses, compose, "connection refused", 0},
		"no answer in time":            {hangs, read, "did not respond in time", 0},
		"no answer to a write in time": {hangs, compose, "did not respond in time", 0},
		"a proxy without MAAS":         {says(http.StatusBadGateway, ""), read, "Bad Gateway", 0},
		"a proxy that waits for MAAS":  {says(http.StatusGatewayTimeout, ""), compose, "Gateway Timeout", 2},
		"a proxy that waits to read":   {says(http.StatusGatewayTimeout, ""), read, "Gateway Timeout", 0},
		"503 to a read":                {says(http.StatusServiceUnavailable, "starting"), read, "starting", 2},
		"500 to a read":                {says(http.StatusInternalServerError, "no database"), read, "no database", 2},
		"garbage for a read":           {says(http.StatusOK, "<html>"), read, "can't be read", 2},
		"something else for a read":    {says(http.StatusOK, "null"), read, "lacks", 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				maas := &region{answer: tc.answer}
				client, began := maas.client(t), time.Now()
				for range guard.SilentCalls {
					if err := tc.call(t.Context(), client); !errors.Is(err, Unavailable) {
						t.Fatalf("the call ended with %v", err)
					}
				}
				want := guard.SilentCalls
				if tc.asked > 0 { // With them, it has been silent before the last call.
					want += tc.asked - 1
				}
				err := tc.call(t.Context(), client)
				if !errors.Is(err, Unavailable) || !NotSent(err) || len(maas.requests()) != want {
					t.Fatalf("%#v after %d requests, want a refusal after %d", err, len(maas.requests()), want)
				}
				if message := Message(err); !strings.Contains(message, tc.why) || !strings.Contains(message, began.UTC().Format(time.RFC3339)) {
					t.Errorf("%q does not say why, or since when", message)
				}
				if left := RetryAfter(err); left < guard.FirstProbe || left > guard.FirstProbe*6/5 {
					t.Errorf("the next try is after %v", left)
				}
			})
		})
	}
}

// One read that MAAS always answers badly, for example because of a row in its database, concerns no other call.
func TestOneReadThatMAASAnswersBadlyIsNoSilence(t *testing.T) {
	for name, answer := range map[string]http.RoundTripper{
		"500": says(http.StatusInternalServerError, ""), "503": says(http.StatusServiceUnavailable, ""),
		"garbage": says(http.StatusOK, "<html>"), "something else": says(http.StatusOK, "null"),
		"too long": says(http.StatusOK, `[{"name": "`+strings.Repeat("x", 2*maxObject)+`"}]`),
	} {
		for name2, read := range map[string]func(context.Context, *Client) error{"records": readRecord, "machines": listMachines} {
			t.Run(name+", "+name2, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var under sync.Map // paths that are being asked for
					maas := &region{answer: roundTrip(func(r *http.Request) (*http.Response, error) {
						if _, twice := under.LoadOrStore(r.URL.Path, true); twice && strings.HasSuffix(r.URL.Path, "/version/") {
							t.Error("two calls at a time ask whether MAAS answers others")
						}
						defer under.Delete(r.URL.Path)
						switch {
						case strings.HasSuffix(r.URL.Path, "/version/"):
							<-time.After(time.Millisecond) // On the fake clock.
							return says(http.StatusOK, `{"version": "3.6.5"}`).RoundTrip(r)
						case strings.HasSuffix(r.URL.Path, "/zones/"):
							return works.RoundTrip(r)
						}
						return answer.RoundTrip(r)
					})}
					client := maas.client(t)
					var group sync.WaitGroup
					for range 3 * maxUnderWay {
						group.Go(func() {
							if err := read(t.Context(), client); !errors.Is(err, Unavailable) || NotSent(err) {
								t.Errorf("the call ended with %v", err)
							}
						})
					}
					group.Wait()
					for range 5 * guard.SilentCalls {
						if err := read(t.Context(), client); !errors.Is(err, Unavailable) || NotSent(err) {
							t.Fatalf("the call ended with %v", err)
						}
					}
					if _, err := client.ListZones(t.Context()); err != nil {
						t.Errorf("another call: %v", err)
					}
					if _, open := client.NextProbe(); open {
						t.Error("the circuit is open")
					}
				})
			})
		}
	}
}

func readRecord(ctx context.Context, c *Client) error {
	_, err := c.ListDNSResources(ctx, "a.example")
	return err
}

// MAAS asks BMCs for up to a minute. When a rack has no power, no call about its machines gets anything else than a 504.
func TestDeadBMCsAreNoSilenceOfMAAS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		maas := &region{answer: roundTrip(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/version/") {
				return says(http.StatusOK, `{"version": "3.6.5"}`).RoundTrip(r)
			}
			<-time.After(time.Minute) // On the fake clock.
			return says(http.StatusGatewayTimeout, "TimeoutError").RoundTrip(r)
		})}
		client := maas.client(t)
		for range 5 * guard.SilentCalls {
			if _, err := client.QueryPower(t.Context(), "abc"); !errors.Is(err, Unavailable) || NotSent(err) {
				t.Fatalf("the call ended with %v", err)
			}
		}
		if _, open := client.NextProbe(); open {
			t.Error("the circuit is open")
		}
	})
}

func TestWhatMAASSaysIsAnAnswer(t *testing.T) {
	givesUp := func(_ context.Context, c *Client) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return read(ctx, c)
	}
	refresh := func(ctx context.Context, c *Client) error {
		_, err := c.RefreshVMHost(ctx, 1)
		return err
	}
	power := func(ctx context.Context, c *Client) error {
		_, err := c.QueryPower(ctx, "abc")
		return err
	}
	for name, tc := range map[string]struct {
		answer http.RoundTripper
		call   func(context.Context, *Client) error
	}{
		"400":                      {says(400, ""), read},
		"500 to a look at a BMC":   {says(500, ""), power},
		"503 to a look at a BMC":   {says(503, "Failed talking to node's BMC"), power},
		"401":                      {says(401, ""), read},
		"403":                      {says(403, ""), read},
		"404":                      {says(404, ""), read},
		"409":                      {says(409, ""), compose},
		"410":                      {says(410, ""), read},
		"429":                      {says(429, ""), read},
		"500 to compose":           {says(500, ""), compose},
		"a redirect":               {says(302, ""), read},
		"503 to compose":           {says(503, "Failed talking to pod"), compose},
		"503 to refresh":           {says(503, "Failed talking to pod"), refresh},
		"garbage to compose":       {says(200, "{"), compose},
		"a caller that can't wait": {hangs, givesUp},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				maas := &region{answer: tc.answer}
				client := maas.client(t)
				for range 5 * guard.SilentCalls {
					if err := tc.call(t.Context(), client); err == nil {
						t.Fatalf("the call ended with %v", err)
					}
				}
				if n := len(maas.requests()); n != 5*guard.SilentCalls {
					t.Errorf("%d of %d calls were sent", n, 5*guard.SilentCalls)
				}
			})
		})
	}
}

func TestOnlyFailuresInARowCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		maas := &region{}
		client := maas.client(t)
		for range 10 {
			maas.is(refuses)
			for range guard.SilentCalls - 1 {
				_ = read(t.Context(), client)
			}
			maas.is(works)
			if err := read(t.Context(), client); err != nil {
				t.Fatalf("a call to a MAAS that works: %v", err)
			}
		}
	})
}

// Calls that hang while others get responses prove nothing about MAAS, and neither do those that were on their way when
// it came back.
func TestSilenceFromBeforeTheLastResponseDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		maas := &region{answer: hangs}
		client := maas.client(t)
		var group sync.WaitGroup
		for range 2 * guard.SilentCalls {
			group.Go(func() { _ = read(t.Context(), client) })
		}
		synctest.Wait()
		<-time.After(time.Second)
		maas.is(works)
		if err := read(t.Context(), client); err != nil {
			t.Fatal(err)
		}
		group.Wait()
		if err := read(t.Context(), client); err != nil {
			t.Errorf("after MAAS has responded: %v", err)
		}
	})
}

func TestOneCallAtATimeTriesWhetherMAASIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		maas := &region{}
		client := maas.client(t)
		maas.open(t, client)
		before := len(maas.requests())
		maas.is(hangs)
		<-time.After(2 * guard.FirstProbe)
		if err := compose(t.Context(), client); !NotSent(err) {
			t.Errorf("a write tries whether MAAS is back: %v", err)
		}
		var refused atomic.Int32
		for range 50 {
			go func() {
				if NotSent(read(t.Context(), client)) {
					refused.Add(1)
				}
			}()
		}
		synctest.Wait()
		if n := len(maas.requests()) - before; n != 1 || refused.Load() != 49 {
			t.Errorf("%d calls were sent and %d refused at once, want 1 and 49", n, refused.Load())
		}
		if left, open := client.NextProbe(); !open || left <= 0 {
			t.Errorf("during a probe the next one is due in %v (%v)", left, open)
		}
		<-time.After(2 * callTimeout) // The probe ends.
	})
}

func TestProbesComeSeldomerAndNeverStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		maas := &region{}
		client := maas.client(t)
		maas.open(t, client)
		message := Message(read(t.Context(), client))
		const step = 50 * time.Millisecond
		for range 10 * time.Minute / step {
			<-time.After(step)
			if err := read(t.Context(), client); Message(err) != message {
				t.Fatalf("the message was %q, and now is %q", message, Message(err))
			}
		}
		sent := maas.requests()[guard.SilentCalls-1:]
		for i, at := range sent[1:] {
			pause, least := at.Sub(sent[i]), min(guard.FirstProbe<<min(i, 10), guard.LastProbe)
			if pause < least || pause > least*6/5+step {
				t.Errorf("the pause before probe %d is %v, want %v and a fifth at most", i+1, pause, least)
			}
		}
		if len(sent) < 20 {
			t.Errorf("%d probes in 10 minutes", len(sent)-1)
		}
	})
}

func TestAResponseEndsTheRefusals(t *testing.T) {
	for name, answer := range map[string]http.RoundTripper{"what was asked for": works, "an error": says(404, "")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				maas := &region{}
				client := maas.client(t)
				maas.open(t, client)
				if n := testutil.ToFloat64(client.circuit.gauge); n != 1 {
					t.Errorf("the metric is %v while MAAS does not respond", n)
				}
				maas.is(answer)
				if err := read(t.Context(), client); !NotSent(err) {
					t.Fatalf("before the probe is due: %v", err)
				}
				<-time.After(2 * guard.FirstProbe)
				before := len(maas.requests())
				for range 20 {
					if err := read(t.Context(), client); NotSent(err) {
						t.Fatalf("MAAS responds, and a call is refused: %v", err)
					}
				}
				if n := len(maas.requests()) - before; n != 20 {
					t.Errorf("%d of 20 calls were sent", n)
				}
				if n := testutil.ToFloat64(client.circuit.gauge); n != 0 {
					t.Errorf("the metric is %v while MAAS responds", n)
				}
				maas.open(t, client) // And from the first pause on again.
				if left, _ := client.NextProbe(); left > guard.FirstProbe*6/5 {
					t.Errorf("the first probe of the next outage is due in %v", left)
				}
			})
		})
	}
}

func TestAClientThatIsNotUsedAnyMoreLeavesTheMetrics(t *testing.T) {
	maas := &region{}
	client := maas.client(t)
	maas.open(t, client)
	for range 2 {
		client.Close()
		if n := testutil.ToFloat64(client.circuit.gauge); n != 0 {
			t.Errorf("the metric is %v", n)
		}
	}
}

// The metric of a URL covers all its clients, and the last one removes it.
func TestTheMetricOfAURLGoesWithItsLastClient(t *testing.T) {
	before := testutil.CollectAndCount(circuitsOpen)
	maas := &region{}
	first, second := maas.client(t), maas.client(t)
	maas.open(t, second)
	for range 2 {
		first.Close()
		if n := testutil.CollectAndCount(circuitsOpen) - before; n != 1 || testutil.ToFloat64(second.circuit.gauge) != 1 {
			t.Fatalf("with one of two clients closed the metric has %d series, and is %v", n, testutil.ToFloat64(second.circuit.gauge))
		}
	}
	second.Close()
	if n := testutil.CollectAndCount(circuitsOpen) - before; n != 0 {
		t.Errorf("%d series are left", n)
	}
	third := maas.client(t)
	maas.open(t, third)
	if n := testutil.CollectAndCount(circuitsOpen) - before; n != 1 || testutil.ToFloat64(third.circuit.gauge) != 1 {
		t.Errorf("a new client has %d series, and the metric is %v", n, testutil.ToFloat64(third.circuit.gauge))
	}
	third.Close()
}

func listMachines(ctx context.Context, c *Client) error {
	_, err := c.ListMachines(ctx, MachineFilter{})
	return err
}

func instanceNames(ctx context.Context, c *Client) error {
	_, err := c.InstanceNames(ctx, []string{"a"})
	return err
}

// A MAAS may take long for a list, and respond to everything else at once.
func TestAListThatTakesTooLongIsNoSilence(t *testing.T) {
	for name, call := range map[string]func(context.Context, *Client) error{"machines": listMachines, "power parameters": instanceNames} {
		for name2, answer := range map[string]http.RoundTripper{"no answer": hangs, "a proxy gave it up": says(http.StatusGatewayTimeout, "")} {
			t.Run(name+", "+name2, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					maas := &region{answer: answer}
					client := maas.client(t)
					for range 5 * guard.SilentCalls {
						began := time.Now()
						err := call(t.Context(), client)
						if !errors.Is(err, Unavailable) || RetryAfter(err) > 0 {
							t.Fatalf("the call ended with %v", err)
						}
						if took := time.Since(began); took > 0 && (took != listTimeout || !errors.Is(err, context.DeadlineExceeded)) {
							t.Errorf("after %v: %v", took, err)
						}
					}
				})
			})
		}
	}
}

// A list that takes too long would delay the discovery that MAAS is back, so another call is the probe.
func TestAListIsNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		maas := &region{}
		client := maas.client(t)
		maas.open(t, client)
		var asked []string
		maas.is(roundTrip(func(r *http.Request) (*http.Response, error) {
			if asked = append(asked, r.URL.Path); strings.HasSuffix(r.URL.Path, "/machines/") {
				return hangs(r)
			}
			return says(http.StatusOK, `{"version": "3.6.5"}`).RoundTrip(r)
		}))
		if err := listMachines(t.Context(), client); !NotSent(err) || len(asked) > 0 {
			t.Fatalf("before a probe is due, %v is asked for: %v", asked, err)
		}
		<-time.After(2 * guard.FirstProbe)
		if err := listMachines(t.Context(), client); !errors.Is(err, context.DeadlineExceeded) || len(asked) != 2 {
			t.Fatalf("when a probe is due, %v is asked for: %v", asked, err)
		}
		if _, open := client.NextProbe(); open {
			t.Error("MAAS responds, and the circuit is open")
		}
		maas.open(t, client)
		<-time.After(2 * guard.FirstProbe)
		if err := listMachines(t.Context(), client); !NotSent(err) {
			t.Errorf("a list to a MAAS that is still away: %v", err)
		}
		<-time.After(2 * guard.LastProbe)
		if probe, refused := client.circuit.enter(call{method: http.MethodGet, list: true}); probe || refused == nil {
			t.Error("a list is sent to a MAAS that is still away")
		}
	})
}

func TestAProbeThatPanicsIsNotTheLastOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		maas := &region{}
		client := maas.client(t)
		maas.open(t, client)
		<-time.After(2 * guard.FirstProbe)
		maas.is(roundTrip(func(*http.Request) (*http.Response, error) { panic("a bug") }))
		func() {
			defer func() { _ = recover() }()
			_ = read(t.Context(), client)
		}()
		maas.is(works)
		<-time.After(2 * guard.FirstProbe)
		if err := read(t.Context(), client); err != nil {
			t.Errorf("after a probe that panicked: %v", err)
		}
	})
}

// What never reached MAAS can't have taken effect; of all else that is not known.
func TestNotSentIsReportedOnlyWithoutAConnection(t *testing.T) {
	drop := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	serve := func(t *testing.T, prepare func(*httptest.Server)) *Client {
		t.Helper()
		server := httptest.NewUnstartedServer(drop)
		prepare(server)
		t.Cleanup(server.Close)
		client, err := NewClient(Config{Endpoint: server.URL, APIKey: testKey})
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	trusted := func(t *testing.T, http2 bool) *Client {
		t.Helper()
		var server *httptest.Server
		client := serve(t, func(s *httptest.Server) { s.EnableHTTP2 = http2; s.StartTLS(); server = s })
		client.base.(*http.Transport).TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig
		return client
	}
	for name, tc := range map[string]struct {
		client *Client
		want   bool
	}{
		"nobody listens":                  {serve(t, func(s *httptest.Server) { s.URL = "http://" + refused.Port(t) }), true},
		"a certificate of another client": {serve(t, (*httptest.Server).StartTLS), true},
		"dropped":                         {serve(t, (*httptest.Server).Start), false},
		"dropped with TLS":                {trusted(t, false), false},
		"dropped with HTTP/2":             {trusted(t, true), false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := compose(t.Context(), tc.client); !errors.Is(err, Unavailable) || NotSent(err) != tc.want {
				t.Errorf("%v: not sent is %v, want %v", err, NotSent(err), tc.want)
			}
		})
	}
	if NotSent(errors.New("something else")) || NotSent(nil) {
		t.Error("an error of something else says that a call was not sent")
	}
}
