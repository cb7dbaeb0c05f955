// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	"github.com/capmaas/cluster-api-provider-maas/e2e/monitoring"
)

// initializerPrefix is that of the metrics of the LXD initializer, whose own test checks them.
const initializerPrefix = "capmaas_lxd_initializer_"

// managerMetrics returns the metrics that the manager registers: its own, and those of the libraries.
func managerMetrics(t *testing.T) map[string][]string {
	t.Helper()
	libraries, ok := metrics.Registry.(prometheus.Collector)
	if !ok {
		t.Fatal("controller-runtime's registry can't be asked for what it has")
	}
	registry := monitoring.Manager()
	registry.MustRegister(libraries)
	return monitoring.Described(registry)
}

func TestDashboardAndAlertsUseMetricsThatExist(t *testing.T) {
	queries, err := monitoring.Queries(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	if len(queries) < 20 {
		t.Errorf("found %d queries in the chart, which has more", len(queries))
	}
	known := managerMetrics(t)
	for _, query := range queries {
		if strings.Contains(query.Expr, initializerPrefix) {
			continue
		}
		if unknown := monitoring.Unknown(query.Expr, known); len(unknown) > 0 {
			t.Errorf("%s asks for what does not exist: %s\n%s", query.Where, strings.Join(unknown, ", "), query.Expr)
		}
	}
}

// Every alert and every metric is documented.
func TestMonitoringIsDocumented(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(sources, "docs", "monitoring.md"))
	if err != nil {
		t.Fatal(err)
	}
	document := string(content)
	queries, err := monitoring.Queries(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range queries {
		if alert, ok := strings.CutPrefix(query.Where, "alert "); ok && !strings.Contains(document, "### "+alert+"\n") {
			t.Errorf("docs/monitoring.md has no section %s", alert)
		}
	}
	known := managerMetrics(t)
	for name := range known {
		if strings.HasPrefix(name, "capmaas_") && !strings.HasSuffix(name, "_bucket") && !strings.Contains(document, "`"+name+"`") {
			t.Errorf("docs/monitoring.md does not know the metric %s", name)
		}
	}
	for _, name := range regexp.MustCompile("`(capmaas_[a-z_]+)`").FindAllStringSubmatch(document, -1) {
		if _, exists := known[name[1]]; !exists && !strings.HasPrefix(name[1], initializerPrefix) {
			t.Errorf("docs/monitoring.md names the metric %s, which does not exist", name[1])
		}
	}
}

// repositoryURL is where the documents are.
const repositoryURL = "https://github.com/capmaas/cluster-api-provider-maas"

// hasHeading reports whether a document has a heading that GitHub links by this name.
func hasHeading(document, link string) bool {
	for _, found := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(document, -1) {
		if strings.ToLower(strings.ReplaceAll(found[1], " ", "-")) == link {
			return true
		}
	}
	return false
}

func TestAlertsSayWhatIsWrong(t *testing.T) {
	for _, o := range ofKind(mustRender(t, everything), "PrometheusRule") {
		rule := prometheusRule{}
		decodeStrictly(t, o, &rule)
		for _, group := range rule.Spec.Groups {
			for _, alert := range group.Rules {
				if alert.Annotations["summary"] == "" || alert.Annotations["description"] == "" {
					t.Errorf("%s has no summary or no description", alert.Alert)
				}
				page, heading, _ := strings.Cut(alert.Annotations["runbook_url"], "#")
				if path, found := strings.CutPrefix(page, repositoryURL+"/blob/main/"); !found {
					t.Errorf("the runbook of %s is %q, no page of the repository", alert.Alert, page)
				} else if content, err := os.ReadFile(filepath.Join(sources, path)); err != nil || !hasHeading(string(content), heading) {
					t.Errorf("the runbook of %s, %s, has no heading %q: %v", alert.Alert, path, heading, err)
				}
				if severity := alert.Labels["severity"]; severity != "critical" && severity != "warning" {
					t.Errorf("%s has the severity %q", alert.Alert, severity)
				}
				if alert.For == "" {
					t.Errorf("%s does not wait before it tells", alert.Alert)
				}
			}
		}
	}
}

// monitor is the part of a ServiceMonitor and of a PodMonitor (monitoring.coreos.com/v1) that the chart uses.
type monitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector          metav1.LabelSelector `json:"selector"`
		NamespaceSelector struct {
			MatchNames []string `json:"matchNames"`
		} `json:"namespaceSelector"`
		Endpoints           []serviceEndpoint `json:"endpoints,omitempty"`
		PodMetricsEndpoints []podEndpoint     `json:"podMetricsEndpoints,omitempty"`
	} `json:"spec"`
}

type endpoint struct {
	Port          string `json:"port"`
	Path          string `json:"path"`
	Scheme        string `json:"scheme,omitempty"`
	Interval      string `json:"interval,omitempty"`
	ScrapeTimeout string `json:"scrapeTimeout,omitempty"`
	TLSConfig     *struct {
		InsecureSkipVerify bool `json:"insecureSkipVerify"`
	} `json:"tlsConfig,omitempty"`
	Relabelings []struct {
		SourceLabels []string `json:"sourceLabels"`
		TargetLabel  string   `json:"targetLabel"`
	} `json:"relabelings,omitempty"`
}

// serviceEndpoint may name a file with a token.
type serviceEndpoint struct {
	endpoint        `json:",inline"`
	BearerTokenFile string `json:"bearerTokenFile,omitempty"`
}

// podEndpoint may name a Secret with a token.
type podEndpoint struct {
	endpoint      `json:",inline"`
	Authorization *struct {
		Credentials corev1.SecretKeySelector `json:"credentials"`
	} `json:"authorization,omitempty"`
}

// prometheusRule is the part of a PrometheusRule (monitoring.coreos.com/v1) that the chart uses.
type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []struct {
				Alert       string            `json:"alert"`
				Expr        string            `json:"expr"`
				For         string            `json:"for"`
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"rules"`
		} `json:"groups"`
	} `json:"spec"`
}

func decodeStrictly(t *testing.T, o *unstructured.Unstructured, into any) {
	t.Helper()
	content, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(content, into); err != nil {
		t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
}

const monitoringGroup = "monitoring.coreos.com"

// The monitors select the release's objects, by a port that they have, and know how to scrape metrics there.
func TestMonitorsFindTheMetrics(t *testing.T) {
	const token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	enabled := values{"enabled": true}
	for name, tt := range map[string]struct {
		values values
		want   []string // kind and name
		https  int      // how many are asked with a token
	}{
		"none":            {nil, nil, 0},
		"service monitor": {values{"serviceMonitor": enabled}, []string{"ServiceMonitor capmaas-controller-manager"}, 1},
		"both": {values{"serviceMonitor": enabled, "podMonitor": enabled, "lxdInitializer": enabled},
			[]string{"PodMonitor capmaas-lxd-initializer", "ServiceMonitor capmaas-controller-manager"}, 1},
		"pod monitor with a token": {
			values{"podMonitor": values{"enabled": true, "tokenSecret": values{"name": "prometheus", "key": "token"}}, "lxdInitializer": enabled},
			[]string{"PodMonitor capmaas-controller-manager", "PodMonitor capmaas-lxd-initializer"}, 1,
		},
		"without security": {values{"podMonitor": enabled, "diagnostics": values{"insecure": true}},
			[]string{"PodMonitor capmaas-controller-manager"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			objects := mustRender(t, tt.values)
			var got []string
			withToken := 0
			for _, o := range append(ofKind(objects, "PodMonitor"), ofKind(objects, "ServiceMonitor")...) {
				got = append(got, o.GetKind()+" "+o.GetName())
				m := monitor{}
				decodeStrictly(t, o, &m)
				checkSelection(t, objects, m)
				for _, e := range m.Spec.Endpoints {
					withToken += withTokenOverTLS(t, m.Name, e.endpoint, e.BearerTokenFile == token)
				}
				for _, e := range m.Spec.PodMetricsEndpoints {
					withToken += withTokenOverTLS(t, m.Name, e.endpoint, e.Authorization != nil)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("monitors (-want +got):\n%s", diff)
			}
			if withToken != tt.https {
				t.Errorf("%d endpoints are asked with a token, want %d", withToken, tt.https)
			}
		})
	}
}

// withTokenOverTLS returns 1 for an endpoint that is scraped with a token. A token is sent only by HTTPS.
func withTokenOverTLS(t *testing.T, name string, e endpoint, token bool) int {
	t.Helper()
	if https := e.Scheme == "https"; https != token || https != (e.TLSConfig != nil) {
		t.Errorf("%s is asked by scheme %q, with a token: %t", name, e.Scheme, token)
	}
	if token {
		return 1
	}
	return 0
}

// checkSelection checks that a monitor selects something.
func checkSelection(t *testing.T, objects []*unstructured.Unstructured, m monitor) {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(&m.Spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{releaseNamespace}, m.Spec.NamespaceSelector.MatchNames); diff != "" {
		t.Errorf("%s looks in other namespaces (-want +got):\n%s", m.Name, diff)
	}
	found := 0
	for _, target := range scraped(t, objects, m.Kind) {
		if selector.Matches(labels.Set(target.labels)) {
			found++
			for _, e := range m.Spec.Endpoints {
				if !target.ports[e.Port] {
					t.Errorf("%s %s selects what has no port %s", m.Kind, m.Name, e.Port)
				}
			}
			for _, e := range m.Spec.PodMetricsEndpoints {
				if !target.ports[e.Port] {
					t.Errorf("%s %s selects what has no port %s", m.Kind, m.Name, e.Port)
				}
			}
		}
	}
	if found != 1 {
		t.Errorf("%s %s selects %d of the release's objects, want 1", m.Kind, m.Name, found)
	}
}

type target struct {
	labels map[string]string
	ports  map[string]bool
}

// scraped returns what a monitor of that kind may select: Services, or pods.
func scraped(t *testing.T, objects []*unstructured.Unstructured, kind string) []target {
	t.Helper()
	var targets []target
	if kind == "ServiceMonitor" {
		for _, o := range ofKind(objects, "Service") {
			service := corev1.Service{}
			convert(t, o, &service)
			found := target{service.Labels, map[string]bool{}}
			for _, port := range service.Spec.Ports {
				found.ports[port.Name] = true
			}
			targets = append(targets, found)
		}
		return targets
	}
	for _, o := range append(ofKind(objects, "Deployment"), ofKind(objects, "DaemonSet")...) {
		workload := appsv1.DaemonSet{} // Of a Deployment, the template is in the same place.
		convert(t, o, &workload)
		found := target{workload.Spec.Template.Labels, map[string]bool{}}
		for _, container := range workload.Spec.Template.Spec.Containers {
			for _, port := range container.Ports {
				found.ports[port.Name] = true
			}
		}
		targets = append(targets, found)
	}
	return targets
}
