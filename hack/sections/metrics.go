// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/e2e/monitoring"
)

// metricsTable returns the table of the manager's own metrics.
func metricsTable(string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("| Metric | Labels | Meaning |\n|---|---|---|\n")
	for _, m := range monitoring.Metrics(monitoring.Manager()) {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.Name, strings.Join(m.Labels, ", "), m.Help)
	}
	return b.Bytes(), nil
}
