// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

const (
	adminKey = "admin:token:hush"
	userKey  = "user:token:hush"
	region   = `
users:
- {name: root, admin: true, keys: ["` + adminKey + `"]}
- {name: guest, keys: ["` + userKey + `"]}
`
)

// serveMAAS serves a region and returns its URL.
func serveMAAS(t *testing.T) string {
	t.Helper()
	_, endpoint := simtest.Start(t, region, simulator.Options{})
	return endpoint
}

// serveKubernetes serves the discovery of API versions with their kinds, and sets the environment for it.
func serveKubernetes(t *testing.T, served map[string][]string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		version := strings.TrimPrefix(r.URL.Path, "/apis/")
		kinds, found := served[version]
		if !found {
			http.NotFound(w, r)
			return
		}
		list := metav1.APIResourceList{GroupVersion: version}
		for _, kind := range kinds {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: strings.ToLower(kind) + "s", Kind: kind})
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(list); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	content := `{apiVersion: v1, kind: Config, current-context: it, clusters: [{name: it, cluster: {server: "` + server.URL +
		`"}}], contexts: [{name: it, context: {cluster: it}}]}`
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", kubeconfig)
}

// unreadable is a file that can't be read: a directory.
const unreadable = "unreadable"

// configDir makes a directory with the files that are not empty.
func configDir(t *testing.T, endpoint, key string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"config/maasEndpoint": endpoint, "credentials/apiKey": key} {
		if content == "" {
			continue
		}
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if content == unreadable {
			if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCheckTestsKubernetesAndMAAS(t *testing.T) {
	url := serveMAAS(t)
	unreachable := httptest.NewServer(http.NotFoundHandler())
	unreachable.Close()
	without := func(missing string) map[string][]string {
		served := map[string][]string{}
		for version, kinds := range needed {
			for _, kind := range kinds {
				if kind != missing {
					served[version] = append(served[version], kind)
				}
			}
		}
		return served
	}
	for name, tt := range map[string]struct {
		served        map[string][]string
		endpoint, key string
		code          int
		want          []string
	}{
		"all is well":        {needed, url, adminKey, 0, []string{"ok     Kubernetes", "ok     MAAS", "root"}},
		"no credentials":     {needed, "", "", 0, []string{"ok     Kubernetes", "ok     MAAS", "spec.credentialsRef"}},
		"no CRDs":            {map[string][]string{}, url, adminKey, 1, []string{"FAILED Kubernetes", "infrastructure.cluster.x-k8s.io/v1beta1", "ok     MAAS"}},
		"one CRD is missing": {without("MaasMachine"), url, adminKey, 1, []string{"FAILED Kubernetes", "MaasMachine is not served"}},
		"no Cluster API":     {without("Cluster"), url, adminKey, 1, []string{"FAILED Kubernetes", "Cluster is not served"}},
		"key without a URL":  {needed, "", adminKey, 1, []string{"ok     Kubernetes", "FAILED MAAS", "config/maasEndpoint"}},
		"URL without a key":  {needed, url, "", 1, []string{"FAILED MAAS", "credentials/apiKey"}},
		"unreadable files":   {needed, unreadable, unreadable, 1, []string{"FAILED MAAS", "config/maasEndpoint", "credentials/apiKey"}},
		"wrong key":          {needed, url, "wrong:token:hush", 1, []string{"FAILED MAAS", "MAAS refuses the API key: "}},
		"no administrator":   {needed, url, userKey, 1, []string{"FAILED MAAS", "guest is no administrator"}},
		"MAAS is away":       {needed, unreachable.URL + "/MAAS", adminKey, 1, []string{"FAILED MAAS", unreachable.URL}},
		"key of no form":     {needed, url, "abc", 1, []string{"FAILED MAAS", "apiKey"}},
	} {
		t.Run(name, func(t *testing.T) {
			serveKubernetes(t, tt.served)
			var out, errOut bytes.Buffer
			code := runCheck(t.Context(), []string{"--maas-config-dir=" + configDir(t, tt.endpoint, tt.key)}, &out, &errOut)
			if code != tt.code || errOut.Len() > 0 {
				t.Errorf("exit code %d, want %d; errors: %s", code, tt.code, &errOut)
			}
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("the output does not have %q:\n%s", want, &out)
				}
			}
			if strings.Contains(out.String(), "hush") {
				t.Errorf("the output has the key:\n%s", &out)
			}
		})
	}
}

func TestCheckRefusesWrongUsage(t *testing.T) {
	for _, args := range [][]string{{"--unknown"}, {"maas"}} {
		var out, errOut bytes.Buffer
		if code := runCheck(t.Context(), args, &out, &errOut); code != 2 || errOut.Len() == 0 || out.Len() > 0 {
			t.Errorf("%v: exit code %d, want 2; output %q, errors %q", args, code, &out, &errOut)
		}
	}
}
