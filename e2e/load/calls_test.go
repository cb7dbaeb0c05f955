// SPDX-License-Identifier: Apache-2.0

package load_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// reportCalls logs the calls to MAAS, by kind, and reports their number for each machine.
func (w *world) reportCalls(b *testing.B, machines int, unit string) {
	b.Helper()
	stats := w.maas.Calls()
	kinds := map[string]int{}
	for key, count := range stats.ByKey {
		kinds[kindOf(key)] += count
	}
	var parts []string
	for _, kind := range slices.SortedFunc(maps.Keys(kinds), func(x, y string) int { return kinds[y] - kinds[x] }) {
		parts = append(parts, fmt.Sprintf("%s %d", kind, kinds[kind]))
	}
	b.Logf("%d calls to MAAS, %s: %s", stats.Total, unit, strings.Join(parts, ", "))
	b.ReportMetric(float64(stats.Total)/float64(machines), unit)
}

// kindOf names a kind of calls, and what became of those that failed. Status 0 is a call whose client stopped waiting.
func kindOf(key simulator.CallKey) string {
	kind := strings.TrimSpace(key.Method + " " + key.Endpoint + " " + key.Op)
	if key.Status >= 200 && key.Status < 300 {
		return kind
	}
	return fmt.Sprintf("%s -> %d", kind, key.Status)
}
