// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, config{
			listen: "127.0.0.1:0", region: "../../test/sandbox/region.yaml", timeScale: 1, logLevel: "error",
		})
	}()
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it still runs")
	}
}

func TestRunRefuses(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "region.yaml")
	if err := os.WriteFile(bad, []byte("zonez: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const good = "../../test/sandbox/region.yaml"
	for name, c := range map[string]config{
		"no region":      {logLevel: "info"},
		"missing region": {logLevel: "info", region: filepath.Join(t.TempDir(), "none.yaml")},
		"bad region":     {logLevel: "info", region: bad},
		"log level":      {logLevel: "loud", region: good},
		"version":        {logLevel: "info", region: good, version: "1.9"},
		"address":        {logLevel: "error", region: good, listen: "127.0.0.1:none"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(t.Context(), c); err == nil {
				t.Error("no error")
			}
		})
	}
}
