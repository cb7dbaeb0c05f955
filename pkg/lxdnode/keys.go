// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/canonical/lxd/shared"
)

// keysYears is the validity of a key pair. LXD's own certificates have ten years, too.
const keysYears = 10

// Keys is a client's certificate and its private key, both in PEM.
type Keys struct {
	Certificate, Key []byte
}

// ValidFor reports whether LXD accepts a pair, and will for some time: it belongs together, and is valid. A pair that
// was made while the clock was ahead is not valid yet.
func (k Keys) ValidFor(d time.Duration) bool {
	pair, err := tls.X509KeyPair(k.Certificate, k.Key)
	return err == nil && time.Until(pair.Leaf.NotBefore) <= 0 && time.Until(pair.Leaf.NotAfter) > d
}

// maxCommonName is X.509's limit.
const maxCommonName = 64

// CommonName returns the common name of the certificates that NewKeys makes for a name: a longer one is cut.
func CommonName(name string) string { return name[:min(len(name), maxCommonName)] }

// NewKeys makes a self-signed client certificate, as LXD's own clients do.
func NewKeys(name string) (Keys, error) {
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		return Keys{}, fmt.Errorf("making a private key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return Keys{}, fmt.Errorf("making a serial number: %w", err)
	}
	now := time.Now().UTC()
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: CommonName(name)},
		NotBefore:             now.Add(-time.Hour), // clocks differ
		NotAfter:              now.AddDate(keysYears, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return Keys{}, fmt.Errorf("making a certificate: %w", err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Keys{}, fmt.Errorf("encoding the private key: %w", err)
	}
	return Keys{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}),
	}, nil
}

// Fingerprint returns LXD's name for a certificate (PEM): the SHA-256 of its DER in lower-case hex.
func Fingerprint(certificate []byte) (string, error) {
	parsed, err := ParseCertificate(certificate)
	if err != nil {
		return "", err
	}
	return shared.CertFingerprint(parsed), nil
}

// ParseCertificate reads a certificate in PEM.
func ParseCertificate(certificate []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(certificate)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("it is not a certificate in PEM")
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("it is not a certificate: %w", err)
	}
	return parsed, nil
}
