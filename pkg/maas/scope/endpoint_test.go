// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
)

// Clusters with credentials of their own see one MAAS: what one of them reserved on a host must count for the others. A
// MAAS at another URL may be another one, whatever it shows: it may have been restored from the same database.
func TestIdentitiesOfOneMAASShareReservations(t *testing.T) {
	vm := func(name string) lxd.VMSpec {
		return lxd.VMSpec{Hostname: name, Cluster: name, Resources: lxd.Resources{Cores: 4, Memory: 4096}}
	}
	size := lxd.Resources{Cores: 4, Memory: 8192}
	hostOf := func(config maas.Config) []lxd.Host {
		return []lxd.Host{{Server: config.Server(), ID: 1, Name: "host", MachineID: "abc123", Reachable: true, Capacity: size, Largest: size}}
	}
	first := maas.Config{Endpoint: "http://maas.example.com:5240/MAAS", APIKey: "a:b:c"}
	for name, tc := range map[string]struct {
		second maas.Config
		shared bool
	}{
		"another key":                    {maas.Config{Endpoint: first.Endpoint, APIKey: "d:e:f"}, true},
		"another spelling of where":      {maas.Config{Endpoint: "http://MAAS.example.com:5240/MAAS/api/2.0/", APIKey: "a:b:c"}, true},
		"the same key, rotated and back": {first, true},
		"the address of that name":       {maas.Config{Endpoint: "http://10.0.0.2:5240/MAAS", APIKey: "a:b:c"}, false},
		"a copy with the same keys":      {maas.Config{Endpoint: "http://staging.example.com:5240/MAAS", APIKey: "a:b:c"}, false},
		"another MAAS":                   {maas.Config{Endpoint: "http://maas.example.org:5240/MAAS", APIKey: "g:h:i"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := &Factory{}
			place := func(config maas.Config, name string) error {
				_, err := f.region(config, &inventory.Inventory{}).Machines.LXD().SelectOptimalHost(hostOf(config), vm(name), nil)
				return err
			}
			if err := place(first, "one"); err != nil {
				t.Fatal(err)
			}
			err := place(tc.second, "two")
			if refused := err != nil; refused != tc.shared {
				t.Errorf("the second VM: %v; reservations are shared: %t", err, tc.shared)
			}
		})
	}
}

// A VM of the same name in another MAAS is another VM.
func TestANamesakeInAnotherMAASLeavesAReservation(t *testing.T) {
	size := lxd.Resources{Cores: 4, Memory: 8192}
	vm := func(name string) lxd.VMSpec {
		return lxd.VMSpec{Hostname: name, Cluster: name, Resources: lxd.Resources{Cores: 4, Memory: 4096}}
	}
	f := &Factory{}
	at := func(endpoint string) (*lxd.Service, []lxd.Host) {
		config := maas.Config{Endpoint: endpoint, APIKey: "a:b:c"}
		return f.region(config, &inventory.Inventory{}).Machines.LXD(),
			[]lxd.Host{{Server: config.Server(), ID: 1, Name: "host", Reachable: true, Capacity: size, Largest: size}}
	}
	ours, ourHosts := at("http://maas.example.com/MAAS")
	theirs, theirHosts := at("http://maas.example.org/MAAS")
	if _, err := ours.SelectOptimalHost(ourHosts, vm("vm"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.SelectOptimalHost(theirHosts, vm("vm"), nil); err != nil {
		t.Fatal(err)
	}
	theirs.Cancel("vm")
	if _, err := ours.SelectOptimalHost(ourHosts, vm("another"), nil); err == nil {
		t.Error("the room of a VM is given away: a VM of its name in another MAAS was cancelled")
	}
}
