// SPDX-License-Identifier: Apache-2.0

package objectmetrics

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// NewBuildInfo is 1, and says which manager this is: by it, queries find the metrics of libraries that are this
// manager's.
func NewBuildInfo(version string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "capmaas_build_info", Help: "1, by the version of the manager, and of Go.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}
