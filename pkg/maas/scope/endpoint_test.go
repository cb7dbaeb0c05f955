// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"slices"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
)

// Clusters with credentials of their own see one MAAS: what one of them reserved on a host must count for the others.
func TestIdentitiesOfOneMAASShareReservations(t *testing.T) {
	vm := func(name string) lxd.VMSpec {
		return lxd.VMSpec{Hostname: name, Cluster: name, Resources: lxd.Resources{Cores: 4, Memory: 4096}}
	}
	size := lxd.Resources{Cores: 4, Memory: 8192}
	hosts := []lxd.Host{{ID: 1, Name: "host", MachineID: "abc123", Reachable: true, Capacity: size, Largest: size}}
	first := maas.Config{Endpoint: "http://maas.example.com:5240/MAAS", APIKey: "a:b:c"}
	for name, tc := range map[string]struct {
		second maas.Config
		on     string // the machine that the host runs on
		shared bool
	}{
		"another key":                    {maas.Config{Endpoint: first.Endpoint, APIKey: "d:e:f"}, "abc123", true},
		"another spelling of where":      {maas.Config{Endpoint: "http://MAAS.example.com:5240/MAAS/api/2.0/", APIKey: "a:b:c"}, "abc123", true},
		"the address of that name":       {maas.Config{Endpoint: "http://10.0.0.2:5240/MAAS", APIKey: "a:b:c"}, "abc123", true},
		"the same key, rotated and back": {first, "abc123", true},
		"another MAAS":                   {maas.Config{Endpoint: "http://maas.example.org:5240/MAAS", APIKey: "a:b:c"}, "def456", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := &Factory{}
			if _, err := f.region(first, &inventory.Inventory{}).Machines.LXD().SelectOptimalHost(hosts, vm("one"), nil); err != nil {
				t.Fatal(err)
			}
			seen := slices.Clone(hosts)
			seen[0].MachineID = tc.on
			_, err := f.region(tc.second, &inventory.Inventory{}).Machines.LXD().SelectOptimalHost(seen, vm("two"), nil)
			if refused := err != nil; refused != tc.shared {
				t.Errorf("the second VM: %v; reservations are shared: %t", err, tc.shared)
			}
		})
	}
}
