// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/time/rate"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

// endless is a body without an end.
type endless struct{}

func (endless) Read(into []byte) (int, error) {
	for i := range into {
		into[i] = ' '
	}
	return len(into), nil
}

func TestAnswerIsBounded(t *testing.T) {
	body := &guard.Body{ReadCloser: io.NopCloser(endless{}), Remaining: 1000}
	got, err := io.ReadAll(body)
	if len(got) != 1000 || !errors.Is(err, guard.ErrTooLong) {
		t.Errorf("%d bytes and %v, want 1000 and %v", len(got), err, guard.ErrTooLong)
	}
	if err := iotest.TestReader(&guard.Body{ReadCloser: io.NopCloser(strings.NewReader("short")), Remaining: 1000}, []byte("short")); err != nil {
		t.Error(err)
	}
}

func TestAnswerOfSomethingElseIsNoAnswer(t *testing.T) {
	for _, body := range []string{"null", "{}", "[null]", "[{}]", `{"system_id": "../users"}`, `{"status": "ok"}`} {
		client := serve(t, answer(http.StatusOK, "application/json", body))
		if machines, err := client.ListMachines(t.Context(), MachineFilter{}); !errors.Is(err, Unavailable) {
			t.Errorf("%s as a list of machines: %v, %v", body, machines, err)
		}
		if machine, err := client.GetMachine(t.Context(), "abc123"); !errors.Is(err, Unavailable) {
			t.Errorf("%s as a machine: %+v, %v", body, machine, err)
		}
		if id, err := client.Compose(t.Context(), Unrecorded("a test"), 1, ComposeParams{}); !errors.Is(err, Unavailable) {
			t.Errorf("%s as a composed VM: %q, %v", body, id, err)
		}
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	var followed atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	t.Cleanup(elsewhere.Close)
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+"/MAAS/?token=of-somebody", http.StatusFound)
	})
	_, err := client.AllocateMachine(t.Context(), Unrecorded("a test"), AllocateParams{})
	if !errors.Is(err, Unavailable) || followed.Load() != 0 {
		t.Fatalf("%v, and %d requests came with the key", err, followed.Load())
	}
	if !strings.Contains(Message(err), elsewhere.URL) || strings.Contains(Message(err), "of-somebody") {
		t.Errorf("%q does not say where to, or says too much", Message(err))
	}
}

// raw is a server that writes a text to each client, and then keeps the connection.
func raw(t *testing.T, text string) *Client {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { close(done); _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					fmt.Fprint(conn, text)
				}
				<-done
			}()
		}
	}()
	client, err := NewClient(Config{Endpoint: "http://" + listener.Addr().String() + "/MAAS", APIKey: "consumer:token:" + fuzzSecret})
	if err != nil {
		t.Fatal(err)
	}
	client.limiter = rate.NewLimiter(rate.Inf, 1)
	return client
}

func TestHostileProtocolEndsWithTheCall(t *testing.T) {
	for name, text := range map[string]string{
		"says nothing":             "",
		"no HTTP":                  "SSH-2.0-OpenSSH_9.6\r\n",
		"another protocol":         "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"a body that never comes":  "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n[",
		"an error that never ends": "HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n" + "no\r\n",
		"a broken status":          "HTTP/1.1 ABC " + fuzzSecret + "\r\n\r\n",
		"a broken length":          "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
		"a broken chunk":           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"no gzip":                  "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n[]",
		"a redirect to nowhere":    "HTTP/1.1 302 Found\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := raw(t, text)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, err := client.ListZones(ctx)
				ended <- err
			}()
			select {
			case err := <-ended:
				if !errors.Is(err, Unavailable) {
					t.Errorf("the error is %v, want %s", err, Unavailable)
				}
				checkPresentable(t, err, fuzzSecret)
			case <-time.After(eventually.Limit):
				t.Error("the call outlives its context")
			}
		})
	}
}

// TestRightSecretForAWrongKey: MAAS reveals the right secret to anyone with the consumer and the token.
func TestRightSecretForAWrongKey(t *testing.T) {
	const right = "qkrTHZbdN3mPwX8sVuJ2"
	said := "Authorization Error: 'Invalid signature. Expected signature base string: &" + right + "'"
	for name, body := range map[string]string{
		"text": said, "JSON": fmt.Sprintf(`{"detail": [%q]}`, said), "folded": strings.ReplaceAll(said, " ", "\r\n\t"),
	} {
		for _, status := range []int{400, 401, 403, 500} {
			_, err := serve(t, answer(status, "text/plain", body)).WhoAmI(t.Context())
			var e *Error
			if !errors.As(err, &e) || e.Status != status {
				t.Fatalf("%s: the error is %v", name, err)
			}
			if shown := fmt.Sprintf("%v %+v %#v %v", err, err, e.Fields, Message(err)); strings.Contains(shown, right) {
				t.Errorf("%s, %d: the right secret is in %q", name, status, shown)
			}
			if !strings.Contains(e.Message, "Authorization Error") {
				t.Errorf("%s, %d: %q does not say what is wrong", name, status, e.Message)
			}
		}
	}
}

// forgetful closes the connection of the second request without a response, and accepts each nonce once.
func forgetful(t *testing.T) *Client {
	t.Helper()
	var mu sync.Mutex
	count, used := 0, map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		signature := r.Header.Get("Authorization")
		count++
		switch {
		case used[signature]:
			http.Error(w, "Authorization Error: 'Nonce already used'", http.StatusUnauthorized)
		case count == 2:
			used[signature] = true
			panic(http.ErrAbortHandler)
		default:
			fmt.Fprint(w, `[]`)
		}
	}))
	t.Cleanup(server.Close)
	client, err := NewClient(Config{Endpoint: server.URL + "/MAAS", APIKey: "consumer:token:" + fuzzSecret})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestKeyIsNotToBlameForACallSentTwice(t *testing.T) {
	client := forgetful(t)
	if err := read(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	if err := read(t.Context(), client); !errors.Is(err, errSentTwice) || !errors.Is(err, Unavailable) {
		t.Errorf("the error is %v, want one that can be retried", err)
	}
	if err := read(t.Context(), client); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

// What differs from try to try would make the condition that shows it another one each time.
func TestMessagesOfMAASStayTheSame(t *testing.T) {
	t.Parallel()
	tries := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tries++
		text := fmt.Sprintf("%s: process %d gave up after %d.5s at 2026-11-26T10:00:%02dZ", r.URL.Path, 4000+tries, tries, tries)
		if r.Method == http.MethodGet {
			http.Error(w, text, http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string][]string{"name": {text}})
	}))
	t.Cleanup(server.Close)
	client, err := NewClient(Config{Endpoint: server.URL, APIKey: "a:b:c"})
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	for range 5 {
		_, err := client.ListZones(t.Context())
		said[Message(err)] = true
		var answer *Error
		if err := client.CreateTag(t.Context(), Unrecorded("a test"), Tag{Name: "x"}); errors.As(err, &answer) {
			said[answer.Fields["name"][0]] = true
		}
	}
	if len(said) != 2 {
		t.Errorf("two errors were said in %d ways: %v", len(said), said)
	}
}
