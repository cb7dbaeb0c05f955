// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"

	certutil "k8s.io/client-go/util/cert"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/cluster-api/util/certs"
)

// newKey makes a key of the kind that costs least to make, and at each connection.
func newKey() (crypto.Signer, error) {
	return certs.NewSigner(bootstrapv1.EncryptionAlgorithmECDSAP256)
}

// authority signs certificates with a key that never leaves this process.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func newAuthority(name string) (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, fmt.Errorf("making the key of %s: %w", name, err)
	}
	cert, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: name}, key)
	if err != nil {
		return nil, fmt.Errorf("making the certificate of %s: %w", name, err)
	}
	return &authority{cert: cert, key: key}, nil
}

// pair is a certificate and its key, both PEM.
type pair struct{ cert, key []byte }

func (a *authority) sign(config certs.Config) (pair, error) {
	key, err := newKey()
	if err != nil {
		return pair{}, fmt.Errorf("making the key of %s: %w", config.CommonName, err)
	}
	cert, err := config.NewSignedCert(key, a.cert, a.key)
	if err != nil {
		return pair{}, fmt.Errorf("signing the certificate of %s: %w", config.CommonName, err)
	}
	encoded, err := certs.EncodePrivateKeyPEMFromSigner(key)
	if err != nil {
		return pair{}, fmt.Errorf("encoding the key of %s: %w", config.CommonName, err)
	}
	return pair{cert: certs.EncodeCertPEM(cert), key: encoded}, nil
}

func (a *authority) pem() []byte { return certs.EncodeCertPEM(a.cert) }

// credentials are the files and secrets that the control plane and its administrator need.
type credentials struct {
	dir string
	ca  *authority
	// token is the administrator's. With a certificate, a tenth of what the API server computes would be to verify it.
	token string
}

const loopback = "127.0.0.1"

// newCredentials makes one authority for servers and clients, the API server's certificate, the administrator's token, and the
// key that signs the tokens of service accounts.
func newCredentials(dir string) (*credentials, error) {
	ca, err := newAuthority("sandbox")
	if err != nil {
		return nil, err
	}
	server, err := ca.sign(certs.Config{
		CommonName: "kube-apiserver",
		AltNames: certs.AltNames{
			IPs:      []net.IP{net.ParseIP(loopback)},
			DNSNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		},
		Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return nil, err
	}
	tokens, err := newKey()
	if err != nil {
		return nil, fmt.Errorf("making the key of the service accounts: %w", err)
	}
	tokensKey, err := certs.EncodePrivateKeyPEMFromSigner(tokens)
	if err != nil {
		return nil, fmt.Errorf("encoding the key of the service accounts: %w", err)
	}
	c := &credentials{dir: dir, ca: ca, token: rand.Text()}
	for name, data := range map[string][]byte{
		"ca.crt":        ca.pem(),
		"apiserver.crt": server.cert,
		"apiserver.key": server.key,
		"sa.key":        tokensKey,
		"tokens.csv":    []byte(c.token + ",sandbox-admin,sandbox-admin,system:masters\n"),
	} {
		if err := os.WriteFile(c.path(name), data, 0o600); err != nil {
			return nil, fmt.Errorf("writing certificates: %w", err)
		}
	}
	return c, nil
}

func (c *credentials) path(name string) string { return filepath.Join(c.dir, name) }
