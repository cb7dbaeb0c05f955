// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/capmaas/cluster-api-provider-maas/controllers/objectmetrics"
	"github.com/capmaas/cluster-api-provider-maas/controllers/orphanaudit"
	"github.com/capmaas/cluster-api-provider-maas/controllers/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Manager has the manager's own metrics.
func Manager() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(maas.Collectors()...)
	registry.MustRegister(lxdhost.Collectors()...)
	registry.MustRegister(orphanaudit.NewMetric(), quarantine.NewMetric(), &objectmetrics.Collector{},
		objectmetrics.NewBuildInfo("v1.2.3"), objectmetrics.NewWatchFailures())
	return registry
}
