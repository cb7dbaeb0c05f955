// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

// apiKey is a MAAS API key.
type apiKey struct{ consumer, token, secret string }

// parseKey reads an API key as MAAS shows it: consumer:token:secret.
func parseKey(text string) (apiKey, error) {
	parts := strings.Split(strings.TrimSpace(text), ":")
	if len(parts) != 3 {
		return apiKey{}, fmt.Errorf("an API key has three parts, consumer:token:secret, this one has %d", len(parts))
	}
	return apiKey{consumer: parts[0], token: parts[1], secret: parts[2]}, nil
}

// oauth holds the parameters of an OAuth 1.0 Authorization header.
type oauth map[string]string

// sign makes the parameters of a good request; cases spoil them one by one.
func (k apiKey) sign() oauth {
	return oauth{
		"oauth_version":          "1.0",
		"oauth_signature_method": "PLAINTEXT",
		"oauth_consumer_key":     k.consumer,
		"oauth_token":            k.token,
		"oauth_signature":        "&" + k.secret,
		"oauth_nonce":            randomHex(12),
		"oauth_timestamp":        strconv.FormatInt(time.Now().Unix(), 10),
	}
}

// with is the same request with one parameter changed.
func (o oauth) with(name, value string) oauth {
	changed := maps.Clone(o)
	changed[name] = value
	return changed
}

func (o oauth) header() string {
	var fields []string
	for _, name := range slices.Sorted(maps.Keys(o)) {
		fields = append(fields, fmt.Sprintf("%s=%q", name, url.QueryEscape(o[name])))
	}
	return "OAuth " + strings.Join(fields, ", ")
}

func randomHex(bytes int) string {
	raw := make([]byte, bytes)
	_, _ = rand.Read(raw) // never fails
	return hex.EncodeToString(raw)
}

// request is one HTTP request to MAAS.
type request struct {
	method string
	path   string // below /MAAS/api/2.0/, with its query
	// metadata means that the path is below /MAAS/metadata/.
	metadata bool
	form     url.Values // the body, as a form
	content  []byte     // the body, as it is; instead of form
	// oauth is the signature; without it the request is signed with the MAAS's key, unless anonymous is set.
	oauth     oauth
	anonymous bool
}

func (r request) String() string {
	return fmt.Sprintf("%s %s %s", r.method, r.path, r.form.Encode())
}

// body returns the request's body and its content type.
func (r request) body() (body io.Reader, contentType string) {
	switch {
	case r.content != nil:
		return bytes.NewReader(r.content), "application/octet-stream"
	case r.form != nil:
		return strings.NewReader(r.form.Encode()), "application/x-www-form-urlencoded"
	default:
		return http.NoBody, ""
	}
}

// httpClient gives up on a call only after what MAAS itself allows the slowest of them: compose waits 120 s for the VM
// host, and the power calls as long for the BMC.
var httpClient = &http.Client{Timeout: eventually.Limit}

// do sends the request, and repeats it while MAAS is busy (503 with Retry-After, the response to power actions that
// come too close together).
func (m *maas) do(t *testing.T, r request) *answer {
	t.Helper()
	var got *answer
	m.await(t, r.String()+" to be taken on", func() (bool, string) {
		got = m.doOnce(t, r)
		busy := got.status == http.StatusServiceUnavailable && got.header.Get("Retry-After") != ""
		return !busy, string(got.body)
	})
	return got
}

func (m *maas) doOnce(t *testing.T, r request) *answer {
	t.Helper()
	// A case's context is over when its cleanup begins, and the cleanup has requests of its own.
	got, err := m.send(context.WithoutCancel(t.Context()), r)
	if err != nil {
		t.Fatalf("%s: %v", r, err)
	}
	return got
}

func (m *maas) send(ctx context.Context, r request) (*answer, error) {
	body, contentType := r.body()
	root := "/api/2.0/"
	if r.metadata {
		root = "/metadata/"
	}
	req, err := http.NewRequestWithContext(ctx, r.method, m.url+root+r.path, body)
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if r.oauth == nil {
		r.oauth = m.key.sign()
	}
	if !r.anonymous {
		req.Header.Set("Authorization", r.oauth.header())
	}
	resp, err := httpClient.Do(req)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, fmt.Errorf("reading the response: %w", err)
	}
	return &answer{request: r, status: resp.StatusCode, header: resp.Header, body: raw}, nil
}

// form makes a form from names and values; a name may come more than once.
func form(pairs ...string) url.Values {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		values.Add(pairs[i], pairs[i+1])
	}
	return values
}

// withQuery appends names and values to a path as its query.
func withQuery(path string, pairs ...string) string {
	if len(pairs) == 0 {
		return path
	}
	return path + "?" + form(pairs...).Encode()
}

// get reads; the pairs are the query (an operation is one of them).
func (m *maas) get(t *testing.T, path string, query ...string) *answer {
	t.Helper()
	return m.do(t, request{method: http.MethodGet, path: withQuery(path, query...)})
}

// create is a POST without an operation.
func (m *maas) create(t *testing.T, path string, pairs ...string) *answer {
	t.Helper()
	return m.do(t, request{method: http.MethodPost, path: path, form: form(pairs...)})
}

// op is a POST of an operation.
func (m *maas) op(t *testing.T, path, op string, pairs ...string) *answer {
	t.Helper()
	return m.do(t, request{method: http.MethodPost, path: withQuery(path, "op", op), form: form(pairs...)})
}

func (m *maas) put(t *testing.T, path string, pairs ...string) *answer {
	t.Helper()
	return m.do(t, request{method: http.MethodPut, path: path, form: form(pairs...)})
}

func (m *maas) delete(t *testing.T, path string, query ...string) *answer {
	t.Helper()
	return m.do(t, request{method: http.MethodDelete, path: withQuery(path, query...)})
}
