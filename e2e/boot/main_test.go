// SPDX-License-Identifier: Apache-2.0

// Package boot_test boots virtual machines on a real LXD, in software: firmware, a kernel, systemd and cloud-init, from
// an image that was uploaded as users do. `make real` runs it.
package boot_test

import (
	"context"
	"net/http/httptest"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	lxdbed "github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	region = `
users: [{name: admin, admin: true, keys: ["admin:token:secret"]}]
subnets: [{cidr: 10.77.0.0/24, gateway: 10.77.0.1, dns_servers: [10.77.0.1], dhcp: true}]
`
	namespace = "ns"
)

var permit = maas.Unrecorded("a test")

// bed is a MAAS, and an LXD whose VMs boot.
type bed struct {
	*lxd.Service
	client *maas.Client
	host   *directhost.Host
	object lxd.HostObject
}

func newBed(t *testing.T) *bed {
	t.Helper()
	if os.Getenv("CAPMAAS_REAL_NODES") != "1" {
		t.Skip("CAPMAAS_REAL_NODES is not 1 (`make real` sets it, and makes the disk that boots)")
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("a boot is tested on amd64 alone")
	}
	address := netip.MustParsePrefix("10.77.0.1/24")
	b := &bed{host: directhost.StartWith(t, directhost.Options{LXD: lxdbed.Options{Address: address, Boots: true}})}
	b.object = lxd.HostObject{
		Namespace: namespace, Name: "lxd-a", Direct: true, Allows: func(string) bool { return true },
		Server: b.host.Options(), Zone: "default",
		StoragePool: lxdnode.DefaultStoragePool, Bridge: directhost.Bridge, Subnet: address,
	}
	described, err := simulator.LoadRegion(strings.NewReader(region))
	if err != nil {
		t.Fatal(err)
	}
	sim, err := simulator.New(described, simulator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(server.Close)
	b.client, err = maas.NewClient(maas.Config{Endpoint: server.URL + "/MAAS", APIKey: "admin:token:secret"})
	if err != nil {
		t.Fatal(err)
	}
	machines := inventory.New(b.client, inventory.Options{})
	composer := lxd.NewComposer(machines, lxd.NewHostRefresher(), b, &lxdhost.Connections{})
	b.Service = lxd.NewService(composer, lxd.NewReservations())
	return b
}

// HostObjects lists the host.
func (b *bed) HostObjects(context.Context) ([]lxd.HostObject, error) {
	return []lxd.HostObject{b.object}, nil
}
