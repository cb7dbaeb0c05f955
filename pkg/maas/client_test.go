// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

const testKey = "consumer:token:secret"

func serve(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client, err := NewClient(Config{Endpoint: server.URL + "/MAAS", APIKey: testKey})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func answer(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

func TestErrorsAreTyped(t *testing.T) {
	for name, tc := range map[string]struct {
		status  int
		body    string
		kind    Kind
		message string
	}{
		"field errors":   {400, `{"hostname": ["Node with hostname \"cp1\" already exists"]}`, Invalid, `hostname: Node with hostname "cp1" already exists`},
		"no field":       {400, `{"__all__": ["Labels must be unique within their zone."]}`, Invalid, "Labels must be unique within their zone."},
		"text":           {400, "Unrecognised signature: method=POST op=frob", Invalid, "Unrecognised signature: method=POST op=frob"},
		"key":            {401, "Authorization Error: Invalid API key.", Unauthorized, "Authorization Error: Invalid API key."},
		"empty body":     {403, "", Forbidden, "Forbidden"},
		"not there":      {404, "No Machine matches the given query.", NotFound, "No Machine matches the given query."},
		"no page":        {404, "<html>404</html>", Unavailable, "Not Found"},
		"state":          {409, "Can't deploy a machine that is in the 'Deployed' state", Conflict, "Can't deploy a machine that is in the 'Deployed' state"},
		"no VM hosts":    {410, "VM host (KVM) support has been removed from MAAS.", Gone, "VM host (KVM) support has been removed from MAAS."},
		"busy":           {429, "", Unavailable, "Too Many Requests"},
		"broken":         {500, "boom\nboom", Unavailable, "boom boom"},
		"a proxy's page": {502, "<html>Bad gateway</html>", Unavailable, "Bad Gateway"},
		"no address":     {503, "No more IPs available in subnet: 10.77.0.0/24.", Exhausted, "No more IPs available in subnet: 10.77.0.0/24."},
		"all in use":     {503, "Failed to allocate the required AUTO IP addresses", Exhausted, "Failed to allocate the required AUTO IP addresses"},
		"not checked":    {503, "IP address checks failed after 2 retries.", Unaddressed, "IP address checks failed after 2 retries."},
		"a DPU":          {500, "Erasing disk is disabled for DPUs. For more information, refer to the documentation.", Invalid, "Erasing disk is disabled for DPUs. For more information, refer to the documentation."},
		"no way to BMC":  {500, "Error determining BMC task queue for machine abc", Unroutable, "Error determining BMC task queue for machine abc"},
		"no rack's BMC":  {503, "No rack controllers can access the BMC of node abc", Unroutable, "No rack controllers can access the BMC of node abc"},
		"quoted":         {500, "boom: No more IPs available in subnet", Unavailable, "boom: No more IPs available in subnet"},
		"no rack":        {503, "Unable to connect to any rack controller", Unavailable, "Unable to connect to any rack controller"},
	} {
		t.Run(name, func(t *testing.T) {
			client := serve(t, answer(tc.status, "text/plain", tc.body))
			_, err := client.GetMachine(t.Context(), "abc123")
			if !errors.Is(err, tc.kind) {
				t.Fatalf("the error is %#v, want kind %s", err, tc.kind)
			}
			if got := Message(err); got != tc.message {
				t.Errorf("the message is %q, want %q", got, tc.message)
			}
		})
	}
}

// A text may be MAAS's, but it has all lists.
func TestAListThatIsNotFoundIsNoneOfMAAS(t *testing.T) {
	client := serve(t, answer(http.StatusNotFound, "text/plain", "404 page not found"))
	err := listMachines(t.Context(), client)
	if errors.Is(err, NotFound) || !errors.Is(err, Unavailable) || !IsElsewhere(err) {
		t.Errorf("the error is %#v", err)
	}
	if _, err := client.TaggedMachines(t.Context(), "gone"); !errors.Is(err, NotFound) {
		t.Errorf("machines of a tag that MAAS does not have: %#v", err)
	}
}

// Another request may have won, or the process on the host may have done its part: what became of the call is not
// known.
func TestBusyIsNoConflict(t *testing.T) {
	const page = "<!DOCTYPE html>\n<html><body>Conflict</body></html>"
	for name, tc := range map[string]struct {
		retryAfter, body string
		busy             bool
		after            time.Duration
	}{
		"a page and a header":      {"7", page, true, 7 * time.Second},
		"a header":                 {"7", "anything", true, 7 * time.Second},
		"a header that is no time": {"soon", "", true, busyPause},
		"a page":                   {"", page, true, busyPause},
		"a state":                  {"", "Can't deploy a machine that is in the 'Deployed' state", false, 0},
		"nothing":                  {"", "", false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if tc.retryAfter != "" {
					w.Header().Set("Retry-After", tc.retryAfter)
				}
				w.WriteHeader(http.StatusConflict)
				fmt.Fprint(w, tc.body)
			})
			for range guard.SilentCalls + 1 {
				_, err := client.AllocateMachine(t.Context(), Unrecorded("a test"), AllocateParams{})
				if errors.Is(err, Busy) != tc.busy || errors.Is(err, Unavailable) != tc.busy || errors.Is(err, Conflict) == tc.busy || NotSent(err) {
					t.Fatalf("the error is %#v", err)
				}
				if got := RetryAfter(err); got != tc.after {
					t.Errorf("try again after %v, want %v", got, tc.after)
				}
				if strings.Contains(Message(err), "<") {
					t.Errorf("the message is %q", Message(err))
				}
			}
		})
	}
}

// Errors of MAAS and of proxies with other texts come while MAAS goes on trying to switch a machine.
func TestOnlySomeErrorsSayThatMAASTriesNoMore(t *testing.T) {
	for text, want := range map[string]bool{
		"ExitError: exit status 1":                                    true,
		"errorString: BMC is in the wrong power state":                true,
		"No BMC is defined.  Cannot power control node.":              true,
		"Power control software is missing from the rack controller ": true,
		"upstream connect error or disconnect/reset before headers":   false,
		"Internal Server Error":                                       false,
		"server closed the connection unexpectedly":                   false,
		"RPCError: context deadline exceeded":                         false,
		"":                                                            false,
	} {
		for _, status := range []int{http.StatusInternalServerError, http.StatusServiceUnavailable} {
			_, err := serve(t, answer(status, "text/plain", text)).GetMachine(t.Context(), "abc123")
			if e, is := errors.AsType[*Error](err); !is || e.Answered != want {
				t.Errorf("%d %q: the error is %#v, want Answered %t", status, text, err, want)
			}
		}
	}
}

func TestRetryAfterIsReturnedAndNotSleptOn(t *testing.T) {
	var calls atomic.Int32
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/zones/") {
			calls.Add(1)
		}
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	_, err := client.ListZones(t.Context())
	if got := RetryAfter(err); got != time.Hour {
		t.Errorf("RetryAfter is %s, want 1h", got)
	}
	if calls.Load() != 1 {
		t.Errorf("%d calls, want 1: retrying is the caller's business", calls.Load())
	}
}

func TestConnectionsAreReused(t *testing.T) {
	var opened atomic.Int32
	server := httptest.NewUnstartedServer(answer(200, "application/json", "[]"))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	client, err := NewClient(Config{Endpoint: server.URL, APIKey: testKey})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := client.ListZones(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if opened.Load() > 5 { // A call may begin just before the connection of the last one is free again.
		t.Errorf("20 calls opened %d connections", opened.Load())
	}
}

// MAAS passes over machines that it does not have.
func TestTagMachineThatMAASDoesNotHave(t *testing.T) {
	client := serve(t, answer(200, "application/json", `{"added": 0, "removed": 0}`))
	if err := client.TagMachine(t.Context(), Unrecorded("a test"), "bad", "abc"); !errors.Is(err, NotFound) {
		t.Errorf("the error is %v, want %s", err, NotFound)
	}
}

func TestTLSIsVerified(t *testing.T) {
	server := httptest.NewTLSServer(answer(200, "application/json", "[]"))
	t.Cleanup(server.Close)
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for name, tc := range map[string]struct {
		bundle []byte
		ok     bool
	}{"without the CA": {nil, false}, "with the CA": {bundle, true}} {
		t.Run(name, func(t *testing.T) {
			client, err := NewClient(Config{Endpoint: server.URL, APIKey: testKey, CABundle: tc.bundle})
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.ListZones(t.Context())
			var verification *tls.CertificateVerificationError
			if refused := errors.As(err, &verification); refused == tc.ok {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// A response without a state is none: the machine's power is not known then.
func TestQueryPower(t *testing.T) {
	for body, want := range map[string]string{`{"state": "off"}`: PowerOff, `{"state": ""}`: "", `{}`: "", `null`: ""} {
		client := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Path != "/MAAS/api/2.0/machines/abc/" || r.URL.Query().Get("op") != "query_power_state" {
				t.Errorf("the request is %s %s", r.Method, r.URL)
			}
			fmt.Fprint(w, body)
		})
		got, err := client.QueryPower(t.Context(), "abc")
		if got != want || errors.Is(err, Unavailable) != (want == "") {
			t.Errorf("the power of %s is %q, %v; want %q", body, got, err, want)
		}
	}
}

func TestConfigErrorsNameTheFieldAndNotTheKey(t *testing.T) {
	for field, config := range map[string]Config{
		"endpoint": {Endpoint: "maas.example.com", APIKey: testKey},
		"apiKey":   {Endpoint: "http://maas/MAAS", APIKey: "verysecret"},
		"caBundle": {Endpoint: "http://maas/MAAS", APIKey: testKey, CABundle: []byte("no PEM")},
	} {
		t.Run(field, func(t *testing.T) {
			_, err := NewClient(config)
			var wrong *ConfigError
			if !errors.As(err, &wrong) || wrong.Field != field {
				t.Fatalf("the error is %v, want a ConfigError of %s", err, field)
			}
			if strings.Contains(err.Error(), config.APIKey) {
				t.Errorf("the error gives the key away: %v", err)
			}
		})
	}
}

// Both flags are given with each kind: left out, they would mean different things to different versions of MAAS.
func TestReleaseSendsHowDisksAreErased(t *testing.T) {
	for erase, want := range map[Erase]url.Values{
		EraseDefault: {},
		EraseQuick:   {"erase": {"true"}, "secure_erase": {"false"}, "quick_erase": {"true"}},
		EraseSecure:  {"erase": {"true"}, "secure_erase": {"true"}, "quick_erase": {"false"}},
		EraseFull:    {"erase": {"true"}, "secure_erase": {"false"}, "quick_erase": {"false"}},
	} {
		t.Run("erase "+string(erase), func(t *testing.T) {
			client := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if err := r.ParseForm(); err != nil {
					t.Error(err)
				}
				got := r.PostForm
				got.Del("comment")
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("the form differs (-want +got):\n%s", diff)
				}
				answer(200, "application/json", `{"system_id": "abc123", "status": 14}`)(w, r)
			})
			machine, err := client.ReleaseMachine(t.Context(), UnrecordedRelease("a test"), "abc123", ReleaseParams{Erase: erase, Comment: "test"})
			if err != nil || machine.Status != StatusDiskErasing {
				t.Errorf("got %+v, %v", machine, err)
			}
		})
	}
}
