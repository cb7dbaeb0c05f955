// SPDX-License-Identifier: Apache-2.0

// Package crash_test kills the manager.
package crash_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// box is the sandbox that all tests share.
var box *sandbox.Sandbox

// further are the managers besides the sandbox's own: the namespaces that they watch, and the MAAS users that they are.
var further = []string{"second", "third", "fourth", "fifth"}

const (
	timeScale  = 300
	settleTime = 8 * time.Second
)

func TestMain(m *testing.M) {
	region, err := sandbox.RegionForCrashes(append([]string{neighbour}, further...)...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(life.Main(m, sandbox.Options{
		Region: region, TimeScale: timeScale, PollActive: 500 * time.Millisecond, PollIdle: 3 * time.Second,
		Values: map[string]any{
			"watchNamespace": life.Namespace,
			"manager": map[string]any{"extraArgs": []any{
				// A killed manager's successor begins at once,
				"--leader-elect=false",
				// and in time to find what its predecessor asked for last.
				"--settle-time=" + settleTime.String(), "--power-settle-time=0",
				// The audit's calls belong to no machine's life, and come at any time.
				"--orphan-audit-interval=0",
			}},
		},
	}, &box))
}
