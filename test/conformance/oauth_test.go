// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// signed sends GET users/?op=whoami with the given OAuth parameters.
func (m *maas) signed(t *testing.T, parameters oauth) *answer {
	t.Helper()
	return m.do(t, request{method: http.MethodGet, path: "users/?op=whoami", oauth: parameters})
}

// refusesSignature checks the response to a bad signature: 401, a challenge, and a text that begins like MAAS's.
func (a *answer) refusesSignature(t *testing.T, parts ...string) {
	t.Helper()
	a.refuses(t, http.StatusUnauthorized, append(parts, "Authorization Error: ")...)
	if challenge := a.header.Get("WWW-Authenticate"); !strings.HasPrefix(challenge, "OAuth realm=") {
		t.Errorf("%s: WWW-Authenticate %q, want an OAuth challenge", a.request, challenge)
	}
}

func TestSignedRequestIsTheKeysUser(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		if name := m.signed(t, m.key.sign()).object(t).str("username"); name == "" {
			t.Error("whoami has no username")
		}
	})
}

func TestRequestWithoutCredentialsIsForbidden(t *testing.T) {
	for _, path := range []string{"users/?op=whoami", "zones/", "dnsresources/", "subnets/"} {
		t.Run(path, func(t *testing.T) {
			each(t, func(t *testing.T, m *maas) {
				m.do(t, request{method: http.MethodGet, path: path, anonymous: true}).
					refuses(t, http.StatusUnauthorized, "Forbidden")
			})
		})
	}
}

func TestUnknownConsumerIsUnauthorized(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.signed(t, m.key.sign().with("oauth_consumer_key", "nosuch"+randomHex(4))).
			refusesSignature(t, "Authorization Error: Invalid API key.")
	})
}

func TestUnknownTokenIsUnauthorized(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.signed(t, m.key.sign().with("oauth_token", "zzz")).
			refusesSignature(t, "Invalid access token: zzz")
	})
}

func TestWrongSecretIsUnauthorized(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.signed(t, m.key.sign().with("oauth_signature", "&wrong")).
			refusesSignature(t, "Invalid signature. Expected signature base string:")
	})
}

func TestNonceCannotBeUsedTwice(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		parameters := m.key.sign()
		m.signed(t, parameters).ok(t)
		m.signed(t, parameters).refusesSignature(t, "Nonce already used: "+parameters["oauth_nonce"])
	})
}

func TestOldTimestampIsUnauthorized(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		old := strconv.FormatInt(time.Now().Add(-400*time.Second).Unix(), 10)
		m.signed(t, m.key.sign().with("oauth_timestamp", old)).
			refusesSignature(t, "Expired timestamp: given "+old, "greater difference than threshold 300")
	})
}

func TestFutureTimestampPasses(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		future := strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)
		m.signed(t, m.key.sign().with("oauth_timestamp", future)).ok(t)
	})
}
