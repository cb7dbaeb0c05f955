// SPDX-License-Identifier: Apache-2.0

// Package plans_test compares what capmaasctl plan tells with what then happens.
package plans_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// box is the sandbox of the test.
var box *sandbox.Sandbox

// attack is how much is compared.
var attack struct {
	name   string
	fleets int
	seed   int64
}

// hosts are the VM hosts of the region.
var hosts []map[string]any

func TestMain(m *testing.M) {
	attack.name, attack.fleets, attack.seed = "short", 1, 4
	if life.FullAttack() {
		attack.name, attack.fleets = "full", 10
	}
	var err error
	if attack.seed, err = life.AttackSeed(attack.seed); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	hosts = vmHosts(rand.New(rand.NewPCG(uint64(attack.seed), 0)))
	region, err := sandbox.RegionWithVMHosts(hosts...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(life.Main(m, sandbox.Options{
		LXD: sandbox.LXDOff, Region: region, TimeScale: 300, Eager: true, PollActive: 500 * time.Millisecond, PollIdle: 3 * time.Second,
		Values: map[string]any{"evacuation": map[string]any{"enabled": true}},
	}, &box))
}

// replay is the command that does the same again.
func replay() string {
	return fmt.Sprintf("make chaos PKG=./e2e/plans CHAOS=%s SEED=%d", attack.name, attack.seed)
}

// pools are the resource pools of the region, and the zones that each has VM hosts in. Of a pool in one zone, it is clear
// where the next VM goes.
var pools = map[string][]string{"default": {"zone-a"}, "capi": {"zone-a", "zone-b", "zone-c"}}

// vmHosts returns two to four VM hosts for each pool and zone, of any size.
func vmHosts(dice *rand.Rand) (hosts []map[string]any) {
	for _, pool := range []string{"default", "capi"} {
		for _, zone := range pools[pool] {
			for i := range 2 + dice.IntN(3) {
				hosts = append(hosts, map[string]any{
					"name": fmt.Sprintf("%s-%s%d", pool, strings.TrimPrefix(zone, "zone-"), i), "zone": zone, "pool": pool,
					"cores": 4 + dice.IntN(12), "memory": 8192 * (1 + dice.IntN(6)),
					"storage_pools": []any{map[string]any{"name": "default", "type": "zfs", "size": 60 + dice.IntN(200)}},
				})
			}
		}
	}
	return hosts
}
