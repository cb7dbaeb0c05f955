// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	requestsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "capmaas_maas_requests_total",
		Help: "Requests to MAAS by method, endpoint pattern, op and HTTP status (0: no response).",
	}, []string{"method", "endpoint", "op", "code"})

	requestSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "capmaas_maas_request_duration_seconds",
		Help:    "How long MAAS took to respond, by method, endpoint pattern and op.",
		Buckets: []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 150},
	}, []string{"method", "endpoint", "op"})
)

var circuitsOpen = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "capmaas_maas_circuit_open",
	Help: "Clients (one per API key) that send only probes to the MAAS at this URL, because it does not respond.",
}, []string{"url"})

// watched counts the circuits by URL: the last one removes the URL's metric.
var watched = struct {
	sync.Mutex
	circuits map[string]int
}{circuits: map[string]int{}}

// openCircuits returns the metric for one more circuit at this URL.
func openCircuits(apiURL string) prometheus.Gauge {
	watched.Lock()
	defer watched.Unlock()
	watched.circuits[apiURL]++
	return circuitsOpen.WithLabelValues(apiURL)
}

func dropCircuit(apiURL string) {
	watched.Lock()
	defer watched.Unlock()
	if watched.circuits[apiURL]--; watched.circuits[apiURL] > 0 {
		return
	}
	delete(watched.circuits, apiURL)
	circuitsOpen.DeleteLabelValues(apiURL)
}

// Collectors returns the Prometheus metrics of all clients.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{requestsTotal, requestSeconds, circuitsOpen}
}

func observe(c call, status int, took time.Duration) {
	requestsTotal.WithLabelValues(c.method, c.endpoint, c.op, strconv.Itoa(status)).Inc()
	requestSeconds.WithLabelValues(c.method, c.endpoint, c.op).Observe(took.Seconds())
}
