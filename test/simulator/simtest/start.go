// SPDX-License-Identifier: Apache-2.0

package simtest

import (
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
