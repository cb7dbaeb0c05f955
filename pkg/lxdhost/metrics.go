// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

var requestsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "capmaas_lxd_requests_total",
	Help: "Requests to LXD hosts by operation (connect, read, create, start, stop, find, delete, image) and HTTP status " +
		"(0: no response).",
}, []string{"operation", "code"})

// Collectors returns the Prometheus metrics of all hosts.
func Collectors() []prometheus.Collector { return []prometheus.Collector{requestsTotal} }

func observe(operation string, response *http.Response) {
	status := 0
	if response != nil {
		status = response.StatusCode
	}
	requestsTotal.WithLabelValues(operation, strconv.Itoa(status)).Inc()
}
