// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

const metricsTimeout = 30 * time.Second

// lxdCalls are the manager's requests to LXD since its start, by what they were for.
type lxdCalls struct{ create, remove, read float64 }

// lxdCalls reads them from the manager's metrics.
func (s *story) lxdCalls(ctx context.Context) (calls lxdCalls, err error) {
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	for _, c := range s.box.Kubelet.Containers() {
		if c.Name != sandbox.ManagerContainer || c.PID == 0 {
			continue
		}
		for operation, sum := range map[string]*float64{
			"create": &calls.create, "stop": &calls.create, "delete": &calls.remove, "find": &calls.remove, "read": &calls.read, "connect": &calls.read,
		} {
			n, err := sandbox.Metric(ctx, c, "capmaas_lxd_requests_total", `operation="`+operation+`"`)
			if err != nil {
				return lxdCalls{}, fmt.Errorf("reading how often LXD was asked: %w", err)
			}
			*sum += n
		}
	}
	return calls, nil
}

// lines describes the calls for a number of VMs; none if LXD was not asked.
func (c lxdCalls) lines(vms int) []string {
	if c.create == 0 || vms == 0 {
		return nil
	}
	return []string{
		fmt.Sprintf("LXD calls:              %.0f", c.create+c.remove+c.read),
		fmt.Sprintf("  for each LXD VM       %.1f to create, %.1f to delete", c.create/float64(vms), c.remove/float64(vms)),
		fmt.Sprintf("  for all together      %.0f to see what the hosts have", c.read),
	}
}
