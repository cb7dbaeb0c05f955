// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"
	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

// between connects to a daemon through a proxy.
func (n *node) between(t *testing.T) (*Node, *proxy) {
	t.Helper()
	p := startProxy(t, n.daemon.Socket())
	return &Node{socket: p.socket}, p
}

// put stores a client certificate as anybody might, restricted to a project, or for all of LXD.
func (n *node) put(t *testing.T, name string, keys Keys, projects ...string) (fingerprint string) {
	t.Helper()
	post := api.CertificatesPost{Name: name, Type: api.CertificateTypeClient, Restricted: len(projects) > 0, Projects: projects}
	post.Certificate = base64.StdEncoding.EncodeToString(decode(t, keys))
	if err := n.client.CreateCertificate(post); err != nil {
		t.Fatal(err)
	}
	return fingerprintOf(t, keys)
}

func fingerprintOf(t *testing.T, keys Keys) string {
	t.Helper()
	fingerprint, err := Fingerprint(keys.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	return fingerprint
}

// madeAgo makes a pair whose validity began some hours ago.
func madeAgo(t *testing.T, name string, hours int) Keys {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}}
	template.NotBefore = time.Now().Add(-time.Duration(hours) * time.Hour)
	template.NotAfter = time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return Keys{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func (n *node) fingerprints(t *testing.T) []string {
	t.Helper()
	fingerprints, err := n.client.GetCertificateFingerprints()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(fingerprints)
	return fingerprints
}

func TestAKeyPairIsReplacedWhateverLXDSaysOfNames(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]middleware{"each name once": lxdtest.UniqueNames, "a name several times": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := startNode(t)
			through, proxy := n.between(t)
			proxy.set(between)
			first, second := newKeys(t, "node"), newKeys(t, "node")
			for _, keys := range []Keys{first, second} {
				for _, want := range []bool{true, false} {
					if changed, err := through.Trust(t.Context(), "node", "default", keys.Certificate); err != nil || changed != want {
						t.Fatalf("Trust = %t, %v, want %t", changed, err, want)
					}
				}
				if restricted, projects := n.restrictionOf(t, keys); !restricted || !slices.Equal(projects, []string{"default"}) {
					t.Errorf("restricted %t, to %v", restricted, projects)
				}
			}
			both := []string{fingerprintOf(t, first), fingerprintOf(t, second)}
			slices.Sort(both)
			if diff := cmp.Diff(both, n.fingerprints(t)); diff != "" {
				t.Fatalf("while one replaces the other (-want +got):\n%s", diff)
			}
			if err := through.Distrust(t.Context(), called("node"), second.Certificate); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{fingerprintOf(t, second)}, n.fingerprints(t)); diff != "" {
				t.Errorf("afterwards (-want +got):\n%s", diff)
			}
		})
	}
}

// A certificate is a client's by what Trust made of it. Anybody can give one a name or a common name of ours.
func TestACertificateIsOursOnlyIfTrustAddedIt(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	const us = "lxd-initializer-node"
	long := us + "-" + strings.Repeat("n", 80)
	ours := func(client string) bool { return strings.HasPrefix(client, "lxd-initializer-") }
	for _, c := range []struct {
		what       string
		commonName string
		name       func(fingerprint string) string
		want       bool
	}{
		{"added by Trust", us, func(f string) string { return us + "-" + f[:12] }, true},
		{"added by Trust, made by a person", "person", func(f string) string { return us + "-" + f[:12] }, true},
		{"added by Trust, with a long name", long, func(f string) string { return long + "-" + f[:12] }, true},
		{"added by an earlier release", us, func(string) string { return us }, true},
		{"added by an earlier release, with a long name", long, func(string) string { return long }, true},
		{"our name alone", "person", func(string) string { return us }, false},
		{"our name without a common name", "", func(string) string { return us }, false},
		{"our prefix alone", "person", func(string) string { return us + "-by-hand" }, false},
		{"our prefix, and other digits", "person", func(string) string { return us + "-0123456789ab" }, false},
		{"our common name, and other digits", us, func(string) string { return us + "-0123456789ab" }, false},
		{"our common name alone", us, func(string) string { return "person" }, false},
		{"our common name, and its own digits", us, func(f string) string { return "person-" + f[:12] }, false},
		{"too many digits", us, func(f string) string { return us + "-" + f[:13] }, false},
	} {
		keys := newKeys(t, c.commonName)
		fingerprint := n.put(t, c.name(fingerprintOf(t, keys)), keys)
		earlier, err := n.Earlier(t.Context(), ours, nil)
		if err != nil || slices.Contains(earlier, fingerprint) != c.want {
			t.Errorf("%s: Earlier = %v, %v, and %s is ours: want %t", c.what, earlier, err, fingerprint, c.want)
		}
		if err := n.Distrust(t.Context(), ours, nil); err != nil {
			t.Fatal(err)
		}
		gone := !slices.Contains(n.fingerprints(t), fingerprint)
		if gone != c.want {
			t.Errorf("%s: it is gone: %t, want %t", c.what, gone, c.want)
		}
		if gone {
			continue
		}
		if err := n.client.DeleteCertificate(fingerprint); err != nil { // The next one may have the name.
			t.Fatal(err)
		}
	}
}

func TestEarlierBeginsWithTheOldest(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	var want []string
	for _, hours := range []int{20, 30, 10} {
		keys := madeAgo(t, "node", hours)
		want = append(want, n.put(t, "node-"+fingerprintOf(t, keys)[:12], keys))
	}
	want[0], want[1] = want[1], want[0]
	newest := newKeys(t, "node")
	if _, err := n.Trust(t.Context(), "node", "default", newest.Certificate); err != nil {
		t.Fatal(err)
	}
	want = append(want, fingerprintOf(t, newest))
	got, err := n.Earlier(t.Context(), called("node"), nil)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// An earlier release stored the certificate under the client's name alone.
func TestACertificateOfAnEarlierReleaseIsKept(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		commonName string
		projects   []string
		writes     int
	}{
		"as it is":                    {"node", []string{"default"}, 0},
		"for all of LXD":              {"node", nil, 1},
		"a person's key pair":         {"person", []string{"default"}, 1},
		"a person's, for all of LXD":  {"person", nil, 1},
		"without a name of its owner": {"", []string{"default"}, 1},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			n := startNode(t)
			through, proxy := n.between(t)
			proxy.set(lxdtest.UniqueNames)
			keys := newKeys(t, c.commonName)
			fingerprint := n.put(t, "node", keys, c.projects...)
			for _, writes := range []int{c.writes, 0} {
				got := writesDuring(t, n.daemon.Socket(), func() {
					if changed, err := through.Trust(t.Context(), "node", "default", keys.Certificate); err != nil || changed != (writes > 0) {
						t.Errorf("Trust = %t, %v", changed, err)
					}
				})
				if len(got) != writes {
					t.Errorf("Trust wrote %v, want %d times", got, writes)
				}
			}
			if restricted, projects := n.restrictionOf(t, keys); !restricted || !slices.Equal(projects, []string{"default"}) {
				t.Errorf("restricted %t, to %v", restricted, projects)
			}
			if earlier, err := n.Earlier(t.Context(), called("node"), nil); err != nil || !slices.Equal(earlier, []string{fingerprint}) {
				t.Errorf("Earlier = %v, %v, want %s", earlier, err, fingerprint)
			}
		})
	}
}

// counted counts requests to make a certificate, and refuses them if status is not 0.
func counted(status int, text string) (middleware, *int) {
	posts := new(int)
	return func(lxd http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				if *posts++; status != 0 {
					answer(w, status, text)
					return
				}
			}
			lxd.ServeHTTP(w, r)
		})
	}, posts
}

func TestANameThatAnotherCertificateHasNeedsAPerson(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	through, proxy := n.between(t)
	count, posts := counted(0, "")
	proxy.set(count)
	keys := newKeys(t, "node")
	name := "node-" + fingerprintOf(t, keys)[:12]
	theirs := n.put(t, name, newKeys(t, "person"))
	for range 2 {
		changed, err := through.Trust(t.Context(), "node", "default", keys.Certificate)
		e := stepError(t, err, StepTrust)
		if changed || !e.Permanent {
			t.Errorf("Trust = %t, %#v", changed, e)
		}
		wantMentioned(t, e.Problem, theirs, name)
		wantMentioned(t, e.Remedy, "lxc config trust edit "+theirs)
	}
	if *posts > 0 {
		t.Errorf("LXD was asked %d times for what it refuses", *posts)
	}
	if diff := cmp.Diff([]string{theirs}, n.fingerprints(t)); diff != "" {
		t.Errorf("what LXD trusts (-want +got):\n%s", diff)
	}

	found, etag, err := n.client.GetCertificate(theirs)
	if err != nil {
		t.Fatal(err)
	}
	put := found.Writable()
	put.Name = "person"
	if err := n.client.UpdateCertificate(theirs, put, etag); err != nil {
		t.Fatal(err)
	}
	if changed, err := through.Trust(t.Context(), "node", "default", keys.Certificate); err != nil || !changed {
		t.Errorf("once it has another name: Trust = %t, %v", changed, err)
	}
}

// LXD's fine-grained identities share the names, and are not among the certificates.
func TestANameThatAHiddenIdentityHasNeedsAPerson(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	through, proxy := n.between(t)
	keys := newKeys(t, "node")
	refuse, _ := counted(http.StatusConflict, `This "identity" entry already exists`)
	proxy.set(refuse)
	_, err := through.Trust(t.Context(), "node", "default", keys.Certificate)
	e := stepError(t, err, StepTrust)
	if !e.Permanent || !api.StatusErrorCheck(err, http.StatusConflict) {
		t.Errorf("got %#v", e)
	}
	wantMentioned(t, e.Problem, "node-"+fingerprintOf(t, keys)[:12])
	wantMentioned(t, e.Remedy, "lxc auth identity list")
	refuse, _ = counted(http.StatusServiceUnavailable, "LXD is starting up")
	proxy.set(refuse)
	if _, err := through.Trust(t.Context(), "node", "default", keys.Certificate); err == nil || Permanent(err) {
		t.Errorf("an LXD that is starting up: %v", err)
	}
}

// Whoever dies right after a change, before it hears of it, finds it done.
func TestTrustGoesOnWhereItDied(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	through, proxy := n.between(t)
	keys := newKeys(t, "node")
	for range 3 {
		dies, _ := atWrite(1, true, cutAfter)
		proxy.set(func(lxd http.Handler) http.Handler { return dies(lxdtest.UniqueNames(lxd)) })
		_, _ = through.Trust(t.Context(), "node", "default", keys.Certificate)
		if diff := cmp.Diff([]string{fingerprintOf(t, keys)}, n.fingerprints(t)); diff != "" {
			t.Fatalf("what LXD trusts (-want +got):\n%s", diff)
		}
	}
	proxy.set(nil)
	if changed, err := through.Trust(t.Context(), "node", "default", keys.Certificate); err != nil || changed {
		t.Errorf("Trust = %t, %v", changed, err)
	}
}

func TestTrustsIsAboutClientsUnderAnyName(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	keys, metrics := newKeys(t, "node"), newKeys(t, "metrics")
	wants := func(keys Keys, want bool) {
		t.Helper()
		if got, err := n.Trusts(t.Context(), keys.Certificate); err != nil || got != want {
			t.Errorf("Trusts = %t, %v, want %t", got, err, want)
		}
	}
	wants(keys, false)
	n.put(t, "anything", keys)
	wants(keys, true)
	post := api.CertificatesPost{Name: "metrics", Type: api.CertificateTypeMetrics, Certificate: base64.StdEncoding.EncodeToString(decode(t, metrics))}
	if err := n.client.CreateCertificate(post); err != nil {
		t.Fatal(err)
	}
	wants(metrics, false)
	if _, err := n.Trusts(t.Context(), keys.Key); !stepError(t, err, StepTrust).Permanent {
		t.Errorf("no certificate: %v", err)
	}
	if err := n.daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Trusts(t.Context(), keys.Certificate); err == nil || Permanent(err) {
		t.Errorf("without LXD: %v", err)
	}
}
