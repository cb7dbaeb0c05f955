// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/kubelet"
)

// metricsPort is the chart's port for the manager's metrics.
const metricsPort = 8443

// Metric adds up the values of a manager's metric whose labels hold some text.
func Metric(ctx context.Context, c kubelet.Container, metric, label string) (total float64, err error) {
	url := fmt.Sprintf("http://127.0.0.1:%d/metrics", c.Ports[metricsPort])
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("reading metrics: %s; set diagnostics.insecure in the chart's values", response.Status)
	}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), "{")
		labels, text, _ := strings.Cut(rest, "} ")
		if name != metric || !strings.Contains(labels, label) {
			continue
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, fmt.Errorf("reading %s: %w", metric, err)
		}
		total += value
	}
	return total, lines.Err()
}
