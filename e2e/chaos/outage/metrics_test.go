// SPDX-License-Identifier: Apache-2.0

package outage_test

import (
	"context"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/kubelet"
)

const (
	// metricsTimeout is long for a manager that lives; and readTimeout is for one that must respond, however slow this
	// machine is.
	metricsTimeout = 10 * time.Second
	readTimeout    = eventually.Limit
)

// managers are the processes of the sandbox's own release.
func managers() []kubelet.Container {
	var running []kubelet.Container
	for _, c := range box.Kubelet.Containers() {
		if c.Name == sandbox.ManagerContainer && c.PID != 0 {
			running = append(running, c)
		}
	}
	return running
}

// unanswered returns how many calls to MAAS the manager made that had no response.
func unanswered(t *testing.T) int {
	t.Helper()
	running := managers()
	if len(running) != 1 {
		t.Fatalf("%d managers run, want one", len(running))
	}
	ctx, cancel := context.WithTimeout(t.Context(), readTimeout)
	defer cancel()
	n, err := sandbox.Metric(ctx, running[0], "capmaas_maas_requests_total", `code="0"`)
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

// leader returns the manager that holds the lease; false while no manager that responds does.
func leader(ctx context.Context) (kubelet.Container, bool) {
	for _, c := range managers() {
		if leads(ctx, c) {
			return c, true
		}
	}
	return kubelet.Container{}, false
}

func leads(ctx context.Context, c kubelet.Container) bool {
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	status, err := sandbox.Metric(ctx, c, "leader_election_master_status", "")
	return err == nil && status == 1
}
