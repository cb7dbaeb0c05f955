// SPDX-License-Identifier: Apache-2.0

package played

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"maps"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/uuid"
)

// Store has the certificates that stand in for those of clients, by the fingerprints of these.
type Store struct {
	key  *ecdsa.PrivateKey
	uuid string // LXD's own

	mu  sync.Mutex
	all map[string]standIn
}

// standIn are a certificate of a client, and the one with which its requests come to LXD.
type standIn struct{ client, other *x509.Certificate }

// NewStore makes an empty store.
func NewStore() (*Store, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of LXD's clients: %w", err)
	}
	return &Store{key: key, uuid: string(uuid.NewUUID()), all: map[string]standIn{}}, nil
}

func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

func inPEM(c *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
}

// stand returns what stands in for a client's certificate. Names and dates are the same.
func (s *Store) stand(c *x509.Certificate) *x509.Certificate {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := fingerprint(c)
	if known, found := s.all[name]; found {
		return known.other
	}
	template := &x509.Certificate{
		SerialNumber: c.SerialNumber, Subject: c.Subject, NotBefore: c.NotBefore, NotAfter: c.NotAfter, DNSNames: c.DNSNames,
		IPAddresses: c.IPAddresses, KeyUsage: c.KeyUsage, ExtKeyUsage: c.ExtKeyUsage, BasicConstraintsValid: c.BasicConstraintsValid,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, s.key.Public(), s.key)
	if err != nil {
		return c
	}
	other, err := x509.ParseCertificate(raw)
	if err != nil {
		return c
	}
	s.all[name] = standIn{c, other}
	return other
}

// pair is what stands in for the certificate with a fingerprint, with its key. It is empty if there is none.
func (s *Store) pair(name string) *tls.Certificate {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, found := s.all[name]
	if !found {
		return &tls.Certificate{}
	}
	return &tls.Certificate{Certificate: [][]byte{known.other.Raw}, PrivateKey: s.key, Leaf: known.other}
}

// seen replaces what is LXD's by what clients know.
func (s *Store) seen() *strings.Replacer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pairs []string
	for name, known := range s.all {
		pairs = append(pairs, fingerprint(known.other), name, inPEM(known.other), inPEM(known.client))
	}
	return strings.NewReplacer(pairs...)
}

// translate sends a call about LXD's trust store on.
func (s *Store) translate(c *call, send handler) *reply {
	asked := *c
	asked.Request = c.Clone(c.Context())
	if len(c.path) == 2 {
		asked.URL.Path, asked.URL.RawPath = "/1.0/certificates/"+s.of(c.path[1]), ""
	}
	if text := c.text("certificate"); text != "" {
		asked.sent = maps.Clone(c.sent)
		asked.sent["certificate"] = s.in(text)
	}
	got := send(&asked)
	words := s.seen()
	if at := got.header.Get("Location"); at != "" {
		got.header.Set("Location", words.Replace(at))
	}
	replace(got.object, words)
	return got
}

// of returns LXD's fingerprint for that of a client, which may be shortened.
func (s *Store) of(short string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, known := range s.all {
		if strings.HasPrefix(name, short) {
			return fingerprint(known.other)
		}
	}
	return short
}

// in returns a certificate's stand-in in the same form: PEM, or DER in base64. What is neither stays.
func (s *Store) in(text string) string {
	switch parsed, isPEM := read(text); {
	case parsed == nil:
		return text
	case isPEM:
		return inPEM(s.stand(parsed))
	default:
		return base64.StdEncoding.EncodeToString(s.stand(parsed).Raw)
	}
}

// read returns a certificate that is sent to LXD, or nil.
func read(text string) (parsed *x509.Certificate, isPEM bool) {
	var raw []byte
	if block, _ := pem.Decode([]byte(text)); block != nil {
		raw, isPEM = block.Bytes, true
	} else {
		raw, _ = base64.StdEncoding.DecodeString(text)
	}
	parsed, err := x509.ParseCertificate(raw)
	if err != nil {
		return nil, false
	}
	return parsed, isPEM
}

// replace changes all texts in a value.
func replace(value any, words *strings.Replacer) any {
	switch v := value.(type) {
	case string:
		return words.Replace(v)
	case []any:
		for i := range v {
			v[i] = replace(v[i], words)
		}
	case map[string]any:
		for key := range v {
			v[key] = replace(v[key], words)
		}
	}
	return value
}
