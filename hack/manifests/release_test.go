// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kustomize/kyaml/kio"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
)

func TestVersions(t *testing.T) {
	source := t.TempDir()
	metadata := `
apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3
kind: Metadata
releaseSeries:
- {major: 0, minor: 1, contract: v1beta2}
- {major: 0, minor: 2, contract: v1beta2}
`
	if err := os.WriteFile(filepath.Join(source, "metadata.yaml"), []byte(metadata), 0o600); err != nil {
		t.Fatal(err)
	}
	for version, ok := range map[string]bool{
		"v0.1.0":              true,
		"v0.2.7":              true,
		"v0.1.1-4-gabcdef0":   true,
		"v0.1.0-dev":          true,
		"0.1.0":               false,
		"v0.1":                false,
		"latest":              false,
		"":                    false,
		"v0.3.0":              false,
		"v1.1.0":              false,
		"v0.1.0/../../secret": false,
	} {
		if err := (Release{Source: source, Version: version}).checkVersion(); (err == nil) != ok {
			t.Errorf("version %q: error %v, want none: %t", version, err, ok)
		}
	}
}

func TestFullNamesOfImages(t *testing.T) {
	for image, want := range map[string]string{
		"manager":                        "docker.io/library/manager",
		"manager:v1":                     "docker.io/library/manager:v1",
		"capmaas/manager:v1":             "docker.io/capmaas/manager:v1",
		"ghcr.io/capmaas/manager:v1":     "ghcr.io/capmaas/manager:v1",
		"registry:5000/manager":          "registry:5000/manager",
		"localhost/capmaas/manager":      "localhost/capmaas/manager",
		"ghcr.io/manager@sha256:" + "0b": "ghcr.io/manager@sha256:0b",
	} {
		if got := fullName(image); got != want {
			t.Errorf("the full name of %s is %s, want %s", image, got, want)
		}
	}
}

func TestValuesOfASite(t *testing.T) {
	const endpoint, key = "${MAAS_ENDPOINT}", "${MAAS_API_KEY}"
	maas := func(values ...string) map[string]any {
		table := map[string]any{}
		for i := 0; i < len(values); i += 2 {
			table[values[i]] = values[i+1]
		}
		return map[string]any{"maas": table}
	}
	pinned := func() map[string]any {
		return map[string]any{"image": map[string]any{"repository": "example.com/manager", "digest": "sha256:" + digest}}
	}
	type content struct{ endpoint, key, image string }
	built := "docker.io/library/capmaas-manager:v0.1.0"
	for name, tc := range map[string]struct {
		values map[string]any
		image  string
		want   content
	}{
		"none":             {nil, "", content{endpoint, key, built}},
		"a URL":            {maas("endpoint", "http://maas/MAAS"), "", content{"http://maas/MAAS", key, built}},
		"a key":            {maas("apiKey", "a:b:c"), "", content{endpoint, "a:b:c", built}},
		"a Secret":         {maas("existingSecret", "maas"), "", content{endpoint, "", built}},
		"a ConfigMap":      {maas("existingConfigMap", "maas"), "", content{"", key, built}},
		"both":             {maas("existingConfigMap", "maas", "existingSecret", "maas"), "", content{"", "", built}},
		"no Secret":        {maas("existingSecret", ""), "", content{endpoint, key, built}},
		"an image":         {pinned(), "", content{endpoint, key, "example.com/manager@sha256:" + digest}},
		"an image, a flag": {pinned(), "example.org/manager:v2", content{endpoint, key, "example.org/manager:v2"}},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := Release{Source: filepath.Join("..", ".."), Version: "v0.1.0", Image: tc.image, Values: tc.values}.components()
			if err != nil {
				t.Fatal(err)
			}
			objects, err := (&kio.ByteReader{Reader: bytes.NewReader(text)}).Read()
			if err != nil {
				t.Fatal(err)
			}
			field := func(kind string, path ...string) string {
				for _, object := range objects {
					if object.GetKind() != kind {
						continue
					}
					if value, err := object.Pipe(kyaml.Lookup(path...)); err == nil && value != nil {
						return kyaml.GetValue(value)
					}
				}
				return ""
			}
			got := content{
				field("ConfigMap", "data", "maasEndpoint"), apiKey(t, field("Secret", "data", "apiKey"), field("Secret", "stringData", "apiKey")),
				field("Deployment", "spec", "template", "spec", "containers", "0", "image"),
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(content{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// apiKey is one that is in data, encoded, or, if it is a variable, in stringData.
func apiKey(t *testing.T, data, variable string) string {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(data)
	if err != nil || (data != "" && variable != "") {
		t.Errorf("data has %q (%v), and stringData %q", data, err, variable)
	}
	return string(key) + variable
}

const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
