// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

const metricsTimeout = 5 * time.Minute

// lxdRequests are the manager's to LXD since its start: those for one VM, and those for all together.
type lxdRequests struct{ forOne, forAll float64 }

// lxdCalls are requests to LXD by what they were for.
type lxdCalls struct{ create, remove, read float64 }

// lxdRequests reads them from the manager's metrics.
func (s *story) lxdRequests(ctx context.Context) (requests lxdRequests, err error) {
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	for _, c := range s.box.Kubelet.Containers() {
		if c.Name != sandbox.ManagerContainer || c.PID == 0 {
			continue
		}
		for operation, sum := range map[string]*float64{
			"create": &requests.forOne, "start": &requests.forOne, "stop": &requests.forOne, "delete": &requests.forOne,
			"find": &requests.forOne, "read": &requests.forAll, "connect": &requests.forAll, "image": &requests.forAll,
		} {
			n, err := sandbox.Metric(ctx, c, "capmaas_lxd_requests_total", `operation="`+operation+`"`)
			if err != nil {
				return lxdRequests{}, fmt.Errorf("reading how often LXD was asked: %w", err)
			}
			*sum += n
		}
	}
	return requests, nil
}

// lines describes the calls for VMs that were made and deleted; none if LXD was not asked.
func (c lxdCalls) lines(made, deleted int) []string {
	if c.create == 0 || made == 0 || deleted == 0 {
		return nil
	}
	return []string{
		fmt.Sprintf("LXD calls:              %.0f", c.create+c.remove+c.read),
		fmt.Sprintf("  for each LXD VM       %.1f to create, %.1f to delete", c.create/float64(made), c.remove/float64(deleted)),
		fmt.Sprintf("  for all together      %.0f to see what the hosts have", c.read),
	}
}
