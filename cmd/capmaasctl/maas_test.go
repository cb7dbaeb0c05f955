// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/dns"
	"github.com/capmaas/cluster-api-provider-maas/test/golden"
	"github.com/capmaas/cluster-api-provider-maas/test/refused"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

const (
	adminKey = "admin:token:" + secret
	plainKey = "plain:token:" + secret
	// poolKey is of a user who may edit the machines of the pool capi, where MAAS has entitlements.
	poolKey = "pool:token:" + secret
)

const testRegion = `
users:
- {name: root, admin: true, keys: ["` + adminKey + `"]}
- {name: capi, keys: ["` + plainKey + `"]}
- {name: pool, keys: ["` + poolKey + `"], entitlements: [{name: can_edit_machines, pool: capi}]}
zones: [{name: zone-a}, {name: zone-b}]
pools: [{name: capi}]
domains: [{name: maas.test}]
subnets:
- {cidr: 10.10.0.0/24, dhcp: true, dynamic_ranges: [{start: 10.10.0.200, end: 10.10.0.254}]}
- {cidr: 10.20.0.0/24, fabric: other}
vm_hosts:
- {name: node1, address: "10.254.0.1:8443", project: maas, zone: zone-a, pool: capi, cores: 8, memory: 16384, storage_pools: [{name: default, size: 500}]}
- {name: node2, address: "10.254.0.2:8443", unregistered: true, cores: 8, memory: 16384, storage_pools: [{name: default, size: 500}]}
timings: {refresh: 0s, vm_host_sync: 24h, power_poll: 24h}
`

// bed is a region that is served.
type bed struct {
	*simulator.Simulator
	url string
}

func newBed(t *testing.T, description string, o simulator.Options) bed {
	t.Helper()
	sim, endpoint := simtest.Start(t, description, o)
	return bed{sim, endpoint}
}

// client is an administrator's.
func (b bed) client(t *testing.T) *maas.Client {
	t.Helper()
	return simtest.Client(t, b.url, adminKey)
}

// register makes VM hosts behind the program's back.
func (b bed) register(t *testing.T, name string, addresses ...string) {
	t.Helper()
	for _, address := range addresses {
		params := maas.VMHostParams{Name: name, Zone: "zone-b", VMHostPower: maas.VMHostPower{PowerAddress: address, Project: "maas"}}
		if _, err := b.client(t).CreateLXDHost(t.Context(), maas.Unrecorded("a test"), params); err != nil {
			t.Fatal(err)
		}
	}
}

// ask runs a check with a key and returns its report. The check must change nothing in MAAS.
func (b bed) ask(t *testing.T, key string, args ...string) (report, outcome) {
	t.Helper()
	before := b.State()
	args = append([]string{"capmaasctl", "check"}, args...)
	got := call(t, "", []string{"MAAS_ENDPOINT=" + b.url, "MAAS_API_KEY=" + key}, append(args, "-o", "json")...)
	if !bytes.Equal(before, b.State()) {
		t.Errorf("%q changed something in MAAS", args)
	}
	return decode(t, got), got
}

// decode reads a report, and holds it against the exit code and the rules of every output.
func decode(t *testing.T, got outcome) report {
	t.Helper()
	var r report
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
		t.Fatalf("the output is no JSON: %v\n%s%s", err, got.stdout, got.err)
	}
	if r.OK != (got.code == exitOK) {
		t.Errorf("ok is %v and the exit code %d", r.OK, got.code)
	}
	if strings.Contains(got.stdout+got.err, secret) {
		t.Errorf("the key is in the output: %s%s", got.stdout, got.err)
	}
	for _, one := range r.Checks {
		if (one.State == stateFailed || one.State == stateMissing) && one.Remedy == "" {
			t.Errorf("%s is %s, and there is no remedy: %s", one.Name, one.State, one.Found)
		}
	}
	return r
}

// states are the names of the checks with what became of them.
func (r report) states() map[string]state {
	states := map[string]state{}
	for _, one := range r.Checks {
		states[one.Name] = one.State
	}
	return states
}

func (r report) line(name string) check {
	for _, one := range r.Checks {
		if one.Name == name {
			return one
		}
	}
	return check{}
}

func TestCheckMAASOfAGoodRegion(t *testing.T) {
	b := newBed(t, testRegion, simulator.Options{})
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(adminKey), 0o600); err != nil {
		t.Fatal(err)
	}
	got := call(t, "", nil, "maas-test-linux", "--test-vm-host", "--node-ip=10.254.0.1", "--maas-endpoint="+b.url,
		"--maas-api-key-file="+file, "--zone=zone-a", "--resource-pool=capi")
	want := `endpoint           ok  MAAS responds at ` + b.url + `
tls                ok  none: who is on the network can read the key; a hardened MAAS (3.7.4 and newer) has https alone
version            ok  MAAS 3.6.5
api-key            ok  it is valid, and belongs to root
administrator      ok  root is an administrator
vm-hosts           ok  MAAS has 1 LXD VM host(s)
zone               ok  MAAS has zone-a
resource-pool      ok  MAAS has capi
subnets            ok  MAAS serves DHCP on 10.10.0.0/24
dns-domain         ok  MAAS has maas.test
vm-host            ok  it is registered as node1 (id 1)
vm-host-zone       ok  it is in zone-a
vm-host-pool       ok  it is in capi
vm-host-reachable  ok  MAAS has reached its LXD 5.0.2
vm-host-resources  ok  8 of 8 cores and 16384 of 16384 MiB of memory are free
15 ok. Nothing was changed: this only looks.
`
	if diff := cmp.Diff(outcome{exitOK, want, ""}, got, cmp.AllowUnexported(outcome{})); diff != "" {
		t.Error(diff)
	}
}

func TestCheckMAASNamesWhatIsWrong(t *testing.T) {
	sentences := map[string]string{}
	noDHCP := strings.ReplaceAll(testRegion, "dhcp: true", "dhcp: false")
	for name, tc := range map[string]struct {
		region, version, key string
		args                 []string
		want                 map[string]state // all checks that are not ok
		not                  []string         // checks that are not made at all
	}{
		"wrong key": {key: "nobody:token:" + secret, want: map[string]state{"api-key": stateFailed}, not: []string{"version", "zone"}},
		// MAAS reveals the right secret to anyone with the rest of the key.
		"wrong secret":            {key: "admin:token:wrong", want: map[string]state{"api-key": stateFailed}},
		"plain user":              {key: plainKey, want: map[string]state{"administrator": stateFailed}},
		"a pool's key":            {version: "3.8", key: poolKey, args: []string{"--resource-pool=capi"}, want: map[string]state{"rights": stateUnknown}},
		"no VM hosts":             {version: "4.0", want: map[string]state{"rights": stateUnknown}, not: []string{"administrator"}},
		"oldest of all":           {version: "3.3"},
		"the last without groups": {version: "3.7", not: []string{"rights"}},
		"unknown zone":            {args: []string{"--zone=zone-z"}, want: map[string]state{"zone": stateFailed}},
		"unknown pool":            {args: []string{"--resource-pool=none"}, want: map[string]state{"resource-pool": stateFailed}},
		"unknown domain":          {args: []string{"--dns-domain=example.com"}, want: map[string]state{"dns-domain": stateFailed}},
		"no DHCP":                 {region: noDHCP, want: map[string]state{"subnets": stateFailed}},
		"a VM host, too":          {args: []string{"--test-vm-host", "--node-ip=10.254.0.9"}, want: map[string]state{"vm-host": stateMissing}},
		"a VM host, but 4.0": {version: "4.0", args: []string{"--test-vm-host", "--node-ip=10.254.0.1"},
			want: map[string]state{"vm-hosts": stateFailed, "rights": stateUnknown}, not: []string{"vm-host"}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.region == "" {
				tc.region = testRegion
			}
			if tc.key == "" {
				tc.key = adminKey
			}
			b := newBed(t, tc.region, simulator.Options{Version: tc.version})
			result, got := b.ask(t, tc.key, append([]string{"maas"}, tc.args...)...)
			failed := slices.ContainsFunc(slices.Collect(maps.Values(tc.want)), func(s state) bool { return s == stateFailed || s == stateMissing })
			if want := map[bool]int{false: exitOK, true: exitFailed}[failed]; got.code != want {
				t.Errorf("exit code %d, want %d", got.code, want)
			}
			checkStates(t, result, tc.want)
			if len(tc.want) > 0 {
				sentences[name] = complaints(result)
			}
			if line := result.line("vm-hosts"); tc.version == "4.0" && !strings.Contains(line.Found, "no VM hosts") {
				t.Errorf("that MAAS 4.0 has no VM hosts is not said: %v", line)
			}
			for _, name := range tc.not {
				if line := result.line(name); line.Name != "" {
					t.Errorf("%s was checked: %v", name, line)
				}
			}
		})
	}
	golden.Sentences(t, "capmaasctl-check-maas.txt", sentences)
}

// complaints are the checks that are not ok, a line each.
func complaints(r report) string {
	var lines []string
	for _, c := range r.Checks {
		if c.State != stateOK {
			lines = append(lines, fmt.Sprintf("%s %s: %s: %s", c.Name, c.State, c.Found, c.Remedy))
		}
	}
	return strings.Join(lines, "\n")
}

// A domain that MAAS has, and does not serve, is refused in the words of a MaasCluster's condition.
func TestCheckMAASRefusesADomainThatMAASIsNotAuthoritativeFor(t *testing.T) {
	b := newBed(t, strings.Replace(testRegion, "{name: maas.test}]", "{name: maas.test}, {name: ext.test, authoritative: false}]", 1), simulator.Options{})
	result, got := b.ask(t, adminKey, "maas", "--dns-domain=ext.test")
	line := result.line("dns-domain")
	want := &dns.DomainError{Problem: dns.DomainNotAuthoritative, Domain: "ext.test"}
	if got.code == exitOK || line.State != stateFailed || line.Found+": "+line.Remedy != want.Error() {
		t.Errorf("exit code %d, %+v; want %q", got.code, line, want)
	}
}

// checkStates wants exactly these checks not to be ok.
func checkStates(t *testing.T, r report, want map[string]state) {
	t.Helper()
	got := map[string]state{}
	for name, s := range r.states() {
		if s != stateOK {
			got[name] = s
		}
	}
	if want == nil {
		want = map[string]state{}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("checks that are not ok: %s\n%v", diff, r.Checks)
	}
}

func TestCheckMAASWithoutMAAS(t *testing.T) {
	page := func(status int) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte("<html>It works!</html>"))
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	for name, endpoint := range map[string]string{
		"nobody listens": "http://" + refused.Port(t) + "/MAAS", "another server": page(http.StatusOK),
		"no such page": page(http.StatusNotFound), "a broken proxy": page(http.StatusBadGateway),
	} {
		t.Run(name, func(t *testing.T) {
			got := call(t, "", []string{"MAAS_API_KEY=" + goodKey}, "maas-test", "--maas-endpoint="+endpoint, "-o=json")
			result := decode(t, got)
			if got.code != exitFailed || len(result.Checks) != 1 {
				t.Errorf("exit code %d, checks %v; want the endpoint alone to fail", got.code, result.Checks)
			}
			checkStates(t, result, map[string]state{"endpoint": stateFailed})
		})
	}
}

func TestCheckMAASVerifiesTheCertificate(t *testing.T) {
	b := newBed(t, testRegion, simulator.Options{})
	_, endpoint, authority := simtest.StartTLS(t, testRegion, simulator.Options{}, simtest.FIPSTLS())
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, authority, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"maas-test", "--maas-endpoint=" + endpoint, "-o=json"}
	env := []string{"MAAS_API_KEY=" + adminKey}
	without := decode(t, call(t, "", env, args...))
	if line := without.line("endpoint"); line.State != stateFailed || !strings.Contains(line.Remedy, "--maas-ca-file") {
		t.Errorf("with a certificate of an unknown authority: %v", line)
	}
	with := decode(t, call(t, "", env, append(args, "--maas-ca-file="+file)...))
	if !with.OK {
		t.Errorf("with --maas-ca-file: %v", with.Checks)
	}
	for _, word := range []string{tls.VersionName(tls.VersionTLS13), "P256"} { // A FIPS host has no curve that Go prefers.
		if line := with.line("tls"); !strings.Contains(line.Found, word) {
			t.Errorf("the line %v does not say %q", line, word)
		}
	}
	plain := decode(t, call(t, "", env, "maas-test", "--maas-endpoint="+strings.Replace(b.url, "http:", "https:", 1), "-o=json"))
	if line := plain.line("endpoint"); line.State != stateFailed || !strings.Contains(line.Remedy, "http://") {
		t.Errorf("https, where the server speaks none: %v", line)
	}
}

// A MAAS that is too old is refused before anything else is asked of it, and one that is too new only mentioned.
func TestCheckMAASKnowsWhichVersionsAreSupported(t *testing.T) {
	for version, want := range map[string]struct {
		state     state
		mentioned bool
	}{
		"2.9.2": {stateFailed, true}, "3.0.1": {stateFailed, true}, "3.2.11": {stateFailed, true},
		"3.3.0~rc1": {stateOK, false}, "3.8.0~beta6-17933-g.a90cdf264": {stateOK, false}, "4.0.7": {stateOK, false},
		"4.1.0": {stateOK, true}, "5.0.0": {stateOK, true},
	} {
		t.Run(version, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasSuffix(r.URL.Path, "/version/") {
					w.WriteHeader(http.StatusUnauthorized)
				}
				_, _ = w.Write([]byte(`{"version": "` + version + `"}`))
			}))
			t.Cleanup(server.Close)
			got := decode(t, call(t, "", []string{"MAAS_API_KEY=" + goodKey}, "maas-test", "--maas-endpoint="+server.URL, "-o=json"))
			line, further := got.line("version"), got.line("api-key").Name != ""
			if line.State != want.state || further != (want.state == stateOK) {
				t.Errorf("%+v, and the key is tried: %v; want %s", line, further, want.state)
			}
			if supported := strings.Contains(line.Found, maas.Oldest.Series()+" to "+maas.Newest.Series()); supported != want.mentioned {
				t.Errorf("the supported versions are mentioned: %v, want %v: %s", supported, want.mentioned, line.Found)
			}
		})
	}
}
