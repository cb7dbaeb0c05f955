// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"

	"github.com/canonical/lxd/shared"
)

// MAAS's messages for a certificate and key that it cannot use.
const (
	invalidPEM   = "Invalid PEM material"
	keysMismatch = "Private and public keys don't match"
)

// checkKeyPair returns MAAS's complaint about a certificate and its key, or "".
func checkKeyPair(certificate, key string) string {
	if _, err := tls.X509KeyPair([]byte(certificate), []byte(key)); err == nil {
		return ""
	}
	block, _ := pem.Decode([]byte(certificate))
	secret, _ := pem.Decode([]byte(key))
	if block == nil || secret == nil {
		return invalidPEM
	}
	if _, err := x509.ParseCertificate(block.Bytes); err != nil || !isPrivateKey(secret.Bytes) {
		return invalidPEM
	}
	return keysMismatch
}

func isPrivateKey(der []byte) bool {
	if _, err := x509.ParsePKCS8PrivateKey(der); err == nil {
		return true
	}
	if _, err := x509.ParseECPrivateKey(der); err == nil {
		return true
	}
	_, err := x509.ParsePKCS1PrivateKey(der)
	return err == nil
}

// newKeyPair makes the pair that MAAS makes for an LXD host that comes without one.
func newKeyPair() (certificate, key string, err error) {
	cert, private, err := shared.GenerateMemCert(true, shared.CertOptions{})
	return string(cert), string(private), err
}
