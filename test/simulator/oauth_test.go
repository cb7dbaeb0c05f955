// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/http"
	"slices"
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
