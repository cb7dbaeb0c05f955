// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"runtime"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/figures"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

// hundred is a MAAS with 100 servers of two cards and two disks.
const hundred = `
users: [{name: admin, admin: true, keys: ["a:b:c"]}]
subnets: [{cidr: 10.0.0.0/16}]
zones: [{name: z}]
machines:
- {prefix: m, count: 100, zone: z, cores: 8, memory: 16384, disks: [100, 400], nics: [{}, {}], tags: [fast, big]}
`

// A manager that follows 100 machines keeps what the range says of them.
func TestMemoryOfAHundredMachines(t *testing.T) {
	_, endpoint := simtest.Start(t, hundred, simulator.Options{})
	client := simtest.Client(t, endpoint, "a:b:c")
	inventory := New(client, Options{})
	follow := func() int {
		machines, err := client.ListMachines(t.Context(), maas.MachineFilter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range machines {
			inventory.Track(m)
		}
		return len(machines)
	}
	before := figures.Heap()
	if n := follow(); n != 100 {
		t.Fatalf("MAAS has %d machines", n)
	}
	follow() // What the simulator, the server and the client keep is there by now; the machines replace the former ones.
	figures.Check(t, "100 machines in the inventory", "kilobytes", (figures.Heap()-before)/1000)
	runtime.KeepAlive(inventory)
}
