// SPDX-License-Identifier: Apache-2.0

// Package chaos_test runs many clusters and machines through their lives while everything possible goes wrong, by a
// seed.
package chaos_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/chaos"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// box is the sandbox that all tests share.
var box *sandbox.Sandbox

// subnet is that of all machines.
const subnet = "10.77.0.0/22"

// region has machines of others, in another pool. fullRegion adds those for the clusters.
const region = `
users:
  - {name: admin, admin: true, keys: ["chaosadmin:7fc2dQXUnGJbVqYgkT:Hw5xEVjC3bRkN8sTzPqLmA4yUe6FgD9K"]}
  - {name: others, admin: true, keys: ["` + othersKey + `"]}
  - {name: plain, keys: ["` + plainKey + `"]}
  - {name: ` + lesserUser + `, keys: ["` + seesLess + `"]}
zones: [{name: zone-a}, {name: zone-b}, {name: zone-c}]
pools: [{name: capi}, {name: others}, {name: ` + directPool + `}, {name: ` + shapedPool + `}]
domains: [{name: maas.sim, default: true}]
subnets:
  - {cidr: ` + subnet + `, gateway: 10.77.0.1, dns_servers: [10.77.0.2], dhcp: true, dynamic_ranges: [{start: 10.77.3.0, end: 10.77.3.254}],
     reserved_ranges: [{start: 10.77.1.0, end: 10.77.2.255}]}
# MAAS would note that it can't ask a host that is away for the power of others' VMs.
timings: {power_poll: 24h}
images: [{name: ubuntu/jammy}, {name: ` + vmImage + `, uploaded: true}]
machines:
  - {names: [theirs-1, theirs-2, theirs-3, theirs-4], zone: zone-a, pool: others, cores: 8, memory: 16384, disks: [100]}
`

// So many are enough: a machine that failed is skipped for minutes.
const (
	metalPerZone  = 20
	shapedPerZone = 8
	hostsPerZone  = 8
)

// fullRegion adds the numerous objects to the region.
func fullRegion() string {
	var machines, hosts strings.Builder
	for _, zone := range []string{"a", "b", "c"} {
		for i := range metalPerZone {
			fmt.Fprintf(&machines, "  - {names: [metal-%s%d], zone: zone-%s, pool: capi, cores: 8, memory: 16384, disks: [100]}\n", zone, i+1, zone)
		}
		for i := range shapedPerZone {
			fmt.Fprintf(&machines, "  - {names: [shaped-%s%d], zone: zone-%s, pool: %s, cores: 8, memory: 16384, disks: [100]}\n", zone, i+1, zone, shapedPool)
		}
		for i := range hostsPerZone {
			fmt.Fprintf(&hosts, "  - {name: lxd-%s%d, zone: zone-%s, pool: capi, cores: 16, memory: 65536, storage_pools: [{name: default, type: zfs, size: 1000}]}\n", zone, i+1, zone)
		}
	}
	return region + machines.String() + "vm_hosts:\n" + hosts.String()
}

// size is how much is attacked.
type size struct {
	name string
	// clusters there are in all, and atOnce side by side.
	clusters, atOnce int
	// stalls is how many responses come later than the manager waits for them, and settle is how long it then waits for
	// the effect of its request.
	stalls int
	settle time.Duration
	// direct is how many LXDHosts each LXD has: one that failed is skipped for minutes.
	direct int
	// limit bounds all waiting for one thing. Each response that is lost costs its object a settle time, and one to a
	// request that switches power costs four.
	limit time.Duration
	seed  int64
}

// The short attack is for each change, with a seed that always finds the same; the full one is for finding more.
var (
	short = size{name: "short", clusters: 10, atOnce: 5, direct: 4, settle: 4 * time.Second, limit: 20 * time.Minute, seed: 1}
	full  = size{name: "full", clusters: 100, atOnce: 15, direct: 10, stalls: 12, settle: 45 * time.Second, limit: 40 * time.Minute}
)

// chosen is the size and the seed that the environment asks for.
func chosen() (s size, err error) {
	s = short
	if chaos.Full() {
		s = full
	}
	s.seed, err = chaos.Seed(s.seed)
	return s, err
}

// replay is the command that does the same again.
func (s size) replay() string {
	return fmt.Sprintf("make chaos PKG=./e2e/chaos CHAOS=%s SEED=%d", s.name, s.seed)
}

// attack is the attack of this package's tests.
var attack size

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if attack, err = chosen(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return life.Main(m, sandbox.Options{
		Region: strings.NewReader(fullRegion()), Seed: attack.seed, LXD: sandbox.LXDOff,
		TimeScale: 300, PollActive: 500 * time.Millisecond, PollIdle: 3 * time.Second,
		Values: map[string]any{"manager": map[string]any{"extraArgs": []any{
			"--settle-time=" + attack.settle.String(), "--power-settle-time=0", "--orphan-audit-interval=10s",
		}}},
	}, &box)
}
