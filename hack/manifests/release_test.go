// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func TestImageValues(t *testing.T) {
	for reference, want := range map[string]map[string]any{
		"capmaas-manager":                  {"repository": "capmaas-manager"},
		"capmaas-manager:v1":               {"repository": "capmaas-manager", "tag": "v1"},
		"r.example.com:5000/a/b":           {"repository": "r.example.com:5000/a/b"},
		"r.example.com:5000/a/b:v1":        {"repository": "r.example.com:5000/a/b", "tag": "v1"},
		"r.example.com:5000/a/b@sha256:01": {"repository": "r.example.com:5000/a/b", "digest": "sha256:01"},
	} {
		if diff := cmp.Diff(want, imageValues(reference)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reference, diff)
		}
	}
}
