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
