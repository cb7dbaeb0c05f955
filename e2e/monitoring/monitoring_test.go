// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

func TestUsesFindsMetricsAndLabels(t *testing.T) {
	for expr, want := range map[string]struct{ metrics, labels []string }{
		`a`:                       {[]string{"a"}, nil},
		`absent(a{x="sum"} == 1)`: {[]string{"a"}, []string{"x"}},
		`sum by (x, y) (rate(a[5m])) / sum(b{y!~"b|c",z="d"})`:      {[]string{"a", "b"}, []string{"y", "z", "x", "y"}},
		`max(a) by (x) > 0 and on (y) b`:                            {[]string{"a", "b"}, []string{"x", "y"}},
		`time() - (a > bool 0) or increase(b_total{}[$__interval])`: {[]string{"a", "b_total"}, nil},
		`histogram_quantile(0.9, sum by (le) (rate(a_bucket[5m])))`: {[]string{"a_bucket"}, []string{"le"}},
	} {
		metrics, labels := Uses(expr)
		if diff := cmp.Diff(want.metrics, metrics); diff != "" {
			t.Errorf("metrics of %s (-want +got):\n%s", expr, diff)
		}
		if diff := cmp.Diff(want.labels, labels); diff != "" {
			t.Errorf("labels of %s (-want +got):\n%s", expr, diff)
		}
	}
}

func TestUnknownNamesAreReported(t *testing.T) {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "a"}, []string{"x", "y"})
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "b_seconds"})
	registry := prometheus.NewRegistry()
	registry.MustRegister(gauge, histogram)
	known := Described(registry)
	for expr, want := range map[string][]string{
		`sum by (x, instance) (a{y="1"})`:          nil,
		`sum by (le) (rate(b_seconds_bucket[1m]))`: nil,
		`a{z="1"}`:  {"label z"},
		`c + a`:     {"metric c"},
		`vector(1)`: {"no metric at all"},
	} {
		if diff := cmp.Diff(want, Unknown(expr, known)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", expr, diff)
		}
	}
}
