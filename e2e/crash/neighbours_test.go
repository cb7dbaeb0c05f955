// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"slices"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// neighbour is a user of MAAS who has nothing to do with us.
const neighbour = "neighbour"

// moveIn gives the neighbour a machine that is deployed, one that is only acquired, a VM that is not allocated, and a
// DNS record.
func moveIn(t *testing.T) {
	t.Helper()
	users := box.MAAS.Users()
	at := slices.IndexFunc(users, func(user simulator.User) bool { return user.Name == neighbour })
	client, err := maas.NewClient(maas.Config{Endpoint: box.MAASURL, APIKey: users[at].Keys[0]})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := within(t, shortTimeout)
	hosts, err := client.ListVMHosts(ctx)
	must(err)
	vm, err := client.Compose(ctx, maas.Unrecorded("a test"), hosts[0].ID, maas.ComposeParams{
		Hostname: "theirs", Cores: 1, Memory: 1024, Storage: "root:8(default)", ZoneID: hosts[0].Zone.ID, PoolID: hosts[0].Pool.ID,
		SkipCommissioning: true,
	})
	must(err)
	var names []string
	for _, host := range hosts {
		names = append(names, host.Name)
	}
	_, err = client.AllocateMachine(ctx, maas.Unrecorded("a test"), maas.AllocateParams{Pool: "capi", NotOnVMHosts: names})
	must(err)
	deployed, err := client.AllocateMachine(ctx, maas.Unrecorded("a test"), maas.AllocateParams{Pool: "capi", NotOnVMHosts: names})
	must(err)
	_, err = client.DeployMachine(ctx, maas.Unrecorded("a test"), deployed.SystemID, maas.DeployParams{DistroSeries: "jammy"})
	must(err)
	_, err = client.CreateDNSResource(ctx, maas.Unrecorded("a test"), "theirs-too.maas.sim", []string{"10.77.0.90"}, 60)
	must(err)
	must(eventually.Wait(ctx, "the neighbour's machines", func() (bool, string, error) {
		one, _ := box.MAAS.Machine(vm)
		other, _ := box.MAAS.Machine(deployed.SystemID)
		status := one.Status + " " + other.Status
		return status == "Ready Deployed", status, nil
	}))
}
