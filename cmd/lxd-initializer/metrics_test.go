// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/e2e/monitoring"
)

// A renamed metric leaves no panel and no alert behind that never shows anything.
func TestTheChartAsksForTheInitializersMetricsByTheirNames(t *testing.T) {
	queries, err := monitoring.Queries(filepath.Join("..", "..", "charts", "capmaas"))
	if err != nil {
		t.Fatal(err)
	}
	known := monitoring.Described(newMetrics().registry)
	ours := 0
	for _, query := range queries {
		metrics, _ := monitoring.Uses(query.Expr)
		if !slices.ContainsFunc(metrics, func(name string) bool { return strings.HasPrefix(name, metricsPrefix) }) {
			continue
		}
		ours++
		if unknown := monitoring.Unknown(query.Expr, known); len(unknown) > 0 {
			t.Errorf("%s asks for what the initializer does not have: %s", query.Where, strings.Join(unknown, ", "))
		}
	}
	if ours == 0 {
		t.Error("nothing asks for a metric of the initializer")
	}
}
