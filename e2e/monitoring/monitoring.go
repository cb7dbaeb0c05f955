// SPDX-License-Identifier: Apache-2.0

// Package monitoring extracts the queries of the chart's dashboard and alerts, so that tests can compare them with the
// metrics that exist.
package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/yaml"
)

// Query is one PromQL expression, and its place.
type Query struct {
	Where, Expr string
}

// Queries reads the expressions of the chart in that directory.
func Queries(chartDir string) ([]Query, error) {
	dir := filepath.Join(chartDir, "files", "monitoring")
	var queries []Query
	alerts := struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}{}
	if err := read(filepath.Join(dir, "alerts.yaml"), &alerts); err != nil {
		return nil, err
	}
	for _, group := range alerts.Groups {
		for _, rule := range group.Rules {
			queries = append(queries, Query{"alert " + rule.Alert, rule.Expr})
		}
	}
	dashboard := struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}{}
	if err := read(filepath.Join(dir, "dashboard.json"), &dashboard); err != nil {
		return nil, err
	}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			queries = append(queries, Query{"panel " + panel.Title, target.Expr})
		}
	}
	return queries, nil
}

func read(path string, into any) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if filepath.Ext(path) == ".json" {
		err = json.Unmarshal(content, into)
	} else {
		err = yaml.Unmarshal(content, into)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

var (
	strs      = regexp.MustCompile(`"[^"]*"`)
	selector  = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)?\{([^}]*)\}`)
	matcher   = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~|!~|!=|=)`)
	ranges    = regexp.MustCompile(`\[[^\]]*\]`)
	grouping  = regexp.MustCompile(`\b(by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	function  = regexp.MustCompile(`[a-zA-Z_][a-zA-Z0-9_]*\s*\(`)
	name      = regexp.MustCompile(`\b[a-zA-Z_:][a-zA-Z0-9_:]*`)
	keywords  = []string{"and", "or", "unless", "bool", "offset"}
	aggregate = []string{"sum", "min", "max", "avg", "count"}
)

// Uses are the names of metrics and of labels that an expression has.
func Uses(expr string) (metrics, labels []string) {
	rest := strs.ReplaceAllString(expr, `""`)
	for _, found := range selector.FindAllStringSubmatch(rest, -1) {
		for _, label := range matcher.FindAllStringSubmatch(found[2], -1) {
			labels = append(labels, label[1])
		}
	}
	rest = selector.ReplaceAllString(rest, "$1")
	rest = ranges.ReplaceAllString(rest, "")
	for _, found := range grouping.FindAllStringSubmatch(rest, -1) {
		labels = append(labels, name.FindAllString(found[2], -1)...)
	}
	rest = grouping.ReplaceAllString(rest, "")
	// An aggregation has by (...) between its name and its parenthesis; only a space is left of it.
	rest = function.ReplaceAllString(rest, "(")
	for _, word := range name.FindAllString(rest, -1) {
		if !slices.Contains(keywords, word) && !slices.Contains(aggregate, word) {
			metrics = append(metrics, word)
		}
	}
	return metrics, labels
}

// Metric is what its description has.
type Metric struct {
	Name, Help string
	Labels     []string
}

var (
	described = regexp.MustCompile(`fqName: "([^"]+)", help: ("(?:[^"\\]|\\.)*"), constLabels: \{(.*)\}, variableLabels: \{([^}]*)\}`)
	constant  = regexp.MustCompile(`(\w+)="[^"]*"`)
)

// Metrics are those that a collector, or a registry, has, by name.
func Metrics(collector prometheus.Collector) []Metric {
	descriptions := make(chan *prometheus.Desc)
	go func() {
		collector.Describe(descriptions)
		close(descriptions)
	}()
	var metrics []Metric
	for d := range descriptions {
		found := described.FindStringSubmatch(d.String())
		if found == nil {
			continue
		}
		m := Metric{Name: found[1]}
		m.Help, _ = strconv.Unquote(found[2]) // It was quoted with %q.
		for _, label := range constant.FindAllStringSubmatch(found[3], -1) {
			m.Labels = append(m.Labels, label[1])
		}
		m.Labels = append(m.Labels, strings.FieldsFunc(found[4], func(r rune) bool { return r == ',' })...)
		metrics = append(metrics, m)
	}
	slices.SortFunc(metrics, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	return metrics
}

// Described are the labels of the metrics that a collector, or a registry, has. A histogram is also known by the names
// of its series.
func Described(collector prometheus.Collector) map[string][]string {
	labels := map[string][]string{}
	for _, m := range Metrics(collector) {
		labels[m.Name] = m.Labels
		if strings.HasSuffix(m.Name, "_seconds") {
			labels[m.Name+"_bucket"] = append(slices.Clone(m.Labels), "le")
		}
	}
	return labels
}

// targetLabels are what Prometheus adds to each series, and node, which the chart's PodMonitor adds.
var targetLabels = []string{"namespace", "pod", "instance", "job", "node"}

// Unknown returns what an expression uses that does not exist: metrics not among those known, labels that none of its
// metrics has.
func Unknown(expr string, known map[string][]string) []string {
	var unknown []string
	has := slices.Clone(targetLabels)
	metrics, labels := Uses(expr)
	if len(metrics) == 0 {
		unknown = append(unknown, "no metric at all")
	}
	for _, metric := range metrics {
		if _, exists := known[metric]; !exists {
			unknown = append(unknown, "metric "+metric)
		}
		has = append(has, known[metric]...)
	}
	for _, label := range labels {
		if !slices.Contains(has, label) {
			unknown = append(unknown, "label "+label)
		}
	}
	return unknown
}
