// SPDX-License-Identifier: Apache-2.0

// Package drains_test empties hosts in random order while their clusters live and the manager dies.
package drains_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/chaos"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// box is the sandbox of the test.
var box *sandbox.Sandbox

// fleet is a cluster's numbers of machines, all of them VMs.
type fleet struct{ controlPlanes, workers int }

// size is how much is attacked.
type size struct {
	name     string
	clusters []fleet
	// rounds is how often hosts are emptied, and hosts how many of them each time; 0: all.
	rounds, hosts int
	// real is whether the hosts are real LXDs. Otherwise they are those of the sandbox's region.
	real bool
	seed int64
}

// The short attack is for each change; the full one is for finding more.
var (
	short = size{name: "short", clusters: []fleet{{1, 0}, {3, 1}}, rounds: 1, hosts: 2, seed: 1}
	full  = size{name: "full", clusters: []fleet{{1, 0}, {1, 2}, {3, 0}, {3, 1}, {5, 0}, {5, 2}}, rounds: 3, real: true}
)

// commissioning is how long MAAS commissions a machine, before the sandbox divides it by its TimeScale.
const commissioning = 30 * time.Minute

// lease is how long a manager waits for the lease of one that died. It dies hundreds of times, and may end by itself.
const lease = 10 * time.Second

// attack is the attack of this package's test.
var attack size

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	attack = short
	if chaos.Full() {
		attack = full
	}
	if attack.seed, err = chaos.Seed(attack.seed); err != nil {
		return 1, err
	}
	options := sandbox.Options{
		LXD: sandbox.LXDOff, TimeScale: 300, PollActive: 500 * time.Millisecond, PollIdle: 3 * time.Second, Eager: true,
		Lease: lease, Values: map[string]any{"evacuation": map[string]any{"enabled": true}},
	}
	if attack.real {
		// A VM in a real LXD starts no sooner because MAAS's time passes faster.
		if options.Region, err = sandbox.RegionForRealLXDs(commissioning); err != nil {
			return 1, err
		}
	}
	return life.Main(m, options, &box, "a busy API server lets a short lease end"), nil
}

// replay is the command that does the same again.
func (s size) replay() string {
	return fmt.Sprintf("make chaos PKG=./e2e/chaos/drains CHAOS=%s SEED=%d", s.name, s.seed)
}
