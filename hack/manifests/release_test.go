// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"
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
