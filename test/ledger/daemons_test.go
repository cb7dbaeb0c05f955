// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"math/big"
	"slices"
	"testing"
	"time"

	client "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"
	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/ledger"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

// Objects that were made before and after a daemon was followed are reported, and removed ones are not.
func TestDaemonsReportsWhatIsLeft(t *testing.T) {
	daemon := lxdtest.Start(t, lxd.Options{})
	server := lxdtest.Connect(t, daemon.Socket())
	before, after := trust(t, server), ""
	book := ledger.FollowDaemons(func() map[string]string { return map[string]string{"one": daemon.Socket()} })
	defer book.Close()
	awaitLeft(t, book, "one: certificates/"+before)

	after = trust(t, server)
	if err := server.CreateProject(api.ProjectsPost{Name: "p", ProjectPut: api.ProjectPut{Config: map[string]string{"features.images": "false", "features.profiles": "false"}}}); err != nil {
		t.Fatal(err)
	}
	create(t, server.UseProject("p"))
	awaitLeft(t, book, "one: certificates/"+before, "one: certificates/"+after, "one: instances/vm?project=p")

	if err := server.DeleteCertificate(before); err != nil {
		t.Fatal(err)
	}
	remove(t, server.UseProject("p"))
	awaitLeft(t, book, "one: certificates/"+after)
	deleted := ledger.Event{Action: api.EventLifecycleCertificateDeleted, Source: "/1.0/certificates/" + before}
	if !slices.Contains(book.Events()["one"], deleted) {
		t.Errorf("events = %v, want %v among them", book.Events()["one"], deleted)
	}
	if err := daemon.Stop(); err != nil {
		t.Fatal(err)
	}
	awaitLeft(t, book, "one: certificates/"+after) // as it was last
}

func awaitLeft(t *testing.T, book *ledger.Daemons, want ...string) {
	t.Helper()
	slices.Sort(want)
	eventually.True(t, "what is left is as wanted", func() bool { return slices.Equal(book.Left(), want) },
		func() any { return "left (-want +got):\n" + cmp.Diff(want, book.Left()) })
}

// trust has a new certificate trusted, and returns its fingerprint.
func trust(t *testing.T, server client.InstanceServer) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(der)
	fingerprint := hex.EncodeToString(sum[:])
	post := api.CertificatesPost{Name: "test-" + fingerprint, Type: api.CertificateTypeClient, Certificate: base64.StdEncoding.EncodeToString(der)}
	if err := server.CreateCertificate(post); err != nil {
		t.Fatal(err)
	}
	return fingerprint
}

func create(t *testing.T, server client.InstanceServer) {
	t.Helper()
	if err := server.CreateStoragePool(api.StoragePoolsPost{Name: "default", Driver: "dir"}); err != nil {
		t.Fatal(err)
	}
	disk := map[string]map[string]string{"root": {"type": "disk", "path": "/", "pool": "default"}}
	operation, err := server.CreateInstance(api.InstancesPost{
		Name: "vm", Source: api.InstanceSource{Type: "none"}, InstancePut: api.InstancePut{Devices: disk},
	})
	lxdtest.Finish(t, operation, err)
}

func remove(t *testing.T, server client.InstanceServer) {
	t.Helper()
	operation, err := server.DeleteInstance("vm")
	lxdtest.Finish(t, operation, err)
}
