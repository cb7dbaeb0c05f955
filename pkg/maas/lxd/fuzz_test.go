// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

// What the API accepts, see LXDStorage and LXDNetworkDevice.
var (
	apiName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	apiDevice = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
)

const fuzzRegion = `
users: [{name: admin, admin: true, keys: ["admin:token:secret"]}]
subnets: [{cidr: 10.77.0.0/24, gateway: 10.77.0.1, dhcp: true}]
vm_hosts: [{name: host, cores: 8, memory: 16384, storage_pools: [{name: default, size: 100000}, {name: fast.pool_1-a, size: 100000}]}]
timings: {compose: 0s}
`

// FuzzConstraints composes a VM with any storage and devices that the API accepts: MAAS understands them, and the VM is
// as requested.
func FuzzConstraints(f *testing.F) {
	f.Fuzz(func(t *testing.T, disk uint16, pool, device, bridge, subnet string) {
		_, err := netip.ParsePrefix(subnet)
		if disk < 8 || !apiDevice.MatchString(device) || (pool != "" && !apiName.MatchString(pool)) ||
			(subnet == "" && !apiName.MatchString(bridge)) || (subnet != "" && err != nil) || len(device) > 15 || len(bridge) > 15 {
			t.Skip("the API server refuses it")
		}
		region := newRegion(t, fuzzRegion)
		composer := &vmHosts{region.inventory, NewHostRefresher()}
		hosts, err := composer.Hosts(t.Context(), VMSpec{}, hostsMaxAge)
		if err != nil || len(hosts) != 1 {
			t.Fatalf("hosts %v: %v", hosts, err)
		}
		spec := VMSpec{
			Hostname: "vm", Resources: Resources{Cores: 1, Memory: 2048, Disk: int(disk)}, StoragePool: pool,
			MoreDisks: []Disk{{Size: int(disk)%5 + 1, Pool: pool}},
			Devices:   []Device{{Name: device, Bridge: bridge, Subnet: subnet}},
		}
		vm, err := composer.Compose(t.Context(), maas.Unrecorded("a test"), hosts[0], spec)
		if maas.InvalidField(err, "storage") || maas.InvalidField(err, "interfaces") {
			t.Fatalf("MAAS does not understand %q %q: %v", storage(spec.disks()), interfaces(spec.Devices), err)
		}
		if err != nil {
			return // There is no such bridge or subnet, or no room.
		}
		made, _ := region.sim.Machine(vm.SystemID)
		if len(made.Interfaces) != 1 || made.Interfaces[0].Name != device {
			t.Errorf("the VM has interfaces %v, want %s", made.Interfaces, device)
		}
		if diff := cmp.Diff([]int64{int64(disk) * gigabyte, int64(disk%5+1) * gigabyte}, made.Disks); diff != "" {
			t.Errorf("the disks differ (-want +got):\n%s", diff)
		}
	})
}

type fuzzedRegion struct {
	sim       *simulator.Simulator
	inventory *inventory.Inventory
}

func newRegion(t *testing.T, text string) fuzzedRegion {
	t.Helper()
	sim := simtest.New(t, text, simulator.Options{})
	server := httptest.NewUnstartedServer(sim.Handler())
	server.Config.SetKeepAlivesEnabled(false) // Thousands of regions must not keep thousands of connections.
	server.Start()
	t.Cleanup(server.Close)
	client := simtest.Client(t, server.URL+"/MAAS", "admin:token:secret")
	return fuzzedRegion{sim, inventory.New(client, inventory.Options{})}
}

// FuzzPlacement places a VM on any hosts: on one of them that can take it, whatever their order, or the error has the
// reason for each.
func FuzzPlacement(f *testing.F) {
	f.Fuzz(func(t *testing.T, answer []byte, cores, memory, disk uint16, zone, pool string) {
		var vmHosts []maas.VMHost
		if json.Unmarshal(answer, &vmHosts) != nil {
			t.Skip("the client refuses it")
		}
		hosts := make([]Host, 0, len(vmHosts))
		for i, h := range vmHosts {
			h.ID = i + 1
			hosts = append(hosts, toHost(h, time.Time{}))
		}
		spec := VMSpec{Hostname: "vm", Resources: Resources{int(cores), int(memory), int(disk)}, Zone: zone, StoragePool: pool}
		chosen, err := placed(hosts, spec, []Peer{{VM: "other", Host: "a", Zone: "a"}})
		var placement *LXDError
		if err != nil {
			if !errors.As(err, &placement) || placement.Message == "" {
				t.Errorf("%T %v, want an *LXDError that says why", err, err)
			}
			return
		}
		if !chosen.Reachable || (zone != "" && chosen.Zone != zone) || chosen.Largest.Cores < int(cores) || chosen.Largest.Memory < int(memory) {
			t.Errorf("%+v can't take %+v", chosen, spec)
		}
		slices.Reverse(hosts)
		if again, err := placed(hosts, spec, []Peer{{VM: "other", Host: "a", Zone: "a"}}); err != nil || again.ID != chosen.ID {
			t.Errorf("host %d, and with the hosts the other way round %d (%v)", chosen.ID, again.ID, err)
		}
	})
}
