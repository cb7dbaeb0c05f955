// SPDX-License-Identifier: Apache-2.0

// Package simtest lets tests change a simulated MAAS as its other clients do, by calls that the provider has none of.
package simtest

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// Call makes a request with an API key (CONSUMER:TOKEN:SECRET), and returns MAAS's object; nil if it has none for it.
// The path begins below api/2.0/, and may have a query.
func Call(t testing.TB, sim *simulator.Simulator, apiKey, method, path string, form url.Values) map[string]any {
	t.Helper()
	key := strings.SplitN(apiKey, ":", 3)
	body := strings.NewReader(form.Encode())
	request := httptest.NewRequestWithContext(t.Context(), method, "/MAAS/api/2.0/"+path, body)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	now := time.Now()
	request.Header.Set("Authorization", fmt.Sprintf(`OAuth oauth_version="1.0", oauth_signature_method="PLAINTEXT", `+
		`oauth_consumer_key="%s", oauth_token="%s", oauth_signature="%%26%s", oauth_nonce="%d", oauth_timestamp="%d"`,
		key[0], key[1], key[2], now.UnixNano(), now.Unix()))
	response := httptest.NewRecorder()
	sim.Handler().ServeHTTP(response, request)
	if response.Code >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, response.Code, response.Body)
	}
	var object map[string]any
	_ = json.Unmarshal(response.Body.Bytes(), &object)
	return object
}

// Enlist adds a VM that MAAS switches on an LXD host, and returns its id.
func Enlist(t testing.TB, sim *simulator.Simulator, apiKey, hostname, mac string, power url.Values) string {
	t.Helper()
	form := url.Values{
		"hostname": {hostname}, "architecture": {"amd64/generic"}, "mac_addresses": {mac}, "power_type": {"lxd"},
		"commission": {"false"},
	}
	for name, value := range power {
		form["power_parameters_"+name] = value
	}
	return Call(t, sim, apiKey, "POST", "machines/", form)["system_id"].(string)
}
