// SPDX-License-Identifier: Apache-2.0

package simtest

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// New makes a MAAS of a description, until the test ends.
func New(t testing.TB, description string, o simulator.Options) *simulator.Simulator {
	t.Helper()
	region, err := simulator.LoadRegion(strings.NewReader(description))
	if err != nil {
		t.Fatal(err)
	}
	sim, err := simulator.New(region, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	return sim
}

// Start is New, and serves that MAAS at an endpoint.
func Start(t testing.TB, description string, o simulator.Options) (sim *simulator.Simulator, endpoint string) {
	t.Helper()
	sim = New(t, description, o)
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(server.Close)
	return sim, server.URL + "/MAAS"
}

// FIPSTLS is how a MAAS on a host in FIPS mode speaks TLS: with these versions, curves and suites alone
// (docs/reference/configuration-guides/fips-mode.md in MAAS). Go speaks no suite with DHE, and has those of TLS 1.3 by
// itself.
func FIPSTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, CurvePreferences: []tls.CurveID{tls.CurveP256, tls.CurveP384},
		CipherSuites: []uint16{
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		},
	}
}

// StartTLS is Start for a MAAS that speaks TLS alone. authority is the certificate, in PEM, that clients need.
func StartTLS(
	t testing.TB, description string, o simulator.Options, config *tls.Config,
) (sim *simulator.Simulator, endpoint string, authority []byte) {
	t.Helper()
	sim = New(t, description, o)
	server := httptest.NewUnstartedServer(sim.Handler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // Some handshakes are meant to fail.
	server.TLS = config
	server.StartTLS()
	t.Cleanup(server.Close)
	authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return sim, server.URL + "/MAAS", authority
}

// Client asks what is at an endpoint with an API key, until the test ends.
func Client(t testing.TB, endpoint, apiKey string) *maas.Client {
	t.Helper()
	client, err := maas.NewClient(maas.Config{Endpoint: endpoint, APIKey: apiKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}
