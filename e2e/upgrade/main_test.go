// SPDX-License-Identifier: Apache-2.0

// Package upgrade_test upgrades MAAS to a version without VM hosts at random moments in the lives of clusters, whose
// VMs are in real LXDs.
package upgrade_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/chaos"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
)

const (
	timeScale  = 300
	settleTime = 15 * time.Second
	// commissioning lasts longer than a VM needs to start on a busy computer, in MAAS's time.
	commissioning = timeScale * 30 * time.Second
)

// ways are the versions of MAAS that the rounds lead through in turn. The last one of each has no VM hosts.
var ways = [][]string{{"3.7", "3.8", "4.0"}, {"3.7", "4.0"}}

// box is the sandbox of the tests; nil where LXD can't run.
var box *sandbox.Sandbox

// size is how much is attacked.
type size struct {
	name     string
	rounds   int
	seed     int64
	clusters []planned
	// replicas are the control planes that a cluster may begin with.
	replicas []int32
	// mixed means that some hosts are prepared before the upgrade and some after it; otherwise it may also be all.
	mixed bool
}

// The short attack is for each change, with a seed that stops MAAS while it deletes a VM, on the longest way; the full one
// is for finding more.
var (
	short = size{name: "short", rounds: 1, seed: 36, clusters: least, replicas: []int32{1}, mixed: true}
	full  = size{name: "full", rounds: 10, clusters: most, replicas: []int32{1, 3}}
)

// attack is the attack of this package's tests.
var attack size

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
	return fmt.Sprintf("make chaos PKG=./e2e/upgrade CHAOS=%s SEED=%d", s.name, s.seed)
}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if lxd.Missing() != nil {
		return m.Run() // each test reports what is missing
	}
	var err error
	if attack, err = chosen(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	region, err := sandbox.RegionForRealLXDs(commissioning)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return life.Main(m, sandbox.Options{
		Region: region, MAASVersion: ways[0][0], Seed: attack.seed, LXD: sandbox.LXDOff, Eager: true,
		TimeScale: timeScale, PollActive: 500 * time.Millisecond, PollIdle: 3 * time.Second,
		Values: map[string]any{"manager": map[string]any{"extraArgs": []any{
			"--settle-time=" + settleTime.String(), "--power-settle-time=0", "--poll-lxd-hosts=2s",
			// The audit's calls belong to no machine's life, and come at any time.
			"--orphan-audit-interval=0",
		}}},
	}, &box)
}
