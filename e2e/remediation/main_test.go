// SPDX-License-Identifier: Apache-2.0

// Package remediation_test has workers fail in the ways that servers do, each under a MachineHealthCheck that switches
// its machine off and on before it is replaced.
package remediation_test

import (
	"os"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// box is the sandbox.
var box *sandbox.Sandbox

func TestMain(m *testing.M) {
	options := sandbox.Options{TimeScale: 300, PollActive: 500 * time.Millisecond, PollIdle: 3 * time.Second, Eager: true, Lease: 20 * time.Second}
	os.Exit(life.Main(m, options, &box))
}
