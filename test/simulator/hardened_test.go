// SPDX-License-Identifier: Apache-2.0

package simulator_test

import (
	"crypto/tls"
	"errors"
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

// A hardened MAAS speaks TLS alone, on a FIPS host with few versions, curves and suites. Our client has each of them in
// common with it, and says so where it has none.
func TestAHardenedMAASIsReached(t *testing.T) {
	t.Parallel()
	const key = "admin:token:secret"
	const region = `users: [{name: admin, admin: true, keys: ["` + key + `"]}]`
	with := func(change func(*tls.Config)) *tls.Config {
		config := simtest.FIPSTLS()
		change(config)
		return config
	}
	cases := map[string]struct {
		config  *tls.Config
		refused bool
	}{
		"as a whole": {config: simtest.FIPSTLS()},
		"P-256":      {config: with(func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP256} })},
		"P-384":      {config: with(func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP384} })},
		"TLS 1.2":    {config: with(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 })},
		"TLS 1.3":    {config: with(func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 })},
		"TLS 1.1": {config: with(func(c *tls.Config) {
			c.MinVersion, c.MaxVersion, c.CipherSuites = tls.VersionTLS10, tls.VersionTLS11, nil
		}), refused: true},
	}
	for _, suite := range simtest.FIPSTLS().CipherSuites {
		name := tls.CipherSuiteName(suite)
		if !strings.Contains(name, "_ECDSA_") { // The certificate is one of RSA.
			cases[name] = struct {
				config  *tls.Config
				refused bool
			}{config: with(func(c *tls.Config) { c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{suite} })}
		}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, endpoint, authority := simtest.StartTLS(t, region, simulator.Options{}, tc.config)
			client, err := maas.NewClient(maas.Config{Endpoint: endpoint, APIKey: key, CABundle: authority})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.Close)
			if _, err = client.WhoAmI(t.Context()); (err != nil) != tc.refused || (err != nil && !errors.Is(err, maas.Unavailable)) {
				t.Errorf("the error is %v", err)
			}
			plain := simtest.Client(t, strings.Replace(endpoint, "https:", "http:", 1), key)
			if _, err := plain.WhoAmI(t.Context()); err == nil {
				t.Error("it responds without TLS")
			}
		})
	}
}
