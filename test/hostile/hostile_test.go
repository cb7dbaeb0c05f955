// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	key    = "admin:token:secret"
	region = `
users: [{name: admin, admin: true, keys: ["` + key + `"]}]
domains: [{name: maas.sim, default: true}]
subnets: [{cidr: 10.77.0.0/24, dhcp: true, dynamic_ranges: [{start: 10.77.0.200, end: 10.77.0.254}]}]
images: [{name: ubuntu/jammy}]
machines: [{names: [metal-a, metal-b], cores: 8, memory: 16384, disks: [100]}]
`
)

// A liar that nobody believes does no harm: what it says is well-formed, and not so.
func TestALyingMAASIsBelieved(t *testing.T) {
	description, err := simulator.LoadRegion(strings.NewReader(region))
	if err != nil {
		t.Fatal(err)
	}
	truth, err := simulator.New(description, simulator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(truth.Close)
	liar := &LyingMAAS{MAAS: truth.Handler()}
	server := httptest.NewServer(liar)
	t.Cleanup(server.Close)
	client, err := maas.NewClient(maas.Config{Endpoint: server.URL + "/MAAS", APIKey: key})
	if err != nil {
		t.Fatal(err)
	}
	said := map[int]bool{}
	for range 4 * len(liesToReads) {
		machines, err := client.ListMachines(t.Context(), maas.MachineFilter{Hostnames: []string{"metal-a"}})
		if err != nil {
			t.Errorf("a list: %v", err)
		}
		said[len(machines)] = true
	}
	for _, machines := range []int{0, 1, 2} {
		if !said[machines] {
			t.Errorf("it never said that there are %d of one name", machines)
		}
	}
	before := string(truth.State())
	got := 0
	for range 2 * len(liesToChanges) {
		liar.asked.Store(liar.asked.Load() &^ 1) // The next answer is a lie.
		if _, err := client.AllocateMachine(t.Context(), maas.Unrecorded("a test"), maas.AllocateParams{}); err == nil {
			got++
		}
		liar.asked.Add(1)
	}
	if after := string(truth.State()); got == 0 || after != before || liar.Lied() == 0 {
		t.Errorf("it gave %d machines that it did not allocate; it has changed: %v", got, after != before)
	}
}

// A response that is garbage is not read to its end.
func TestAnEndlessResponseIsRead(t *testing.T) {
	flood := EndlessMAAS()
	client, err := maas.NewClient(maas.Config{Endpoint: Serve(t, flood) + "/MAAS", APIKey: key})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.ListMachines(t.Context(), maas.MachineFilter{}); !errors.Is(err, guard.ErrTooLong) {
		t.Errorf("MAAS: %v after %d bytes", err, flood.Taken())
	}
	flood = EndlessLXD()
	keys, err := lxdnode.NewKeys("test")
	if err != nil {
		t.Fatal(err)
	}
	address, certificate := ServeTLS(t, flood)
	_, err = new(lxdhost.Connections).Host(t.Context(), lxdhost.Options{
		Address: address, ServerCertificate: certificate, Project: "maas",
		ClientCertificate: keys.Certificate, ClientKey: keys.Key,
	})
	if !errors.Is(err, guard.ErrTooLong) {
		t.Errorf("LXD: %v after %d bytes", err, flood.Taken())
	}
}

func TestALyingLXDIsBelieved(t *testing.T) {
	keys, err := lxdnode.NewKeys("test")
	if err != nil {
		t.Fatal(err)
	}
	claimed := api.Instance{Name: "vm", Type: string(api.InstanceTypeVM), Status: "Running", Config: map[string]string{
		"user.capmaas.owner": "somebody", "user.capmaas.machine": "vm",
	}}
	liar := &LyingLXD{Claims: func() []api.Instance { return []api.Instance{claimed} }}
	address, certificate := ServeTLS(t, liar)
	options := lxdhost.Options{
		Address: address, ServerCertificate: certificate, Project: "maas",
		ClientCertificate: keys.Certificate, ClientKey: keys.Key,
	}
	reading, err := new(lxdhost.Connections).Read(t.Context(), options, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(reading.VMs) != 1 || reading.Cores != allCores || liar.Asked() == 0 {
		t.Errorf("it is %+v", reading)
	}
	host, err := new(lxdhost.Connections).Host(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(host.Close)
	if err := host.Delete(t.Context(), "other", lxdhost.Marks{Owner: "somebody", Machine: "other"}, time.Time{}); err != nil {
		t.Errorf("deleting what is not there: %v", err)
	}
}
