// SPDX-License-Identifier: Apache-2.0

// Package outage_test takes away what the manager needs: MAAS, the Kubernetes API, its lease, being the only one.
package outage_test

import (
	"os"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/audit"
	"github.com/capmaas/cluster-api-provider-maas/test/chaos"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// box is the sandbox that all tests share. Its manager manages only the namespace default.
var box *sandbox.Sandbox

// full means that outages may be longer than the client's timeouts, which are minutes.
var full = chaos.Full()

func TestMain(m *testing.M) {
	os.Exit(life.Main(m, sandbox.Options{
		TimeScale: 300, LXD: sandbox.LXDOff, PollActive: 500 * time.Millisecond, PollIdle: 2 * time.Second,
		Values: map[string]any{
			"watchNamespace": life.Namespace,
			// Metrics without credentials.
			"diagnostics": map[string]any{"insecure": true},
			"manager": map[string]any{"extraArgs": []any{
				"--settle-time=10s", "--power-settle-time=0",
			}},
		},
	}, &box, "a leader that can't renew its lease ends"))
}

// world is MAAS with the clusters of one test.
type world struct {
	*testing.T
	auditor *audit.Auditor
}

func newWorld(t *testing.T) *world {
	t.Helper()
	auditor, err := audit.Open(box.MAAS, box.Client, audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(auditor.Close)
	return &world{T: t, auditor: auditor}
}

// end deletes clusters, and checks that MAAS is as it was before the first of them.
func (w *world) end(all ...*cluster) {
	w.Helper()
	for _, c := range all {
		c.delete()
	}
	findings, err := w.auditor.Gone(w.Context(), audit.Who{})
	if err != nil {
		w.Fatal(err)
	}
	for _, finding := range findings {
		w.Error(finding)
	}
}
