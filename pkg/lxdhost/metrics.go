// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

var requestsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "capmaas_lxd_requests_total",
	Help: "Requests to LXD hosts by operation (connect, read, create, start, stop, find, delete) and HTTP status (0: no response).",
}, []string{"operation", "code"})

// Collectors returns the Prometheus metrics of all hosts.
func Collectors() []prometheus.Collector { return []prometheus.Collector{requestsTotal} }

// operationKey is the context's key for what a request is for.
type operationKey struct{}

func withOperation(ctx context.Context, operation string) context.Context {
	return context.WithValue(ctx, operationKey{}, operation)
}

func observe(r *http.Request, response *http.Response) {
	operation, _ := r.Context().Value(operationKey{}).(string)
	status := 0
	if response != nil {
		status = response.StatusCode
	}
	requestsTotal.WithLabelValues(operation, strconv.Itoa(status)).Inc()
}
