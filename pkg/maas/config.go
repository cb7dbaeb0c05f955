// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

// Config is one identity towards one MAAS.
type Config struct {
	// Endpoint is MAAS's URL with or without /api/2.0, for example http://maas.example.com:5240/MAAS.
	Endpoint string
	// APIKey is consumer:token:secret, as `maas apikey` prints it.
	APIKey string
	// CABundle holds PEM certificates that MAAS's certificate is verified against, beside the system's. Optional.
	CABundle []byte
}

// ConfigError is an identity that can't be used. Field is endpoint, apiKey, caBundle or proxy.
type ConfigError struct {
	Field, Problem string
}

// Error names the field and the remedy, never the value.
func (e *ConfigError) Error() string { return e.Field + ": " + e.Problem }

// ReadConfig returns an identity with what is given, and with what is not from the files of a directory:
// config/maasEndpoint, credentials/apiKey and, optionally, credentials/caBundle. The error holds a *ConfigError for
// each file that can't be read.
func ReadConfig(dir string, given Config) (Config, error) {
	var errs []error
	read := func(field, name string) []byte {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !(field == "caBundle" && errors.Is(err, fs.ErrNotExist)) {
			errs = append(errs, &ConfigError{field, err.Error()})
		}
		return content
	}
	if given.Endpoint == "" {
		given.Endpoint = strings.TrimSpace(string(read("endpoint", "config/maasEndpoint")))
	}
	if given.APIKey == "" {
		given.APIKey = strings.TrimSpace(string(read("apiKey", "credentials/apiKey")))
	}
	if len(given.CABundle) == 0 {
		given.CABundle = read("caBundle", "credentials/caBundle")
	}
	return given, errors.Join(errs...)
}

// ID is different for each identity and does not reveal the key.
func (c Config) ID() string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(c.Endpoint+"\x00"+c.APIKey+"\x00"+string(c.CABundle))))[:16]
}

// KeyID is different for each API key and does not reveal it: it is made of the consumer and the token, without the
// secret. It is "" if the key is malformed.
func (c Config) KeyID() string {
	parts := strings.Split(c.APIKey, ":")
	if len(parts) != 3 {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(parts[0]+":"+parts[1])))[:8]
}

// Where identifies the region: identities with the same value see the same MAAS. It is the URL's host and path in their
// normal form.
func (c Config) Where() string {
	u, err := c.apiURL()
	if err != nil {
		return c.Endpoint
	}
	host, port := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), u.Port()
	if port == defaultPorts[u.Scheme] {
		port = ""
	}
	return strings.TrimSuffix(net.JoinHostPort(host, port), ":") + path.Clean(u.Path)
}

// Server returns the MAAS that the identity is for: see Where.
func (c Config) Server() guard.Server { return guard.ServerAt(c.Where(), nil) }

var defaultPorts = map[string]string{"http": "80", "https": "443"}

// Validate checks the form of all fields. It sends nothing to MAAS.
func (c Config) Validate() error {
	var errs []error
	if _, err := c.apiURL(); err != nil {
		errs = append(errs, err)
	}
	parts := strings.Split(c.APIKey, ":")
	switch {
	case len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "":
		errs = append(errs, &ConfigError{"apiKey", "it must have the form consumer:token:secret, as `maas apikey` prints it"})
	case strings.ContainsFunc(c.APIKey, func(r rune) bool { return r <= ' ' || r > '~' }):
		errs = append(errs, &ConfigError{"apiKey", "it holds a space, a line break or another character that no key has"})
	}
	if _, err := c.tlsConfig(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// apiURL returns the versioned root of the API, with a trailing slash.
func (c Config) apiURL() (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(c.Endpoint))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, &ConfigError{"endpoint", "it must be MAAS's URL, for example http://maas.example.com:5240/MAAS"}
	}
	// Without dots: what Where says must be what is asked.
	root := strings.TrimSuffix(strings.TrimSuffix(path.Clean("/"+u.Path), "/api/2.0"), "/")
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: root + "/api/2.0/"}, nil
}

func (c Config) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(c.CABundle) == 0 {
		return config, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("reading the system's CA certificates: %w", err)
	}
	if !pool.AppendCertsFromPEM(c.CABundle) {
		return nil, &ConfigError{"caBundle", "it holds no PEM certificate"}
	}
	config.RootCAs = pool
	return config, nil
}
