// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/action"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/capmaas/cluster-api-provider-maas/test/golden"
)

// everything sets the values that have no effect by default.
var everything = values{
	"maas":             values{"endpoint": "http://maas.example.com:5240/MAAS", "proxy": "http://proxy.example.com:3128", "apiKey": "a:b:c", "caBundle": "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n", "namespaces": []any{"team-a", "team-b"}},
	"image":            values{"repository": "registry.example.com:5000/capmaas/manager", "digest": "sha256:" + strings.Repeat("0a", 32)},
	"imagePullSecrets": []any{"pull"},
	"replicas":         2,
	"watchFilter":      "blue",
	"autoscaler":       values{"enabled": true},
	"evacuation":       values{"enabled": true},
	"listenHost":       "127.0.0.1",
	"ports":            values{"health": 19440, "metrics": 18443},
	"diagnostics":      values{"insecure": true},
	"manager": values{
		"extraArgs": []any{"--v=2"},
		"env": []any{
			values{"name": "HTTPS_PROXY", "value": "http://proxy:3128"},
			values{"name": "NODE_NAME", "valueFrom": values{"fieldRef": values{"fieldPath": "spec.nodeName"}}},
		},
	},
	"serviceAccount":    values{"name": "other", "annotations": values{"example.com/identity": "capmaas"}},
	"podLabels":         values{"team": "infra"},
	"podAnnotations":    values{"example.com/scrape": "true"},
	"nodeSelector":      values{"kubernetes.io/os": "linux"},
	"tolerations":       []any{values{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10}},
	"affinity":          values{"nodeAffinity": values{}},
	"priorityClassName": "system-cluster-critical",
	"topologySpreadConstraints": []any{
		values{"maxSkew": 2, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2, "nodeTaintsPolicy": "Honor"},
		values{
			"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
			"labelSelector": values{"matchLabels": values{"team": "infra"}}, "matchLabelKeys": []any{"pod-template-hash"},
		},
	},
	"networkPolicy": values{
		"enabled":     true,
		"kubernetes":  values{"ports": []any{6443}, "cidrs": []any{"192.0.2.0/24", "2001:db8::/64"}},
		"maas":        values{"ports": []any{5240}, "cidrs": []any{"198.51.100.7/32"}},
		"lxd":         values{"ports": []any{9443}, "cidrs": []any{"198.51.100.16/28"}},
		"metricsFrom": []any{values{"namespaceSelector": values{"matchLabels": values{"kubernetes.io/metadata.name": "monitoring"}}}},
	},
	"serviceMonitor":   values{"enabled": true, "labels": values{"release": "prometheus"}, "interval": "30s", "scrapeTimeout": "10s"},
	"podMonitor":       values{"enabled": true, "labels": values{"release": "prometheus"}, "interval": "1m30s", "scrapeTimeout": "10s"},
	"prometheusRule":   values{"enabled": true, "labels": values{"release": "prometheus"}},
	"grafanaDashboard": values{"enabled": true, "labels": values{"dashboards": "yes"}, "annotations": values{"grafana_folder": "Cluster API"}},
	"fullnameOverride": "maas",
	"lxdInitializer": values{
		"enabled":        true,
		"image":          values{"repository": "registry.example.com:5000/capmaas/lxd-initializer", "tag": "v7", "pullPolicy": "Always"},
		"port":           18444,
		"storageBackend": "lvm", "storageSize": "900", "storagePool": "fast", "networkBridge": "br-vm", "createBridge": true,
		"project": "vms", "zone": "az 1", "resourcePool": "", "checkInterval": "30s",
		"ports":    values{"health": 19441, "metrics": 18081},
		"logLevel": "debug", "logFormat": "text", "extraArgs": []any{"--maas-config-dir=/etc/capmaas"},
		"env":               []any{values{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}},
		"podLabels":         values{"team": "infra"},
		"podAnnotations":    values{"prometheus.io/scrape": "true"},
		"nodeSelector":      values{"lxd": "yes"},
		"tolerations":       []any{values{"operator": "Exists"}},
		"priorityClassName": "system-node-critical",
	},
}

// matrix are values that render in different ways.
var matrix = map[string]values{
	"defaults":             nil,
	"everything":           everything,
	"one namespace":        {"watchNamespace": "team-a"},
	"existing credentials": {"maas": values{"existingSecret": "my-key", "existingConfigMap": "my-maas"}},
	"without CRDs":         {"crds": values{"install": false}},
	"LXD initializer":      {"lxdInitializer": values{"enabled": true}},
	"credentials by value": {"maas": values{"endpoint": "https://maas.example.com/MAAS", "apiKey": "a:b:c"}},
	"high availability":    {"replicas": 3, "podDisruptionBudget": values{"maxUnavailable": 2}},
	"no disruption budget": {"replicas": 2, "podDisruptionBudget": values{"enabled": false}, "topologySpreadConstraints": []any{}},
	"network policy":       {"networkPolicy": values{"enabled": true}, "lxdInitializer": values{"enabled": true}},
	"monitoring": {
		"serviceMonitor": values{"enabled": true}, "podMonitor": values{"enabled": true}, "prometheusRule": values{"enabled": true},
		"grafanaDashboard": values{"enabled": true}, "lxdInitializer": values{"enabled": true},
	},
	"pod monitor with a token": {"podMonitor": values{"enabled": true, "tokenSecret": values{"name": "prometheus", "key": "token"}}},
}

func TestLint(t *testing.T) {
	for name, v := range matrix {
		t.Run(name, func(t *testing.T) {
			lint := action.NewLint()
			lint.Strict, lint.Namespace, lint.KubeVersion = true, releaseNamespace, &oldestKubernetes
			result := lint.Run([]string{chartDir}, v)
			if len(result.Errors) > 0 {
				t.Error(result.Errors)
			}
		})
	}
}

func TestBadValuesAreRefused(t *testing.T) {
	const (
		apiKey   = "not-an-api-key"
		password = "swordfish"
	)
	sentences := map[string]string{}
	for name, tt := range map[string]struct {
		values values
		path   string // of the error, in the message
	}{
		"unknown key":               {values{"replicaCount": 2}, "'replicaCount'"},
		"unknown key inside":        {values{"maas": values{"url": "http://x"}}, "/maas"},
		"wrong type":                {values{"replicas": "two"}, "/replicas"},
		"number for a string":       {values{"watchNamespace": 5}, "/watchNamespace"},
		"port out of range":         {values{"ports": values{"metrics": 70000}}, "/ports/metrics"},
		"duration without a unit":   {values{"manager": values{"pollIdle": "60"}}, "/manager/pollIdle"},
		"unknown log level":         {values{"manager": values{"logLevel": "trace"}}, "/manager/logLevel"},
		"argument without dashes":   {values{"manager": values{"extraArgs": []any{"v=2"}}}, "/manager/extraArgs/0"},
		"environment without name":  {values{"manager": values{"env": []any{values{"value": "x"}}}}, "/manager/env/0"},
		"namespace of wrong form":   {values{"maas": values{"namespaces": []any{"Team A"}}}, "/maas/namespaces/0"},
		"endpoint without a scheme": {values{"maas": values{"endpoint": "maas:5240"}}, "/maas/endpoint"},
		"proxy without a scheme":    {values{"maas": values{"proxy": "proxy:3128"}}, "/maas/proxy"},
		"digest without algorithm":  {values{"image": values{"digest": "abc"}}, "/image/digest"},
		"unknown pull policy":       {values{"image": values{"pullPolicy": "Sometimes"}}, "/image/pullPolicy"},
		"key of the wrong form":     {values{"maas": values{"apiKey": apiKey}}, "maas.apiKey"},
		"key and Secret":            {values{"maas": values{"apiKey": "a:b:c", "existingSecret": "s"}}, "maas.existingSecret"},
		"endpoint and ConfigMap":    {values{"maas": values{"endpoint": "http://x", "existingConfigMap": "c"}}, "maas.existingConfigMap"},
		"certificates without key":  {values{"maas": values{"caBundle": "x"}}, "maas.caBundle"},
		"initializer, unknown key":  {initializer("bridge", "br0"), "/lxdInitializer"},
		"unknown storage backend":   {initializer("storageBackend", "ceph"), "/lxdInitializer/storageBackend"},
		"storage size is a number":  {initializer("storageSize", 50), "/lxdInitializer/storageSize"},
		"storage size with a unit":  {initializer("storageSize", "50GB"), "/lxdInitializer/storageSize"},
		"bridge too long for Linux": {initializer("networkBridge", "a-bridge-too-far"), "/lxdInitializer/networkBridge"},
		"project with a slash":      {initializer("project", "a/b"), "/lxdInitializer/project"},
		"zone with a comma":         {initializer("zone", "a,b"), "/lxdInitializer/zone"},
		"port of LXD is 0":          {initializer("port", 0), "/lxdInitializer/port"},
		"initializer's metrics":     {initializer("ports", values{"metrics": "http"}), "/lxdInitializer/ports/metrics"},
		"initializer's pull policy": {initializer("image", values{"pullPolicy": "Sometimes"}), "/lxdInitializer/image/pullPolicy"},
		"interval without a unit":   {initializer("checkInterval", "60"), "/lxdInitializer/checkInterval"},
		"budget of a percentage":    {values{"podDisruptionBudget": values{"maxUnavailable": "50%"}}, "/podDisruptionBudget/maxUnavailable"},
		"budget of nothing":         {values{"podDisruptionBudget": values{"maxUnavailable": 0}}, "/podDisruptionBudget/maxUnavailable"},
		"spread without a key":      {values{"topologySpreadConstraints": []any{values{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}}}, "/topologySpreadConstraints/0"},
		"address without a prefix":  {values{"networkPolicy": values{"maas": values{"cidrs": []any{"192.0.2.1"}}}}, "/networkPolicy/maas/cidrs/0"},
		"policy without LXD's port": {values{"networkPolicy": values{"lxd": values{"ports": []any{}}}}, "/networkPolicy/lxd/ports"},
		"policy without ports":      {values{"networkPolicy": values{"kubernetes": values{"ports": []any{}}}}, "/networkPolicy/kubernetes/ports"},
		"peer that is everybody":    {values{"networkPolicy": values{"metricsFrom": []any{values{}}}}, "/networkPolicy/metricsFrom/0"},
		"scrape interval":           {values{"serviceMonitor": values{"interval": "30"}}, "/serviceMonitor/interval"},
		"token without a key":       {values{"podMonitor": values{"tokenSecret": values{"name": "x"}}}, "/podMonitor/tokenSecret"},
		"label is a number":         {values{"grafanaDashboard": values{"labels": values{"grafana_dashboard": 1}}}, "/grafanaDashboard/labels/grafana_dashboard"},
		"unknown key of alerts":     {values{"prometheusRule": values{"rules": []any{}}}, "/prometheusRule"},
		"monitor without a token":   {values{"podMonitor": values{"enabled": true}}, "podMonitor.tokenSecret"},
		"endpoint without a path":   {values{"maas": values{"endpoint": "http://maas:5240/"}}, "maas.endpoint"},
		"endpoint with a password":  {values{"maas": values{"endpoint": "http://admin:" + password + "@maas"}}, "maas.endpoint"},
		"no certificate":            {values{"maas": values{"apiKey": "a:b:c", "caBundle": "abc"}}, "maas.caBundle"},
		"poll without a time":       {values{"manager": values{"pollIdle": "0s"}}, "manager.pollIdle"},
		"check without a time":      {initializer("checkInterval", "0.0h"), "lxdInitializer.checkInterval"},
		"active poll is the slower": {values{"manager": values{"pollActive": "1.5h", "pollIdle": "1h29m"}}, "manager.pollActive"},
		"two on one port":           {values{"ports": values{"health": 8443}}, "ports.health"},
		"initializer, on one port":  {initializer("ports", values{"health": 8080}), "lxdInitializer.ports.health"},
		"nobody may use the key":    {values{"watchNamespace": "a", "maas": values{"namespaces": []any{"b", "c"}}}, "maas.namespaces"},
	} {
		_, err := render(releaseNamespace, tt.values)
		if err == nil {
			t.Errorf("%s: the values are accepted", name)
			continue
		}
		if !strings.Contains(err.Error(), tt.path) {
			t.Errorf("%s: the error does not name %s: %v", name, tt.path, err)
		}
		if strings.Contains(err.Error(), apiKey) || strings.Contains(err.Error(), password) {
			t.Errorf("%s: the error prints a secret: %v", name, err)
		}
		sentences[name] = err.Error()
	}
	golden.Sentences(t, "chart.txt", sentences)
}

// Values at the edge of what is refused are accepted.
func TestUnusualValuesAreAccepted(t *testing.T) {
	for name, v := range map[string]values{
		"a variable":                {"maas": values{"endpoint": "${E}", "apiKey": "${K}", "caBundle": "${C}", "namespaces": []any{"${N}"}}, "watchNamespace": "a"},
		"an @ in the path":          {"maas": values{"endpoint": "https://maas/proxy/@maas/MAAS"}},
		"polls alike":               {"manager": values{"pollActive": "60s", "pollIdle": "1m"}},
		"a fraction":                {"manager": values{"pollActive": "0.5s", "syncPeriod": "1h0m0s"}},
		"one of several namespaces": {"watchNamespace": "a", "maas": values{"namespaces": []any{"b", "a"}}},
		"all namespaces":            {"watchNamespace": "a", "maas": values{"namespaces": []any{"*"}}},
	} {
		if _, err := render(releaseNamespace, v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// OpenShift's restricted-v2 refuses IDs that are not the namespace's; everything else of the pods is as it wants.
func TestIDsCanBeLeftToTheNamespace(t *testing.T) {
	pods := 0
	for _, o := range withHooks(t, values{"fixedIDs": false}) {
		path := map[string][]string{"Deployment": {"spec", "template", "spec"}, "Pod": {"spec"}}[o.GetKind()]
		if path == nil {
			continue
		}
		pods++
		spec, _, err := unstructured.NestedMap(o.Object, path...)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]any{"runAsNonRoot": true, "seccompProfile": map[string]any{"type": "RuntimeDefault"}}
		if diff := cmp.Diff(want, spec["securityContext"]); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", o.GetKind(), o.GetName(), diff)
		}
		for _, c := range spec["containers"].([]any) {
			for field := range c.(map[string]any)["securityContext"].(map[string]any) {
				if strings.HasPrefix(field, "runAs") {
					t.Errorf("a container of %s %s has %s", o.GetKind(), o.GetName(), field)
				}
			}
		}
	}
	if pods != 2 {
		t.Errorf("%d kinds of pods, want the manager's and that of helm test", pods)
	}
}

// initializer are values with one setting of the LXD initializer.
func initializer(name string, value any) values {
	return values{"lxdInitializer": values{"enabled": true, name: value}}
}

// Every value that a user can set is in values.yaml, which documents it, and in the schema, which checks it.
func TestSchemaKnowsAllValues(t *testing.T) {
	capmaas, err := loadChart()
	if err != nil {
		t.Fatal(err)
	}
	schema := map[string]any{}
	if err := yaml.Unmarshal(capmaas.Schema, &schema); err != nil {
		t.Fatal(err)
	}
	definitions, _ := schema["definitions"].(map[string]any)
	checkSameKeys(t, "", capmaas.Values, schema, definitions)
}

func checkSameKeys(t *testing.T, path string, defaults, schema, definitions map[string]any) {
	t.Helper()
	if reference, ok := schema["$ref"].(string); ok {
		schema, _ = definitions[strings.TrimPrefix(reference, "#/definitions/")].(map[string]any)
	}
	properties, _ := schema["properties"].(map[string]any)
	if _, isMap := schema["additionalProperties"].(map[string]any); isMap {
		return
	}
	if additional, set := schema["additionalProperties"]; !set || additional != false {
		t.Errorf("the schema of %q allows unknown keys", path)
	}
	for key, property := range properties {
		// Helm sets global; resources is a field of a Pod.
		if key == "global" {
			continue
		}
		value, documented := defaults[key]
		if !documented {
			t.Errorf("%s.%s is in the schema and not in values.yaml", path, key)
		}
		if below, ok := value.(map[string]any); ok && len(below) > 0 && key != "resources" {
			checkSameKeys(t, path+"."+key, below, property.(map[string]any), definitions)
		}
	}
	for key := range defaults {
		if _, known := properties[key]; !known {
			t.Errorf("%s.%s is in values.yaml and not in the schema", path, key)
		}
	}
}

// The CRDs in the chart are the generated ones, plus labels that Cluster API and clusterctl need.
func TestCRDs(t *testing.T) {
	rendered := map[string]*unstructured.Unstructured{}
	for _, crd := range ofKind(mustRender(t, nil), "CustomResourceDefinition") {
		rendered[crd.GetName()] = crd
	}
	paths, err := filepath.Glob(filepath.Join(chartDir, "files", "crds", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) != 7 || len(rendered) != 7 {
		t.Fatalf("got %d generated and %d rendered CRDs, want 7", len(paths), len(rendered))
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		generated := mustParse(t, content)[0]
		crd := rendered[generated.GetName()]
		if crd == nil {
			t.Errorf("%s is not rendered", generated.GetName())
			continue
		}
		if diff := cmp.Diff(generated.Object["spec"], crd.Object["spec"]); diff != "" {
			t.Errorf("spec of %s (-generated +rendered):\n%s", crd.GetName(), diff)
		}
		for label, want := range map[string]string{
			"cluster.x-k8s.io/v1beta2":    "v1beta1",
			"cluster.x-k8s.io/provider":   "infrastructure-maas",
			"clusterctl.cluster.x-k8s.io": "",
		} {
			if got, set := crd.GetLabels()[label]; !set || got != want {
				t.Errorf("%s: label %s is %q (set: %t), want %q", crd.GetName(), label, got, set, want)
			}
		}
		if crd.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
			t.Errorf("%s is not kept when the release is uninstalled", crd.GetName())
		}
	}
}

func TestCRDsNeedNotBeKept(t *testing.T) {
	for _, crd := range ofKind(mustRender(t, values{"crds": values{"keep": false}}), "CustomResourceDefinition") {
		if policy, set := crd.GetAnnotations()["helm.sh/resource-policy"]; set {
			t.Errorf("%s has the resource policy %s", crd.GetName(), policy)
		}
	}
}

// Every rule generated from the code is granted, once: in the watched namespace, where the object is in a namespace.
func TestGeneratedRulesAreGranted(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(chartDir, "files", "rbac", "role.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	objects := mustParse(t, content)
	if len(objects) != 1 {
		t.Fatalf("role.yaml holds %d objects; the chart takes its rules from one", len(objects))
	}
	want := rulesOf(t, objects)
	got := rulesOf(t, ofKind(mustRender(t, nil), "ClusterRole"))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules in all namespaces (-generated +granted):\n%s", diff)
	}

	objects = mustRender(t, values{"watchNamespace": "team-a"})
	roles := ofKind(objects, "ClusterRole")
	for _, rule := range rulesOf(t, roles) {
		if strings.Contains(rule, "x-k8s.io") || strings.Contains(rule, "secrets") {
			t.Errorf("granted in all namespaces though only one is watched: %s", rule)
		}
	}
	for _, role := range ofKind(objects, "Role") {
		if role.GetNamespace() == "team-a" {
			roles = append(roles, role)
		}
	}
	if diff := cmp.Diff(want, rulesOf(t, roles)); diff != "" {
		t.Errorf("rules with one watched namespace (-generated +granted):\n%s", diff)
	}
}

// rulesOf returns the rules of roles as text, sorted.
func rulesOf(t *testing.T, roles []*unstructured.Unstructured) []string {
	t.Helper()
	var rules []string
	for _, o := range roles {
		role := rbacv1.ClusterRole{}
		convert(t, o, &role)
		for _, rule := range role.Rules {
			rules = append(rules, rule.String())
		}
	}
	slices.Sort(rules)
	return rules
}

func convert(t *testing.T, o *unstructured.Unstructured, into any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
		t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
}

// Objects are in the release's namespace, or elsewhere with its name in theirs, so that releases don't collide.
func TestReleasesInTwoNamespacesDontCollide(t *testing.T) {
	names := map[string]string{}
	for _, namespace := range []string{"one", "two"} {
		rendered, err := render(namespace, values{"crds": values{"install": false}, "lxdInitializer": values{"enabled": true}})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range mustParse(t, []byte(rendered.Manifest)) {
			if o.GetNamespace() != "" && o.GetNamespace() != namespace && !strings.HasSuffix(o.GetName(), "."+namespace) {
				t.Errorf("%s %s is in namespace %s, want %s, or its name to end in it", o.GetKind(), o.GetName(), o.GetNamespace(), namespace)
			}
			key := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
			if other, taken := names[key]; taken {
				t.Errorf("%s is made by the releases in %s and %s", key, other, namespace)
			}
			names[key] = namespace
		}
	}
}

func deployment(t *testing.T, v values) *appsv1.Deployment {
	t.Helper()
	found := ofKind(mustRender(t, v), "Deployment")
	if len(found) != 1 {
		t.Fatalf("the chart makes %d Deployments, want 1", len(found))
	}
	d := &appsv1.Deployment{}
	convert(t, found[0], d)
	return d
}

// Given credentials are created, missing ones are the user's: the manager's volumes name both. The golden renderings
// have all and nothing given.
func TestTheChartTakesPartOfTheCredentials(t *testing.T) {
	v := values{"maas": values{"endpoint": "https://m/MAAS", "existingSecret": "s"}}
	objects := mustRender(t, v)
	if made := append(ofKind(objects, "Secret"), ofKind(objects, "ConfigMap")...); len(made) != 1 || made[0].GetName() != "capmaas-config" {
		t.Errorf("the chart makes %v, want ConfigMap capmaas-config", made)
	}
	for _, volume := range deployment(t, v).Spec.Template.Spec.Volumes {
		if volume.Secret != nil && (volume.Secret.SecretName != "s" || !*volume.Secret.Optional) {
			t.Errorf("the manager reads Secret %s (optional: %t), want s, optional", volume.Secret.SecretName, *volume.Secret.Optional)
		}
		if volume.ConfigMap != nil && (volume.ConfigMap.Name != "capmaas-config" || !*volume.ConfigMap.Optional) {
			t.Errorf("the manager reads ConfigMap %s (optional: %t), want capmaas-config, optional", volume.ConfigMap.Name, *volume.ConfigMap.Optional)
		}
	}
}

func TestNotesTellWhatToDo(t *testing.T) {
	for name, tt := range map[string]struct {
		values values
		want   string
	}{
		"no credentials":      {nil, "spec.credentialsRef"},
		"credentials":         {values{"maas": values{"endpoint": "https://m/MAAS", "apiKey": "a:b:c"}}, "https://m/MAAS"},
		"key without address": {values{"maas": values{"apiKey": "a:b:c"}}, "set maas.endpoint"},
		"no CRDs":             {values{"crds": values{"install": false}}, "must be in the cluster"},
		"initializer":         {initializer("nodeSelector", nil), "pod-security.kubernetes.io/enforce=privileged"},
		"no replica":          {values{"replicas": 0}, "No manager runs"},
		"initializer, no key": {initializer("nodeSelector", nil), "wait until Secret maas-credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			rendered, err := render(releaseNamespace, tt.values)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(rendered.Info.Notes, tt.want) {
				t.Errorf("the notes do not mention %q:\n%s", tt.want, rendered.Info.Notes)
			}
			if strings.Contains(rendered.Info.Notes, "a:b:c") {
				t.Error("the notes print the API key")
			}
		})
	}
}
