// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

// testRegion is small: two machines of different sizes, one VM host, calls that take no time.
const testRegion = `
users:
- {name: admin, admin: true, keys: ["adminkey:admintoken:adminsecret"]}
- {name: plain, keys: ["plainkey:plaintoken:plainsecret"]}
zones: [{name: zone-a}, {name: zone-b}]
pools: [{name: capi}]
domains: [{name: maas.test}]
subnets:
- cidr: 10.10.0.0/24
  gateway: 10.10.0.1
  dhcp: true
  dynamic_ranges: [{start: 10.10.0.200, end: 10.10.0.254}]
tags: [{name: fast}]
images: [{name: ubuntu/jammy}, {name: own-image, uploaded: true}]
machines:
- {name: big, zone: zone-a, pool: capi, cores: 16, memory: 32768, disks: [200], tags: [fast]}
- {name: small, zone: zone-b, cores: 4, memory: 8192, disks: [100]}
vm_hosts:
- {name: host, zone: zone-a, pool: capi, cores: 8, memory: 16384, storage_pools: [{name: default, size: 500}]}
timings:
  power_on: 20s
  power_off: 10s
  commission: 2m
  test: 30s
  deploy: 5m
  deploy_vm: 3m
  erase_quick: 1m
  erase_secure: 2m
  erase_full: 1h
  compose: 0s
  decompose: 0s
  refresh: 0s
  vm_host_sync: 30s
  power_poll: 24h
`

// bed is a simulator on a fake clock, served over HTTP.
type bed struct {
	*Simulator
	t      *testing.T
	clock  *clocktesting.FakeClock
	server *httptest.Server
	nonce  atomic.Int64
}

func newBed(t *testing.T) *bed {
	t.Helper()
	return newBedWith(t, testRegion, Options{Seed: 1})
}

func newBedWith(t *testing.T, description string, opts Options) *bed {
	t.Helper()
	region, err := LoadRegion(strings.NewReader(description))
	if err != nil {
		t.Fatal(err)
	}
	fake := clocktesting.NewFakeClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	s, err := newSimulator(region, opts, fake)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(s.Handler())
	server.Config.ConnState = s.ConnState
	server.Start()
	t.Cleanup(func() {
		server.Close()
		s.Close()
	})
	return &bed{Simulator: s, t: t, clock: fake, server: server}
}

// pass advances the time, a second at a time, and runs everything that becomes due.
func (b *bed) pass(d time.Duration) {
	b.t.Helper()
	for ; d > 0; d -= time.Second {
		b.clock.Step(min(d, time.Second))
		b.runDue()
	}
}

// passUntil advances the region's time by seconds until a condition holds.
func (b *bed) passUntil(what string, holds func() bool) {
	b.t.Helper()
	look, late := time.NewTicker(5*time.Millisecond), time.After(eventually.Limit)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
			b.pass(time.Second)
		case <-late:
			b.t.Fatal("waiting until " + what)
		}
	}
}

// passUntilOne advances the region's time until there is an answer.
func (b *bed) passUntilOne(answered <-chan answer) (got answer) {
	b.t.Helper()
	b.passUntil("there is an answer", func() bool {
		select {
		case got = <-answered:
			return true
		default:
			return false
		}
	})
	return got
}

// answer is a response of the API.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) object(t *testing.T) map[string]any {
	t.Helper()
	if a.status != http.StatusOK {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	out := map[string]any{}
	if err := json.Unmarshal([]byte(a.body), &out); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	return out
}

func (a answer) list(t *testing.T) []map[string]any {
	t.Helper()
	if a.status != http.StatusOK {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	var out []map[string]any
	if err := json.Unmarshal([]byte(a.body), &out); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	return out
}

// key is an API key as clients have it.
type key struct{ consumer, token, secret string }

var (
	adminKey = key{"adminkey", "admintoken", "adminsecret"}
	plainKey = key{"plainkey", "plaintoken", "plainsecret"}
)

func (k key) header(nonce string, at time.Time) string {
	return fmt.Sprintf(`OAuth oauth_version="1.0", oauth_signature_method="PLAINTEXT", oauth_consumer_key="%s", `+
		`oauth_token="%s", oauth_signature="%%26%s", oauth_nonce="%s", oauth_timestamp="%d"`,
		k.consumer, k.token, k.secret, nonce, at.Unix())
}

// send makes a call; the error is that of the transport.
func (b *bed) send(k key, method, path string, form url.Values) (answer, error) {
	target := b.server.URL + apiRoot + path
	var body io.Reader
	if method == http.MethodPost || method == http.MethodPut {
		body = strings.NewReader(form.Encode())
	} else if len(form) > 0 {
		target += "?" + form.Encode()
	}
	request, err := http.NewRequestWithContext(b.t.Context(), method, target, body)
	if err != nil {
		b.t.Fatal(err)
	}
	request.Header.Set("Authorization", k.header(fmt.Sprint("n", b.nonce.Add(1)), b.clock.Now()))
	if body != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return receive(b.server.Client().Do(request))
}

func receive(response *http.Response, err error) (answer, error) {
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(raw)}, err
}

// do is send as the administrator, with "key", "value" pairs.
func (b *bed) do(method, path string, pairs ...string) answer {
	b.t.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	got, err := b.send(adminKey, method, path, form)
	if err != nil {
		b.t.Fatalf("%s %s: %v", method, path, err)
	}
	return got
}

// control calls the control endpoint.
func (b *bed) control(method, path, body string) answer {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), method, b.server.URL+"/control/"+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	got, err := receive(b.server.Client().Do(request))
	if err != nil {
		b.t.Fatal(err)
	}
	return got
}

// named finds a machine by its hostname.
func (b *bed) named(hostname string) MachineSnapshot {
	b.t.Helper()
	for _, m := range b.Machines() {
		if m.Hostname == hostname {
			return m
		}
	}
	b.t.Fatalf("no machine %s", hostname)
	return MachineSnapshot{}
}

// composeVM makes a VM that is Ready at once.
func (b *bed) composeVM(hostname string) string {
	b.t.Helper()
	id := b.do(post, "vm-hosts/1/", "op", "compose", "hostname", hostname, "cores", "2", "memory", "4096",
		"storage", "root:20", "skip_commissioning", "true").object(b.t)["system_id"]
	return id.(string)
}
