// SPDX-License-Identifier: Apache-2.0

// Package crash_test kills the manager.
package crash_test

import (
	"os"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/e2e/life"
	"github.com/capmaas/cluster-api-provider-maas/e2e/sandbox"
)

// box is the sandbox that all tests share.
var box *sandbox.Sandbox

func TestMain(m *testing.M) {
	os.Exit(life.Main(m, sandbox.Options{
		TimeScale: 300, PollActive: 500 * time.Millisecond, PollIdle: 3 * time.Second,
		Values: map[string]any{"manager": map[string]any{"extraArgs": []any{
			// A killed manager's successor begins at once,
			"--leader-elect=false",
			// and in time to find what its predecessor asked for last.
			"--settle-time=20s",
			// What the audit asks for belongs to no machine's life, and comes when it likes.
			"--orphan-audit-interval=0",
		}}},
	}, &box))
}
