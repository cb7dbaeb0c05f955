// SPDX-License-Identifier: Apache-2.0

package lxdapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"
)

// plain is a transport without TLS.
type plain struct{ inner *http.Transport }

func (p plain) Transport() *http.Transport { return p.inner }

func (p plain) RoundTrip(r *http.Request) (*http.Response, error) {
	r.URL.Scheme = "http"
	return p.inner.RoundTrip(r)
}

// responses are what an LXD returns, by method and path; each is a status, and the body behind a blank.
type responses map[string]string

// played is a client of an LXD that returns responses, and the calls that it got.
func played(ctx context.Context, t *testing.T, all responses) (client *Client, calls func() []string) {
	t.Helper()
	var mu sync.Mutex
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		call := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/1.0/")
		mu.Lock()
		got = append(got, call)
		mu.Unlock()
		status, body := 0, ""
		if text, is := all[call]; is {
			if _, err := fmt.Sscanf(text, "%d", &status); err != nil {
				t.Error(err)
			}
			_, body, _ = strings.Cut(text, " ")
		}
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	client, err := HTTPS(ctx, server.Listener.Addr().String(), plain{&http.Transport{DisableKeepAlives: true}})
	if err != nil {
		t.Fatal(err)
	}
	return client.In("p"), func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(got)
	}
}

const (
	change    = "POST things"
	wait      = "GET operations/o/wait"
	look      = "GET operations/o"
	accepted  = `202 {"type":"async","operation":"/1.0/operations/o","metadata":{"id":"o","status_code":103}}`
	succeeded = `200 {"type":"sync","metadata":{"id":"o","status":"Success","status_code":200}}`
	running   = `200 {"type":"sync","metadata":{"id":"o","status":"Running","status_code":103}}`
	failed    = `200 {"type":"sync","metadata":{"id":"o","status":"Failure","status_code":400,"err":"no such pool"}}`
	cancelled = `200 {"type":"sync","metadata":{"id":"o","status":"Cancelled","status_code":401}}`
	forgotten = `404 {"type":"error","error":"Operation not found","error_code":404}`
)

// What is true of a change is the same whichever version of LXD says it.
func TestWhatAChangeCameTo(t *testing.T) {
	t.Parallel()
	type want struct {
		done, refused, unfinished bool
		status                    int
	}
	for name, tc := range map[string]struct {
		responses responses
		want      want
	}{
		"done at once":                   {responses{change: `201 {"type":"sync"}`}, want{done: true}},
		"done by an operation":           {responses{change: accepted, wait: succeeded}, want{done: true}},
		"refused at once":                {responses{change: `409 {"type":"error","error":"taken","error_code":409}`}, want{refused: true, status: 409}},
		"refused at once with 200":       {responses{change: `200 {"type":"error","error":"taken","error_code":409}`}, want{refused: true, status: 409}},
		"failed, as 5.0.2 says":          {responses{change: accepted, wait: failed, look: failed}, want{refused: true}},
		"failed, as Debian 13 says":      {responses{change: accepted, wait: `404 {"type":"error","error":"no such pool","error_code":404}`, look: failed}, want{refused: true}},
		"failed, as 5.21 says":           {responses{change: accepted, wait: `200 {"type":"error","error":"no such pool","error_code":500}`, look: failed}, want{refused: true}},
		"failed, as 6.8 says":            {responses{change: accepted, wait: `200 {"type":"error","error":"bad","error_code":500}`, look: `200 {"type":"sync","metadata":{"id":"o","status":"Failure","status_code":400,"err":"bad","err_code":400}}`}, want{refused: true, status: 400}},
		"cancelled":                      {responses{change: accepted, wait: cancelled}, want{refused: true}},
		"unfinished, as 5.0.2 says":      {responses{change: accepted, wait: running}, want{unfinished: true}},
		"unfinished, as 5.21 says":       {responses{change: accepted, wait: `200 {"type":"error","error":"context deadline exceeded","error_code":500}`, look: running}, want{unfinished: true}},
		"done, though the wait failed":   {responses{change: accepted, wait: `500 {"type":"error","error":"no","error_code":500}`, look: succeeded}, want{done: true}},
		"forgotten":                      {responses{change: accepted, wait: forgotten, look: forgotten}, want{}},
		"the wait is refused":            {responses{change: accepted, wait: `403 {"type":"error","error":"no","error_code":403}`, look: `403 {"type":"error","error":"no","error_code":403}`}, want{}},
		"the wait breaks off":            {responses{change: accepted}, want{}},
		"the wait gets a page":           {responses{change: accepted, wait: "502 <html>"}, want{}},
		"the request breaks off":         {responses{}, want{}},
		"a page":                         {responses{change: "200 <html>"}, want{}},
		"a proxy's error in LXD's form":  {responses{change: `502 {"type":"error","error":"no","error_code":502}`}, want{status: 502}},
		"LXD starts":                     {responses{change: `503 {"type":"error","error":"starting","error_code":503}`}, want{status: 503}},
		"no type":                        {responses{change: `200 {}`}, want{}},
		"an operation without an id":     {responses{change: `202 {"type":"async","metadata":{}}`}, want{}},
		"an operation of another server": {responses{change: `202 {"type":"async","metadata":[]}`}, want{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, calls := played(t.Context(), t, tc.responses)
			err := client.Post(client.Path("things"), map[string]string{"a": "b"})
			var e *Error
			errors.As(err, &e)
			switch {
			case (err == nil) != tc.want.done:
				t.Fatalf("the error is %v", err)
			case err == nil:
				return
			case e == nil:
				t.Fatalf("the error is of another type: %v", err)
			}
			if got := (want{refused: e.Refused, unfinished: e.Unfinished, status: e.Status}); got != tc.want {
				t.Errorf("it is %+v, want %+v: %v (calls %q)", got, tc.want, err, calls())
			}
			if IsRefused(err) != tc.want.refused {
				t.Errorf("IsRefused = %v", IsRefused(err))
			}
			if waited := slices.Contains(calls(), wait); waited != (e.Operation == "o") {
				t.Errorf("the operation is %q, and the calls were %q", e.Operation, calls())
			}
			// What an operation did says nothing of what was asked for: its 404 is not that of the target.
			if isStatus := api.StatusErrorCheck(err); isStatus && e.Operation != "" {
				t.Errorf("the status of an operation is taken for that of the change: %v", err)
			}
		})
	}
}

func TestAChangeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	client, _ := played(ctx, t, responses{change: accepted, wait: running})
	cancel()
	err := client.Post(client.Path("things"), nil)
	if !errors.Is(err, context.Canceled) || IsRefused(err) {
		t.Errorf("the error is %v", err)
	}
}

func TestTheSecretOfAnImageIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	client, calls := played(t.Context(), t, responses{
		"POST images/f/secret": `202 {"type":"async","metadata":{"id":"o","class":"token","status_code":103,"metadata":{"secret":"s"}}}`,
	})
	secret, err := client.ImageSecret("f")
	if secret != "s" || err != nil || len(calls()) != 1 {
		t.Errorf("ImageSecret = %q, %v, with the calls %q", secret, err, calls())
	}
}

// What is sent is in the project, as JSON or as it is, with the ETag of what was read.
func TestWhatIsSent(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		_, _ = io.WriteString(w, `{"type":"sync"}`)
	}))
	defer server.Close()
	client, err := HTTPS(t.Context(), server.Listener.Addr().String(), plain{&http.Transport{DisableKeepAlives: true}})
	if err != nil {
		t.Fatal(err)
	}
	client = client.In("p")
	if err := client.Put(client.Path("images", "a/b"), map[string]int{"x": 1}, "etag"); err != nil {
		t.Fatal(err)
	}
	if got.Method != http.MethodPut || got.URL.EscapedPath() != "/1.0/images/a%2Fb" || got.URL.RawQuery != "project=p" ||
		got.Header.Get("If-Match") != "etag" || got.Header.Get("Content-Type") != "application/json" || string(body) != `{"x":1}` {
		t.Errorf("%s %s %v %s", got.Method, got.URL, got.Header, body)
	}
	upload := &Upload{Content: strings.NewReader("disk"), Bytes: 4, Header: http.Header{"X-Lxd-Fingerprint": {"f"}}}
	if err := client.Post(client.Path("images"), upload); err != nil {
		t.Fatal(err)
	}
	if got.ContentLength != 4 || got.Header.Get("X-LXD-fingerprint") != "f" || string(body) != "disk" {
		t.Errorf("%d %v %s", got.ContentLength, got.Header, body)
	}
}

// What waits for an operation ends some time before its context does: what it came to is read then.
func TestAWaitLeavesTimeForALook(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	var query string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query = r.URL.Query().Get("timeout")
		_, _ = io.WriteString(w, `{"type":"sync","metadata":{"id":"o","status_code":200}}`)
	}))
	defer server.Close()
	client, err := HTTPS(ctx, server.Listener.Addr().String(), plain{&http.Transport{DisableKeepAlives: true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Wait("o"); err != nil {
		t.Fatal(err)
	}
	var seconds int
	if _, err := fmt.Sscan(query, &seconds); err != nil || seconds <= 0 || seconds > int((time.Hour-waitReserve).Seconds()) {
		t.Errorf("LXD is asked to wait for %q seconds", query)
	}
}
