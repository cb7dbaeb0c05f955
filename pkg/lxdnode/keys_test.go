// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canonical/lxd/shared"
)

func TestNewKeysAreAClientsForYears(t *testing.T) {
	keys, err := NewKeys(strings.Repeat("n", 100))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(keys.Certificate, keys.Key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pair.Leaf
	if !slices.Contains(certificate.ExtKeyUsage, x509.ExtKeyUsageClientAuth) {
		t.Error("the certificate is not for clients")
	}
	if certificate.NotAfter.Before(time.Now().AddDate(9, 0, 0)) || certificate.NotBefore.After(time.Now()) {
		t.Errorf("it is valid from %s to %s", certificate.NotBefore, certificate.NotAfter)
	}
	if got, want := certificate.Subject.CommonName, strings.Repeat("n", 64); got != want {
		t.Errorf("common name %s, want %s", got, want)
	}
}

func TestFingerprintIsLXDs(t *testing.T) {
	keys, err := NewKeys("node")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Fingerprint(keys.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	want, err := shared.CertFingerprintStr(string(keys.Certificate))
	if err != nil || got != want {
		t.Errorf("got %s, want %s (%v)", got, want, err)
	}
	for name, wrong := range map[string][]byte{"nothing": nil, "a key": keys.Key, "half": keys.Certificate[:100]} {
		if _, err := Fingerprint(wrong); err == nil {
			t.Errorf("%s has a fingerprint", name)
		}
	}
}
