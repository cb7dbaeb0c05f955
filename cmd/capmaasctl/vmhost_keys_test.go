// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// applied is a node on which `check vm-host --apply` runs again and again. Its LXD has each name once, as newer ones, and
// strangers' certificates.
type applied struct {
	lxdBed
	t         *testing.T
	region    bed
	socket    string
	strangers []string    // fingerprints
	deaf      atomic.Bool // LXD trusts a certificate, and its client never hears of it, nor of anything else afterwards
	died      atomic.Bool // the command has come to that
}

const ownCertificates = certificatePrefix + "maas"

func newApplied(t *testing.T) *applied {
	t.Helper()
	a := &applied{lxdBed: newLXDBed(t), t: t}
	a.check(t, "--apply")
	a.region = newBed(t, lxdRegion, simulator.Options{Dial: a.daemon.Dial})
	a.socket = lxdtest.Socket(t, a.daemon, func(lxd http.Handler) http.Handler {
		lxd = lxdtest.UniqueNames(lxd)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if a.deaf.Load() && r.Method == http.MethodPost {
				lxd.ServeHTTP(httptest.NewRecorder(), r)
				a.died.Store(true)
			}
			if a.died.Load() {
				panic(http.ErrAbortHandler)
			}
			lxd.ServeHTTP(w, r)
		})
	})
	for name, commonName := range map[string]string{
		ownCertificates + "-by-hand": "person", "person": ownCertificates, ownCertificates + "-0123456789ab": ownCertificates,
		certificatePrefix + "other": certificatePrefix + "other",
	} {
		keys, err := lxdnode.NewKeys(commonName)
		a.must(err)
		a.strangers = append(a.strangers, a.store(name, keys.Certificate))
	}
	return a
}

func (a *applied) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// store puts a certificate (PEM) into LXD's trust store under a name, and returns its fingerprint.
func (a *applied) store(name string, certificate []byte) string {
	a.t.Helper()
	block, _ := pem.Decode(certificate)
	a.must(a.client.CreateCertificate(api.CertificatesPost{
		Name: name, Type: api.CertificateTypeClient, Restricted: true, Projects: []string{"maas"}, Certificate: base64.StdEncoding.EncodeToString(block.Bytes),
	}))
	fingerprint, err := lxdnode.Fingerprint(certificate)
	a.must(err)
	return fingerprint
}

// apply runs the command, which ends with an exit code.
func (a *applied) apply(want int) {
	a.t.Helper()
	a.died.Store(false)
	got := call(a.t, "", []string{"MAAS_API_KEY=" + adminKey}, "vmhost-test", "--maas-endpoint="+a.region.url,
		"--node-ip=10.0.2.15", "--vm-host-name=node1", "--apply", "--socket="+a.socket, "-o=json")
	if got.code != want {
		a.t.Fatalf("exit code %d, want %d: %s", got.code, want, got.stdout)
	}
}

// ours are the fingerprints that LXD trusts beside the strangers', which must all be there.
func (a *applied) ours() []string {
	a.t.Helper()
	trusted, err := a.client.GetCertificateFingerprints()
	a.must(err)
	for _, stranger := range a.strangers {
		if !slices.Contains(trusted, stranger) {
			a.t.Fatalf("LXD trusts %v: a stranger's certificate is gone, %s", trusted, stranger)
		}
	}
	return slices.DeleteFunc(trusted, func(one string) bool { return slices.Contains(a.strangers, one) })
}

// used is the fingerprint of MAAS's certificate for its only VM host.
func (a *applied) used() string {
	a.t.Helper()
	fingerprint, err := lxdnode.Fingerprint([]byte(a.onlyHost(a.t, a.region).Certificate))
	a.must(err)
	return fingerprint
}

// wantOne checks that the command says that all is well, and that LXD trusts one certificate of ours: MAAS's.
func (a *applied) wantOne() {
	a.t.Helper()
	a.apply(exitOK)
	if ours := a.ours(); !slices.Equal(ours, []string{a.used()}) {
		a.t.Fatalf("LXD trusts %v of ours, and MAAS uses %s", ours, a.used())
	}
}

func (a *applied) deleteHost() {
	a.t.Helper()
	hosts, err := a.region.client(a.t).ListVMHosts(a.t.Context())
	a.must(err)
	a.must(a.region.client(a.t).DeleteVMHost(a.t.Context(), maas.Unrecorded("a test"), hosts[0].ID))
}

// setPair gives MAAS another pair for its VM host.
func (a *applied) setPair(certificate, key []byte) {
	a.t.Helper()
	hosts, err := a.region.client(a.t).ListVMHosts(a.t.Context())
	a.must(err)
	params := maas.VMHostParams{VMHostPower: maas.VMHostPower{Certificate: string(certificate), Key: string(key)}}
	_, err = a.region.client(a.t).UpdateVMHost(a.t.Context(), maas.Unrecorded("a test"), hosts[0].ID, params)
	a.must(err)
}

func TestApplyReplacesTheKeyPair(t *testing.T) {
	t.Parallel()
	a := newApplied(t)
	a.wantOne()
	before := a.used()
	a.wantOne()
	if a.used() != before {
		t.Error("the pair is replaced without need")
	}
	for what, replace := range map[string]func(){
		"MAAS lost the VM host": a.deleteHost,
		"MAAS lost it, and LXD has a certificate of an earlier release": func() {
			certificate := []byte(a.onlyHost(t, a.region).Certificate)
			a.must(a.client.DeleteCertificate(a.used()))
			a.store(ownCertificates, certificate)
			a.deleteHost()
		},
	} {
		former := a.used()
		replace()
		a.wantOne()
		if a.used() == former {
			t.Errorf("%s: the pair is the former one, whose key is lost", what)
		}
	}
}

// MAAS accepts any pair; only its own driver checks it.
func TestApplyReplacesAPairThatLXDRefuses(t *testing.T) {
	t.Parallel()
	a := newApplied(t)
	a.wantOne()
	keys, err := lxdnode.NewKeys(ownCertificates)
	a.must(err)
	// LXD must let MAAS in while it is told of the pair.
	a.setPair(keys.Certificate, []byte(a.onlyHost(t, a.region).Key))
	a.wantOne()
}

// A run that fails or is interrupted loses the key that it made.
func TestTheTrustStoreDoesNotGrowFromRunToRun(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		fails    func(*applied)
		recovers func(*applied)
	}{
		"MAAS refuses": {
			func(a *applied) {
				_, err := a.region.AddFault(simulator.Fault{ID: "refused", Method: http.MethodPost, Endpoint: "vm-hosts/", NoOp: true, Status: http.StatusBadRequest, Body: "no"})
				a.must(err)
			},
			func(a *applied) { a.region.RemoveFault("refused") },
		},
		"LXD's response is lost": {
			func(a *applied) { a.deaf.Store(true) },
			func(a *applied) { a.deaf.Store(false) },
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			a := newApplied(t)
			c.fails(a)
			for range 4 {
				a.apply(exitFailed)
				if ours := a.ours(); len(ours) > 2 {
					t.Fatalf("LXD trusts %v of ours", ours)
				}
			}
			c.recovers(a)
			a.wantOne()

			// Whatever uses the certificate of a run that ended well keeps it.
			working := a.used()
			a.deleteHost()
			c.fails(a)
			for range 4 {
				a.apply(exitFailed)
				if ours := a.ours(); len(ours) > 2 || !slices.Contains(ours, working) {
					t.Fatalf("LXD trusts %v of ours, want %s among two", ours, working)
				}
			}
			c.recovers(a)
			a.wantOne()
		})
	}
}
