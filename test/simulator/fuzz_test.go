// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	clocktesting "k8s.io/utils/clock/testing"
)

// maasFailures are MAAS's own responses with 500: its own words, none of Go's.
var maasFailures = []string{
	"Incorrect padding", "Invalid character in key name", invalidPEM, keysMismatch, "Not enough ", "cannot unpack non-iterable NoneType object",
	"failed to detect a valid IP address from ", "'NoneType' object has no attribute ", "insert or update on table ", "Cannot resolve keyword ",
	"VM Host ", "Pod ", "LXD VM ", // of the power driver
}

// fuzzBed is a region without a network, which reports panics.
type fuzzBed struct {
	*Simulator
	clock    *clocktesting.FakeClock
	panicked string
}

func newFuzzBed(tb testing.TB) *fuzzBed {
	tb.Helper()
	region, err := LoadRegion(strings.NewReader(testRegion))
	if err != nil {
		tb.Fatal(err)
	}
	b := &fuzzBed{clock: clocktesting.NewFakeClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))}
	log := funcr.New(func(_, args string) {
		if strings.Contains(args, "panicked") {
			b.panicked = args
		}
	}, funcr.Options{})
	noNetwork := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no route to host") }
	if b.Simulator, err = newSimulator(region, Options{Seed: 1, Dial: noNetwork, Logger: log}, b.clock); err != nil {
		tb.Fatal(err)
	}
	return b
}

// serve handles a request without a server. The path may be any text.
func (b *fuzzBed) serve(method, path, query, auth, contentType string, body []byte) *httptest.ResponseRecorder {
	request := &http.Request{
		Method: method, URL: &url.URL{Path: path, RawQuery: query}, Host: "maas", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Authorization": {auth}, "Content-Type": {contentType}}, Body: io.NopCloser(strings.NewReader(string(body))),
	}
	recorder := httptest.NewRecorder()
	b.Handler().ServeHTTP(recorder, request)
	return recorder
}

func (b *fuzzBed) mustList(t *testing.T, what string) {
	t.Helper()
	got := b.serve(get, apiRoot+what, "", adminKey.header("after "+what+b.clock.Now().String(), b.clock.Now()), "", nil)
	if got.Code != http.StatusOK || !json.Valid(got.Body.Bytes()) {
		t.Errorf("afterwards %s responds %d: %s%s", what, got.Code, got.Body, b.panicked)
	}
}

// FuzzRequest sends any request to a region: it must respond as MAAS does, never with a Go error, and remain a region
// that can be read, also when everything that the request began has happened.
func FuzzRequest(f *testing.F) {
	f.Fuzz(func(t *testing.T, who uint8, method, path, query, auth, contentType string, body []byte) {
		b := newFuzzBed(t)
		defer b.Close()
		switch who % 3 {
		case 0:
			auth = adminKey.header("n", b.clock.Now())
		case 1:
			auth = plainKey.header("n", b.clock.Now())
		}
		if strings.HasPrefix(path, "/control") {
			t.Skip("the tester's own endpoints have no secrets and no MAAS behind them")
		}
		// Machines have other ids in another version of the code; the corpus must not know them.
		path = strings.ReplaceAll(path, "MACHINE", b.db.machines[0].systemID)
		got := b.serve(method, path, query, auth, contentType, body)
		if b.panicked != "" {
			t.Fatalf("%s %s?%s panics: %s", method, path, query, b.panicked)
		}
		text := got.Body.String()
		if got.Code == http.StatusInternalServerError &&
			!slices.ContainsFunc(maasFailures, func(known string) bool { return strings.HasPrefix(text, known) }) {
			t.Errorf("%s %s?%s responds 500: %s", method, path, query, text)
		}
		if strings.HasPrefix(got.Header().Get("Content-Type"), "application/json") && !json.Valid(got.Body.Bytes()) {
			t.Errorf("%s %s?%s answers what is no JSON: %s", method, path, query, text)
		}
		b.clock.Step(time.Hour)
		b.runDue()
		b.mustList(t, "machines/")
		b.mustList(t, "vm-hosts/")
		b.State()
	})
}

// FuzzForm parses any body: values and their order agree, and forms are parsed as other parsers do.
func FuzzForm(f *testing.F) {
	f.Fuzz(func(t *testing.T, contentType string, raw []byte) {
		parsed, err := parseBody(contentType, raw)
		var refusal *apiError
		if err != nil && (!errors.As(err, &refusal) || refusal.status != http.StatusBadRequest) {
			t.Errorf("%v is no refusal", err)
		}
		for _, one := range []form{parsed.post, parsed.data, parsed.data.without("op")} {
			if len(one.order) != len(one.values) {
				t.Errorf("order %q, values %q", one.order, one.values)
			}
			for _, key := range one.order {
				errs := formErrors{}
				if n := one.number(key, 1, errs); math.IsNaN(n) || math.IsInf(n, 0) {
					t.Errorf("%q is read as the number %v", one.get(key), n)
				}
				one.integer(key, 1, errs)
				one.checkbox(key, true)
				_, err := one.boolean(key, true)
				if !one.has(key) || (err != nil && one.get(key) == "true") {
					t.Errorf("%q: %v", key, err)
				}
			}
		}
		if values, err := url.ParseQuery(string(raw)); err == nil && contentType == "application/x-www-form-urlencoded" {
			if values.Encode() != url.Values(parsed.data.values).Encode() {
				t.Errorf("%q is read as %v", raw, parsed.data.values)
			}
		}
	})
}

// FuzzAuthorization tries any header: nobody gets in without the secret.
func FuzzAuthorization(f *testing.F) {
	b := newFuzzBed(f)
	f.Cleanup(b.Close)
	f.Fuzz(func(t *testing.T, header string) {
		b.nonces = map[nonceKey]int64{}
		u, err := b.authenticate(&http.Request{Header: http.Header{"Authorization": {header}}})
		var refusal *apiError
		if err != nil && (!errors.As(err, &refusal) || refusal.status != http.StatusUnauthorized || u != nil) {
			t.Errorf("%v is no refusal", err)
		}
		if u == nil {
			return
		}
		params, _ := oauthParams(&http.Request{Header: http.Header{"Authorization": {header}}})
		if secret := map[string]string{"admin": adminKey.secret, "plain": plainKey.secret}[u.name]; params["oauth_signature"] != "&"+secret {
			t.Errorf("%s is let in with %q", u.name, header)
		}
	})
}

// FuzzConstraints reads any filter of a list and of allocate.
func FuzzConstraints(f *testing.F) {
	b := newFuzzBed(f)
	f.Cleanup(b.Close)
	f.Fuzz(func(t *testing.T, query string) {
		constraints := parseQuery(query)
		for name, known := range map[string]map[string]filterField{"list": listFilters, "allocate": allocateFilters} {
			filter, err := b.machineFilter(constraints, known)
			var refusal *apiError
			if err != nil {
				if !errors.As(err, &refusal) || refusal.status != http.StatusBadRequest {
					t.Errorf("%s: %v is no refusal", name, err)
				}
				continue
			}
			if text := filter.String(); strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
				t.Errorf("%s: %q", name, text)
			}
			for _, m := range b.db.machines {
				filter.matches(m)
			}
			_ = nothingFits(constraints, filter)
		}
		wishes, complaint := parseStorage(constraints.get("storage"))
		if complaint == "" && slices.ContainsFunc(wishes, func(w storageWish) bool { return w.size < 0 }) {
			t.Errorf("%q is read as %v", constraints.get("storage"), wishes)
		}
	})
}
