// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

var requestsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "capmaas_lxd_requests_total",
	Help: "Requests to LXD hosts by method and HTTP status (0: no response).",
}, []string{"method", "code"})

// Collectors returns the Prometheus metrics of all hosts.
func Collectors() []prometheus.Collector { return []prometheus.Collector{requestsTotal} }

func observe(r *http.Request, response *http.Response) {
	status := 0
	if response != nil {
		status = response.StatusCode
	}
	requestsTotal.WithLabelValues(r.Method, strconv.Itoa(status)).Inc()
}
