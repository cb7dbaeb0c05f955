// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

const (
	metricsPrefix = "capmaas_lxd_initializer_"
	bytesPerMiB   = 1 << 20
)

// metrics are those of one initializer, in their own registry.
type metrics struct {
	registry    *prometheus.Registry
	passes      *prometheus.CounterVec
	duration    prometheus.Histogram
	lastSuccess prometheus.Gauge
	steps       *prometheus.GaugeVec
	cores       prometheus.Gauge
	memory      prometheus.Gauge
}

func newMetrics() *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: metricsPrefix + name, Help: help})
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		passes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: metricsPrefix + "passes_total",
			Help: "Passes by result: ok, retry (it may pass) or failed (a person has to change something).",
		}, []string{"result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: metricsPrefix + "pass_duration_seconds", Help: "How long a pass took.",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}),
		lastSuccess: gauge("last_success_timestamp_seconds", "Time of the last pass that left the host fully prepared."),
		steps: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: metricsPrefix + "step_ok", Help: "Whether a step of the last pass succeeded; steps that it did not reach " +
				"have no value.",
		}, []string{"step"}),
		cores:  gauge("host_cores", "Cores that MAAS knows of the VM host; 0 until it does."),
		memory: gauge("host_memory_bytes", "Memory that MAAS knows of the VM host; 0 until it does."),
	}
	m.registry.MustRegister(m.passes, m.duration, m.lastSuccess, m.steps, m.cores, m.memory,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry.MustRegister(maas.Collectors()...)
	return m
}

// begin forgets the steps of the previous pass.
func (m *metrics) begin() { m.steps.Reset() }

func (m *metrics) step(name string, err error) {
	value := 1.0
	if err != nil {
		value = 0
	}
	m.steps.WithLabelValues(name).Set(value)
}

// host shows MAAS's figures of the host; the zero host stands for none.
func (m *metrics) host(host maas.VMHost) {
	m.cores.Set(float64(host.Total.Cores))
	m.memory.Set(float64(host.Total.Memory) * bytesPerMiB)
}

// observe counts a pass.
func (m *metrics) observe(failed error, took time.Duration) {
	result := "ok"
	switch {
	case failed == nil:
		m.lastSuccess.SetToCurrentTime()
	case problemOf(failed).permanent:
		result = "failed"
	default:
		result = "retry"
	}
	m.passes.WithLabelValues(result).Inc()
	m.duration.Observe(took.Seconds())
}
