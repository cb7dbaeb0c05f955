// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/canonical/lxd/shared"
	"github.com/canonical/lxd/shared/api"
	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/test/refused"
	lxdbed "github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

func TestFreshNodeIsPreparedOnce(t *testing.T) {
	t.Parallel()
	d := lxdtest.Start(t, lxdbed.Options{})
	n, client := connectNode(t, d.Socket()), lxdtest.Connect(t, d.Socket())
	config := goodConfig()
	before := inventory(t, client)

	writes := writesDuring(t, d.Socket(), func() {
		report, err := n.Inspect(t.Context(), config)
		if err != nil {
			t.Error(err)
		}
		wantStates(t, report, with(allIn(Missing), StepBridge, OK))
		if ready(report) {
			t.Error("a fresh node counts as ready")
		}
	})
	if len(writes) > 0 {
		t.Errorf("Inspect wrote: %v", writes)
	}

	if report := mustPrepare(t, n, config, Changed); !ready(report) || !has(report, Changed) {
		t.Errorf("after Prepare: ready %t, changed %t", ready(report), has(report, Changed))
	}
	after := inventory(t, client)
	wantFreshNode(t, before, after)

	writes = writesDuring(t, d.Socket(), func() {
		if report := mustPrepare(t, n, config, OK); has(report, Changed) || !ready(report) {
			t.Errorf("the second time: ready %t, changed %t", ready(report), has(report, Changed))
		}
	})
	if len(writes) > 0 {
		t.Errorf("the second Prepare wrote: %v", writes)
	}
	wantKept(t, after, inventory(t, client))

	t.Run("and trusts its client over HTTPS", func(t *testing.T) { testTrust(t, d, n) })
	t.Run("and is known", func(t *testing.T) { testAddresses(t, n) })
	t.Run("and reports the certificate that its clients see", func(t *testing.T) { testServerCertificate(t, d, n) })
}

// wantFreshNode compares what was made for goodConfig, piece by piece.
func wantFreshNode(t *testing.T, before, after belongings) {
	t.Helper()
	made := belongings{}
	for name, each := range after {
		if _, old := before[name]; !old {
			made[name] = each
		}
	}
	pool, _ := made["pool default"].(api.StoragePool)
	if pool.Driver != "btrfs" || pool.Config["size"] != "2GB" || pool.Status != api.StoragePoolStatusCreated {
		t.Errorf("the storage pool is %+v", pool)
	}
	delete(made, "pool default")
	want := belongings{
		"project maas": api.Project{Name: "maas", Description: description, Config: map[string]string{
			"features.images": "true", "features.profiles": "true", "features.storage.volumes": "true",
		}},
		"profile maas/default": after["profile maas/default"], // LXD's own, empty
		"profile maas/maas": api.Profile{Name: "maas", Description: description, UsedBy: []string{},
			Config: map[string]string{}, Devices: map[string]map[string]string{}},
	}
	if project, is := made["project maas"].(api.Project); is {
		project.Config = maps.Clone(project.Config)
		delete(project.Config, "features.storage.buckets") // LXD's own, from 5.21 on
		made["project maas"] = project
	}
	if diff := cmp.Diff(want, made); diff != "" {
		t.Errorf("what was made (-want +got):\n%s", diff)
	}
	server, _ := after["server"].(map[string]any)
	server = maps.Clone(server)
	delete(server, "volatile.uuid") // LXD's own, from 6.6 on
	wantServer := map[string]any{listenKey: "10.0.2.15:8443", ownListenKey: "10.0.2.15:8443"}
	if diff := cmp.Diff(wantServer, server); diff != "" {
		t.Errorf("the server's configuration (-want +got):\n%s", diff)
	}
	delete(before, "server")
	wantKept(t, before, after)
}

func testTrust(t *testing.T, d *lxdbed.Daemon, n *Node) {
	client := lxdtest.Connect(t, d.Socket())
	keys, stranger := newKeys(t, "node"), newKeys(t, "somebody")
	trust := func(name string, keys Keys, want bool) {
		t.Helper()
		if changed, err := n.Trust(t.Context(), name, "maas", keys.Certificate); err != nil || changed != want {
			t.Fatalf("Trust(%s) = %t, %v", name, changed, err)
		}
	}
	distrust := func(name string, keep []byte, want int) {
		t.Helper()
		before := len(trustedClients(t, client))
		err := n.Distrust(t.Context(), called(name), keep)
		if removed := before - len(trustedClients(t, client)); err != nil || removed != want {
			t.Fatalf("Distrust(%s) = %v, and %d are gone", name, err, removed)
		}
	}
	if trustedOverHTTPS(t, d, keys) {
		t.Error("LXD trusts a client that nobody added")
	}
	trust("somebody", stranger, true)
	trust("node", keys, true)
	if !trustedOverHTTPS(t, d, keys) {
		t.Error("LXD does not trust the client that was added")
	}
	if writes := writesDuring(t, d.Socket(), func() { trust("node", keys, false) }); len(writes) > 0 {
		t.Errorf("the second Trust wrote: %v", writes)
	}
	number, err := Fingerprint(keys.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.DeleteCertificate(number); err != nil { // by hand
		t.Fatal(err)
	}
	trust("node", keys, true)
	if !trustedOverHTTPS(t, d, keys) {
		t.Error("the certificate that was removed by hand is not back")
	}

	trust("node", newKeys(t, "node"), true) // an older one, for example
	distrust("node", keys.Certificate, 1)
	distrust("node", keys.Certificate, 0)
	if got, want := trustedClients(t, client), []string{"node", "somebody"}; !slices.Equal(got, want) {
		t.Errorf("LXD trusts %v, want %v", got, want)
	}
	if !trustedOverHTTPS(t, d, keys) {
		t.Error("the certificate to keep is gone")
	}
	distrust("node", nil, 1)
	if trustedOverHTTPS(t, d, keys) || !trustedOverHTTPS(t, d, stranger) {
		t.Error("after Distrust LXD must trust the stranger, and only the stranger")
	}
	distrust("node", nil, 0)

	// What can't be put right here needs a person.
	err = client.CreateCertificate(api.CertificatesPost{
		Name: "metrics", Type: api.CertificateTypeMetrics, Certificate: base64.StdEncoding.EncodeToString(decode(t, keys)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Trust(t.Context(), "node", "maas", keys.Certificate); !stepError(t, err, StepTrust).Permanent {
		t.Errorf("a certificate of another type: %v", err)
	}
	distrust("metrics", nil, 0) // it is none of a client
	if _, err := n.Trust(t.Context(), "node", "maas", keys.Key); !stepError(t, err, StepTrust).Permanent {
		t.Errorf("no certificate: %v", err)
	}
	if err := n.Distrust(t.Context(), called("node"), keys.Key); !stepError(t, err, StepTrust).Permanent {
		t.Errorf("no certificate to keep: %v", err)
	}
}

func decode(t *testing.T, keys Keys) []byte {
	t.Helper()
	parsed, err := ParseCertificate(keys.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Raw
}

// trustedOverHTTPS asks LXD for its projects with a client certificate.
func trustedOverHTTPS(t *testing.T, d *lxdbed.Daemon, keys Keys) bool {
	t.Helper()
	status, _ := overHTTPS(t, d, keys, http.MethodGet, "/1.0/projects", "")
	return status == http.StatusOK
}

// overHTTPS asks LXD at its address with a client certificate, as MAAS does.
func overHTTPS(t *testing.T, d *lxdbed.Daemon, keys Keys, method, path, body string) (status int, answer string) {
	t.Helper()
	pair, err := tls.X509KeyPair(keys.Certificate, keys.Key)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return d.Dial(ctx, network, address)
		},
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}, // LXD's is self-signed
	}}
	request, err := http.NewRequestWithContext(t.Context(), method, "https://10.0.2.15:8443"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

func testAddresses(t *testing.T, n *Node) {
	addresses, err := n.Addresses(t.Context())
	if err != nil || !slices.Equal(addresses, []string{"10.0.2.15:8443"}) {
		t.Errorf("LXD's addresses are %v, %v", addresses, err)
	}
}

func testServerCertificate(t *testing.T, d *lxdbed.Daemon, n *Node) {
	certificate, err := n.ServerCertificate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := Fingerprint(certificate)
	if err != nil {
		t.Fatal(err)
	}
	connection, err := d.Dial(t.Context(), "tcp", "10.0.2.15:8443")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	client := tls.Client(connection, &tls.Config{InsecureSkipVerify: true}) // It is compared below.
	if err := client.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := shared.CertFingerprint(client.ConnectionState().PeerCertificates[0]); got != want {
		t.Errorf("it reports the certificate %s, and shows %s", got, want)
	}
}

func TestConnectReportsTheProblemOfTheSocket(t *testing.T) {
	t.Parallel()
	snap, deb := t.TempDir()+"/none", t.TempDir()+"/none"
	_, err := Connect(t.Context(), snap, deb)
	e := stepError(t, err, StepConnect)
	if !errors.Is(err, ErrNotInstalled) || e.Permanent || e.Remedy == "" {
		t.Errorf("without a socket: %#v", e)
	}
	wantMentioned(t, e.Problem, snap, deb)

	socket := filepath.Join(t.TempDir(), "s")
	refused.Socket(t, socket)
	_, err = Connect(t.Context(), socket)
	if e := stepError(t, err, StepConnect); !errors.Is(err, syscall.ECONNREFUSED) || e.Permanent || !unanswered(err) {
		t.Errorf("without a daemon: %#v", e)
	}
}
