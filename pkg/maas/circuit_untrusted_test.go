// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"testing"
)

// A server that can't prove to be MAAS is told apart from one that does not respond, also by the calls that are not sent
// because of it; one that does not respond then is that again.
func TestAServerThatIsNotTrusted(t *testing.T) {
	expired := &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}
	r := &region{answer: roundTrip(func(*http.Request) (*http.Response, error) { return nil, expired })}
	client := r.client(t)
	var first string
	for range 10 {
		_, err := client.ListZones(t.Context())
		found, remedy := Explain(err)
		if first == "" {
			first = found + remedy
		}
		if !errors.Is(err, Untrusted) || !errors.Is(err, Unavailable) || found+remedy != first || remedy == "" {
			t.Fatalf("%v: %s: %s", err, found, remedy)
		}
	}
	if n := len(r.requests()); n >= 10 {
		t.Errorf("MAAS was asked %d times", n)
	}
	other := client.circuit.untrusted.Load()
	client.circuit.note(&Error{Kind: Unavailable})
	if client.circuit.untrusted.Load() != nil || other == nil {
		t.Error("a server that does not respond is still not trusted")
	}
}
