// SPDX-License-Identifier: Apache-2.0

// Package hosts_test runs a host cluster through its life, on real LXD daemons: bare-metal machines become LXD hosts of
// MAAS, another cluster's control planes are VMs in them, and everything is deleted again without leaving anything.
package hosts_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
)

// box is the sandbox of the tests; nil where LXD can't run.
var box *sandbox.Sandbox

func TestMain(m *testing.M) {
	if lxd.Missing() != nil {
		os.Exit(m.Run()) // each test reports what is missing
	}
	region, err := sandbox.RegionWithoutVMHosts()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(life.Main(m, sandbox.Options{
		Region: region, LXD: sandbox.LXDRequired,
		Values: map[string]any{"evacuation": map[string]any{"enabled": true}},
		// MAAS's durations don't matter here.
		TimeScale: 300, Eager: true, PollActive: 500 * time.Millisecond, PollIdle: 3 * time.Second,
	}, &box))
}
