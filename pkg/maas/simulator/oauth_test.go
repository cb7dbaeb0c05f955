// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// whoami asks for the user of the header; no header is anonymous.
func (b *bed) whoami(header string) answer {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), get, b.server.URL+apiRoot+"users/?op=whoami", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	if header != "" {
		request.Header.Set("Authorization", header)
	}
	got, err := receive(b.server.Client().Do(request))
	if err != nil {
		b.t.Fatal(err)
	}
	return got
}

func TestOAuth(t *testing.T) {
	b := newBed(t)
	now := b.clock.Now()
	good := adminKey.header("used", now)
	if got := b.whoami(good).object(t)["username"]; got != "admin" {
		t.Fatalf("user %v, want admin", got)
	}
	tests := map[string]struct {
		header string
		want   int
	}{
		"plain user":        {plainKey.header("a", now), http.StatusOK},
		"from the future":   {adminKey.header("b", now.Add(time.Hour)), http.StatusOK},
		"almost too old":    {adminKey.header("c", now.Add(-300*time.Second)), http.StatusOK},
		"too old":           {adminKey.header("d", now.Add(-301*time.Second)), http.StatusUnauthorized},
		"nonce again":       {good, http.StatusUnauthorized},
		"unknown consumer":  {key{"nobody", "x", "y"}.header("e", now), http.StatusUnauthorized},
		"unknown token":     {key{"adminkey", "x", "adminsecret"}.header("f", now), http.StatusUnauthorized},
		"wrong secret":      {key{"adminkey", "admintoken", "x"}.header("g", now), http.StatusUnauthorized},
		"another's token":   {key{"adminkey", "plaintoken", "plainsecret"}.header("h", now), http.StatusUnauthorized},
		"another method":    {strings.Replace(adminKey.header("i", now), "PLAINTEXT", "HMAC-SHA256", 1), http.StatusUnauthorized},
		"parameter missing": {strings.Replace(adminKey.header("j", now), "oauth_nonce", "x", 1), http.StatusUnauthorized},
		"anonymous":         {"", http.StatusUnauthorized},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := b.whoami(test.header)
			if got.status != test.want {
				t.Errorf("status %d, want %d: %s", got.status, test.want, got.body)
			}
			if got.status == http.StatusUnauthorized && got.header.Get("WWW-Authenticate") == "" {
				t.Error("no WWW-Authenticate")
			}
		})
	}
}

func TestCallsNameTheUserOfTheKey(t *testing.T) {
	b := newBed(t)
	now := b.clock.Now()
	for _, header := range []string{adminKey.header("a", now), plainKey.header("b", now), key{"nobody", "x", "y"}.header("c", now), ""} {
		b.whoami(header)
	}
	var users []string
	for _, call := range b.Calls().Log {
		users = append(users, call.User)
	}
	if want := []string{"admin", "plain", "", ""}; !slices.Equal(users, want) {
		t.Errorf("users %q, want %q", users, want)
	}
}

func TestNoncesAreForgottenWhenTheirTimestampsAreTooOld(t *testing.T) {
	b := newBed(t)
	for range 20 {
		b.do(get, "zones/")
		b.pass(time.Minute)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.nonces) > 15 {
		t.Errorf("%d nonces are kept", len(b.nonces))
	}
}
