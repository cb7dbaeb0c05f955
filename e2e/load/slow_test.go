// SPDX-License-Identifier: Apache-2.0

package load_test

import (
	"context"
	"fmt"
	"testing"
	"time"
)

const (
	slowClusters = 200
	// perListed is how long each machine in a list takes, in real time: the manager waits for responses in real time,
	// too.
	perListed = 160 * time.Millisecond
	// slowLimit is within which all machines have to be ready: some ten lists of all of them.
	slowLimit = 30 * time.Minute
)

// BenchmarkSlowLists makes so many machines that MAAS needs minutes to list them: each list takes 0.16 s for each
// machine in it, and other calls take no time. For deployments, ten minutes pass in one second.
func BenchmarkSlowLists(b *testing.B) {
	slow := fmt.Sprintf("timings: {list_machine: %s}\n", perListed*timeScale)
	w := startWorld(b, stage{region: region(slowClusters) + slow, timeScale: timeScale, playInterval: playInterval})
	manager := w.startManager(b).PID()
	ctx, cancel := context.WithTimeout(b.Context(), slowLimit)
	defer cancel()
	began := time.Now()
	err := w.grow(ctx, slowClusters)
	needed := usageOf(b, manager)
	b.ReportMetric(0, "ns/op") // Left out.
	b.ReportMetric(time.Since(began).Seconds(), "s-to-make")
	b.ReportMetric(needed.cpu.Seconds(), "cpu-s-to-make")
	b.ReportMetric(needed.most, "MiB-at-most")
	w.reportCalls(b, slowClusters*machinesPerCluster, "calls/machine")
	if err != nil {
		b.Fatalf("after %s, with a manager of %.0f MiB at most: %v", time.Since(began).Round(time.Second), needed.most, err) // A failed benchmark does not print its metrics.
	}
}
