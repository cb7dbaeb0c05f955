// SPDX-License-Identifier: Apache-2.0

package vmhosts_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/vmhosts"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

const region = `
users: [{name: admin, admin: true, keys: ["admin:token:secret"]}, {name: joe, keys: ["joe:token:secret"]},
  {name: nodes, keys: ["nodes:token:secret"], entitlements: [{name: can_edit_machines}]}]
zones: [{name: zone-a}, {name: zone-b}]
pools: [{name: hosts}]
subnets: [{cidr: 10.77.0.0/24, gateway: 10.77.0.1, dhcp: true}]
vm_hosts:
  - {name: node-1, address: "10.77.0.11:8443", unregistered: true, cores: 8, memory: 16384, storage_pools: [{name: default, type: zfs, size: 200}]}
  - {name: node-2, address: "10.77.0.12:8443", unregistered: true, cores: 8, memory: 16384, storage_pools: [{name: default, type: zfs, size: 200}]}
`

type bed struct {
	t      *testing.T
	maas   *simulator.Simulator
	url    string
	client *maas.Client
	*vmhosts.Service
}

func newBed(t *testing.T) *bed {
	t.Helper()
	return newBedOf(t, "")
}

// newBedOf is newBed, with a MAAS of a version.
func newBedOf(t *testing.T, version string) *bed {
	t.Helper()
	sim, endpoint := simtest.Start(t, region, simulator.Options{Version: version, TimeScale: 2000})
	b := &bed{t: t, maas: sim, url: endpoint}
	b.client = b.as("admin:token:secret")
	b.Service = vmhosts.NewService(b.client)
	return b
}

func (b *bed) as(key string) *maas.Client {
	b.t.Helper()
	return simtest.Client(b.t, b.url, key)
}

func (b *bed) ensure(r vmhosts.Registration) vmhosts.Result {
	b.t.Helper()
	result, err := b.Ensure(b.t.Context(), maas.Unrecorded("a test"), r, noVMs)
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

func noVMs(context.Context, string) (int, error) { return 0, nil }

// hosts are those that MAAS has.
func (b *bed) hosts() []maas.VMHost {
	b.t.Helper()
	hosts, err := b.client.ListVMHosts(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return hosts
}

// writes counts the calls so far that could change something.
func (b *bed) writes() (n int) {
	for _, call := range b.maas.Calls().Log {
		if call.Method != http.MethodGet {
			n++
		}
	}
	return n
}

// keys are two pairs that MAAS accepts.
var keys = [2]struct{ certificate, key string }{newKeys(), newKeys()}

func newKeys() struct{ certificate, key string } {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		panic(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		panic(err)
	}
	return struct{ certificate, key string }{
		strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}))),
		strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))),
	}
}

func node(n string) vmhosts.Registration {
	return vmhosts.Registration{
		Name: "node-" + n, PowerAddress: "10.77.0.1" + n + ":8443", Project: "maas", Certificate: keys[0].certificate, Key: keys[0].key,
		Zone: "zone-a", ResourcePool: "hosts",
	}
}

// known waits until MAAS knows a VM host's machine and resources.
func (b *bed) known(id int) (host maas.VMHost) {
	b.t.Helper()
	err := eventually.Wait(b.t.Context(), "MAAS to know the VM host", func() (_ bool, _ string, err error) {
		host, err = b.client.GetVMHost(b.t.Context(), id)
		return host.ResourcesKnown() && host.Host.SystemID != "", fmt.Sprintf("%+v", host), err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return host
}

func TestEnsureRegistersOnceAndThenOnlyReads(t *testing.T) {
	b := newBed(t)
	created := b.ensure(node("1"))
	if !created.Created || created.Host.Zone.Name != "zone-a" || created.Host.Pool.Name != "hosts" || created.Host.Name != "node-1" {
		t.Fatalf("registered: %+v", created)
	}
	power, err := b.client.VMHostPower(t.Context(), created.Host.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(maas.VMHostPower{PowerAddress: "10.77.0.11:8443", Project: "maas", Certificate: keys[0].certificate, Key: keys[0].key}, power); diff != "" {
		t.Errorf("how MAAS reaches it (-want +got):\n%s", diff)
	}
	b.known(created.Host.ID)
	before := b.writes()
	again := b.ensure(node("1"))
	if again.Created || len(again.Changes) > 0 || again.Host.ID != created.Host.ID || b.writes() != before || len(b.hosts()) != 1 {
		t.Errorf("the second time: %+v, %d writes, %d hosts", again, b.writes()-before, len(b.hosts()))
	}
}

func TestEnsureUpdatesWhatDiffers(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*vmhosts.Registration)
		want   []string
	}{
		"zone":                   {func(r *vmhosts.Registration) { r.Zone = "zone-b" }, []string{"zone"}},
		"pool":                   {func(r *vmhosts.Registration) { r.ResourcePool = "default" }, []string{"resource pool"}},
		"certificate":            {func(r *vmhosts.Registration) { r.Certificate, r.Key = keys[1].certificate, keys[1].key }, []string{"certificate"}},
		"address":                {func(r *vmhosts.Registration) { r.PowerAddress = "10.77.0.12:8443" }, []string{"power address"}},
		"name":                   {func(r *vmhosts.Registration) { r.Name = "renamed" }, []string{"name"}},
		"zone and pool are free": {func(r *vmhosts.Registration) { r.Zone, r.ResourcePool = "", "" }, nil},
		"address as a URL":       {func(r *vmhosts.Registration) { r.PowerAddress = "https://10.77.0.11:8443" }, nil},
		"address without a port": {func(r *vmhosts.Registration) { r.PowerAddress = "10.77.0.11" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			id := b.ensure(node("1")).Host.ID
			r := node("1")
			test.change(&r)
			host, would, err := b.Check(t.Context(), r)
			if err != nil || host == nil || host.ID != id {
				t.Fatalf("Check found %+v: %v", host, err)
			}
			result := b.ensure(r)
			if diff := cmp.Diff(test.want, result.Changes); diff != "" || !cmp.Equal(would, result.Changes) || result.Host.ID != id || len(b.hosts()) != 1 {
				t.Errorf("changed %v (check returned %v), of %d hosts", result.Changes, would, len(b.hosts()))
			}
			if again := b.ensure(r); len(again.Changes) > 0 {
				t.Errorf("once more: %v", again.Changes)
			}
		})
	}
}

func TestEnsureFindsTheHostOfTheMachineUnderAnotherNameAndAddress(t *testing.T) {
	b := newBed(t)
	first := b.ensure(node("1")).Host
	r := node("2")
	r.SystemID = first.Host.SystemID
	if found := b.ensure(r); found.Host.ID != first.ID || len(b.hosts()) != 1 {
		t.Errorf("%+v, %d hosts", found, len(b.hosts()))
	}
}

func TestEnsureLeavesHostsOfOtherProjectsAlone(t *testing.T) {
	b := newBed(t)
	other := node("1")
	other.Project = "somebodys"
	theirs := b.ensure(other).Host
	ours := b.ensure(node("1"))
	if !ours.Created || ours.Host.ID == theirs.ID || len(b.hosts()) != 2 {
		t.Errorf("%+v, %d hosts", ours, len(b.hosts()))
	}
}

func TestSeveralCandidatesAreAnError(t *testing.T) {
	b := newBed(t)
	r := node("1")
	for range 2 {
		params := maas.VMHostParams{Name: r.Name, VMHostPower: maas.VMHostPower{PowerAddress: r.PowerAddress, Project: r.Project}}
		if _, err := b.client.CreateLXDHost(t.Context(), maas.Unrecorded("a test"), params); err != nil {
			t.Fatal(err)
		}
	}
	before := b.writes()
	var ambiguous *vmhosts.Error
	if _, err := b.Ensure(t.Context(), maas.Unrecorded("a test"), r, noVMs); !errors.As(err, &ambiguous) || ambiguous.Kind != vmhosts.Ambiguous || len(ambiguous.IDs) != 2 || b.writes() != before {
		t.Errorf("%v, %d writes", err, b.writes()-before)
	}
}

func TestAHostThatMAASCannotReachIsRefreshed(t *testing.T) {
	b := newBed(t)
	b.maas.BreakVMHost("node-1", true, false)
	for range 2 {
		result, err := b.Ensure(t.Context(), maas.Unrecorded("a test"), node("1"), noVMs)
		if !errors.Is(err, maas.Unavailable) || result.Host.ResourcesKnown() || len(b.hosts()) != 1 {
			t.Fatalf("unreachable: %+v, %v, %d hosts", result, err, len(b.hosts()))
		}
	}
	b.maas.BreakVMHost("node-1", false, false)
	if result := b.ensure(node("1")); result.Created || result.Host.Version == "" {
		t.Errorf("reachable: %+v", result)
	}
}

// From MAAS 3.8 on, a user registers a host, changes it and removes it with rights.Registration alone.
func TestRegistrationWithTheLeastKey(t *testing.T) {
	b := newBedOf(t, "3.8")
	for _, each := range []*bed{b, newBed(t)} {
		_, err := vmhosts.NewService(each.as("joe:token:secret")).Ensure(t.Context(), maas.Unrecorded("a test"), node("1"), noVMs)
		if !errors.Is(err, maas.Forbidden) {
			t.Errorf("a plain user: %v", err)
		}
	}
	b.Service = vmhosts.NewService(b.as("nodes:token:secret"))
	r := node("1")
	id := b.ensure(r).Host.ID
	r.Zone, r.ResourcePool, r.Certificate, r.Key = "zone-b", "default", keys[1].certificate, keys[1].key
	if changed := b.ensure(r); changed.Host.ID != id || len(changed.Changes) != 3 {
		t.Errorf("changed: %+v", changed)
	}
	if err := b.Remove(t.Context(), maas.Unrecorded("a test"), id); err != nil {
		t.Error(err)
	}
	for _, call := range b.maas.Calls().Log {
		if call.User == "nodes" && call.Status == http.StatusForbidden {
			t.Errorf("%s %s %s is forbidden", call.Method, call.Path, call.Op)
		}
	}
}

func TestRemoveIsDoneWhenTheHostIsGone(t *testing.T) {
	b := newBed(t)
	id := b.ensure(node("1")).Host.ID
	for range 2 {
		if err := b.Remove(t.Context(), maas.Unrecorded("a test"), id); err != nil {
			t.Fatal(err)
		}
	}
	if host, _, err := b.Check(t.Context(), node("1")); host != nil || err != nil {
		t.Errorf("found %+v: %v", host, err)
	}
}

func TestAKnownHostIsFoundWithoutReadingAllHosts(t *testing.T) {
	b := newBed(t)
	b.ensure(node("2"))
	r := node("1")
	r.ID = b.ensure(r).Host.ID
	b.maas.ResetCalls()
	if again := b.ensure(r); again.Host.ID != r.ID || again.Created {
		t.Errorf("found %+v", again)
	}
	for _, call := range b.maas.Calls().Log {
		if call.Endpoint == "vm-hosts/" {
			t.Errorf("asked for all hosts: %s %s", call.Method, call.Query)
		}
	}
	if err := b.Remove(t.Context(), maas.Unrecorded("a test"), r.ID); err != nil {
		t.Fatal(err)
	}
	if again := b.ensure(r); !again.Created || len(b.hosts()) != 2 {
		t.Errorf("after it was removed: %+v, %d hosts", again, len(b.hosts()))
	}
	other := node("2")
	other.ID = r.ID // the id of another host
	if found, _, err := b.Check(t.Context(), other); err != nil || found == nil || found.Name != "node-2" {
		t.Errorf("by a wrong id: %+v, %v", found, err)
	}
}
