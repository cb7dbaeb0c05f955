// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
)

// keysOf makes a pair that is valid from one time to another, counted from now.
func keysOf(t *testing.T, from, to time.Duration) lxdnode.Keys {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(to)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return lxdnode.Keys{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
}

func TestKeyPairsThatLXDRefusesAreNotUsed(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	fresh, err := lxdnode.NewKeys("node")
	if err != nil {
		t.Fatal(err)
	}
	other := keysOf(t, -time.Hour, year)
	for _, c := range []struct {
		name string
		keys lxdnode.Keys
		want bool
	}{
		{"new", fresh, true},
		{"valid for long", other, true},
		{"made while the clock was two days ahead", keysOf(t, 47*time.Hour, year), false},
		{"ends soon", keysOf(t, -year, renewBefore-time.Hour), false},
		{"has ended", keysOf(t, -year, -time.Hour), false},
		{"another's key", lxdnode.Keys{Certificate: fresh.Certificate, Key: other.Key}, false},
		{"nothing", lxdnode.Keys{}, false},
	} {
		if got := usable(c.keys); got != c.want {
			t.Errorf("%s: usable %t, want %t", c.name, got, c.want)
		}
	}
}
