// SPDX-License-Identifier: Apache-2.0

// Package inplace_test has Cluster API update machines in place, which the provider does not take part in, and looks at
// what its validation makes of that: see docs/adr/0029-in-place-updates.md.
package inplace_test

import (
	"os"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// box is the sandbox of the test.
var box *sandbox.Sandbox

// willing is its extension.
var willing = &extension{}

func TestMain(m *testing.M) {
	os.Exit(life.Main(m, sandbox.Options{
		LXD: sandbox.LXDOff, TimeScale: 300, PollActive: 500 * time.Millisecond, PollIdle: 3 * time.Second, Lease: 20 * time.Second,
		Eager: true, Extensions: willing,
	}, &box))
}
