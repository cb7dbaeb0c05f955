// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// install makes the chart's objects that hold the manager's MAAS, and the manager's Deployment.
func (k *kubernetes) install(t *testing.T, namespace string, values map[string]any) {
	t.Helper()
	chart, err := loader.LoadDir(filepath.Join("..", "..", "charts", "capmaas"))
	if err != nil {
		t.Fatal(err)
	}
	install := action.NewInstall(&action.Configuration{})
	install.ClientOnly, install.DryRun, install.ReleaseName, install.Namespace = true, true, "capmaas", namespace
	install.KubeVersion = &chartutil.KubeVersion{Version: "v1.33.0", Major: "1", Minor: "33"}
	release, err := install.Run(chart, values)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		t.Fatal(err)
	}
	for _, text := range strings.Split(release.Manifest, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), object); err != nil {
			t.Fatal(err)
		}
		switch object.GetKind() {
		case "Deployment", "ConfigMap", "Secret":
			if err := k.client.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Commands with a result have one also where nothing tells which MAAS is meant.
func (k *kubernetes) checkResultsWithoutMAAS(t *testing.T) {
	t.Helper()
	for _, words := range []string{
		"machines list", "image list", "image check ubuntu/jammy", "orphans", "check maas", "check vm-host --node-ip=10.254.0.1",
	} {
		got := call(t, "", []string{"KUBECONFIG=" + k.kubeconfig}, append([]string{"capmaasctl", "-o=json"}, strings.Fields(words)...)...)
		var r struct {
			report
			trouble
		}
		if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
			t.Errorf("%s: the output is no JSON: %v: %+v", words, err, got)
			continue
		}
		remedy := r.Remedy + r.line("endpoint").Remedy
		if got.code != exitFailed || r.OK || r.Summary == "" || !strings.Contains(remedy, "--maas-endpoint") || got.err != "" {
			t.Errorf("%s: %+v; want a problem with its remedy", words, got)
		}
	}
}

// check maas says where URL and key are from, and whether the manager's are good where others are given.
func (k *kubernetes) checkTellsOfTheManager(t *testing.T, url string, key *corev1.Secret) {
	t.Helper()
	const manager = "one/capmaas-controller-manager"
	setKey := func(to string) {
		t.Helper()
		key.Data = map[string][]byte{"apiKey": []byte(to)}
		if err := k.client.Update(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name, given, managers string
		source, line          string
		state                 state
	}{
		{"the manager's", "", adminKey, manager, "", ""},
		{"the same", adminKey, adminKey, "$MAAS_ENDPOINT", manager, stateOK},
		{"another user's", plainKey, adminKey, "$MAAS_API_KEY", "belongs to", stateOK},
		{"and the manager's is wrong", adminKey, "nobody:token:wrong", "$MAAS_API_KEY", manager, stateFailed},
		{"and the manager's is malformed", adminKey, "nobody", "$MAAS_API_KEY", manager, stateFailed},
	} {
		setKey(tc.managers)
		env := []string{"KUBECONFIG=" + k.kubeconfig}
		if tc.given != "" {
			env = append(env, "MAAS_ENDPOINT="+url, "MAAS_API_KEY="+tc.given)
		}
		r := decode(t, call(t, "", env, "capmaasctl", "check", "maas", "-o=json"))
		source, line := r.line("source"), r.line("manager")
		if source.State != stateOK || !strings.Contains(source.Found, tc.source) {
			t.Errorf("%s: the source is %+v, want %s", tc.name, source, tc.source)
		}
		if line.State != tc.state || !strings.Contains(line.Found, tc.line) || (tc.state == stateFailed) != (line.Remedy != "") {
			t.Errorf("%s: of the manager it says %+v, want %s, and %q", tc.name, line, tc.state, tc.line)
		}
		if tc.state == stateFailed && r.OK {
			t.Errorf("%s: all is well", tc.name)
		}
	}
	setKey(adminKey)
}

// Where no MAAS is given, it is that of the manager in the management cluster, as the chart installs it.
func TestMAASOfTheManager(t *testing.T) {
	k := newKubernetes(t)
	b := newBed(t, machinesRegion, simulator.Options{})
	list := func(env ...string) outcome {
		return call(t, "", append(env, "KUBECONFIG="+k.kubeconfig), "capmaasctl", "machines", "list", "-o", "json")
	}
	fails := func(name string, got outcome, code int, said string) {
		t.Helper()
		if got.code != code || !strings.Contains(got.err, said) || got.stdout != "" {
			t.Errorf("%s: %+v, want exit code %d, and %q", name, got, code, said)
		}
	}
	lacks := func(name string, got outcome, said string) {
		t.Helper()
		var r quarantineReport
		err := json.Unmarshal([]byte(got.stdout), &r)
		if err != nil || got.code != exitFailed || r.OK || r.Remedy == "" || !strings.Contains(r.Problem, said) {
			t.Errorf("%s: %+v (%v), want a problem with %q and its remedy", name, got, err, said)
		}
	}
	k.checkResultsWithoutMAAS(t)
	k.install(t, "one", map[string]any{"maas": map[string]any{"existingSecret": "key-of-maas", "endpoint": b.url}})
	lacks("no key", list(), "one/capmaas-controller-manager has no MAAS of its own")
	key := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "key-of-maas", Namespace: "one"}, StringData: map[string]string{"apiKey": adminKey}}
	if err := k.client.Create(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	got := list()
	var r quarantineReport
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || got.code != exitOK || !r.OK {
		t.Errorf("%+v (%v)", got, err)
	}
	k.checkTellsOfTheManager(t, b.url, key)
	fails("a URL without a key", list("MAAS_ENDPOINT="+b.url), exitUsage, "API key")
	fails("a key without a URL", list("MAAS_API_KEY="+adminKey), exitUsage, "--maas-endpoint")
	fails("no certificate", call(t, "", []string{"KUBECONFIG=" + k.kubeconfig}, "capmaasctl", "machines", "list", "--maas-ca-file="+k.kubeconfig), exitUsage, "--maas-ca-file")
	if got := list("MAAS_API_KEY="+plainKey, "MAAS_ENDPOINT="+b.url); got.code != exitOK {
		t.Errorf("another key: %+v", got)
	}
	home := t.TempDir()
	content, err := os.ReadFile(k.kubeconfig)
	if err == nil {
		err = os.MkdirAll(filepath.Join(home, ".kube"), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(home, ".kube", "config"), content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := call(t, "", []string{"~=" + home}, "capmaasctl", "machines", "list"); got.code != exitOK {
		t.Errorf("the kubeconfig that kubectl reads: %+v", got)
	}
	k.install(t, "two", map[string]any{"maas": map[string]any{"apiKey": plainKey, "endpoint": b.url}})
	lacks("two managers", list(), "2 managers")
	deployments := &appsv1.DeploymentList{}
	if err := k.client.List(t.Context(), deployments, client.InNamespace("one")); err != nil || len(deployments.Items) != 1 {
		t.Fatalf("%d Deployments (%v)", len(deployments.Items), err)
	}
	if err := k.client.Delete(t.Context(), &deployments.Items[0]); err != nil {
		t.Fatal(err)
	}
	if got := list(); got.code != exitOK {
		t.Errorf("the chart's own Secret: %+v", got)
	}
}
