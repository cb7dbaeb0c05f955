// SPDX-License-Identifier: Apache-2.0

// Package lxdtest gives tests real LXD daemons.
package lxdtest

import (
	"os"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/e2e/sandbox/lxd"
)

// RequireVariable is set where tests with LXD must not be skipped.
const RequireVariable = "CAPMAAS_REQUIRE_LXD"

// Require skips a test where real daemons can't run, and fails it where RequireVariable is set.
func Require(t testing.TB) {
	t.Helper()
	err := lxd.Missing()
	if err == nil {
		return
	}
	if os.Getenv(RequireVariable) != "" {
		t.Fatalf("%s is set, but: %v", RequireVariable, err)
	}
	t.Skip(err)
}

// Start runs a daemon until the test ends, or skips the test as Require does.
func Start(t testing.TB, o lxd.Options) *lxd.Daemon {
	t.Helper()
	Require(t)
	d, err := lxd.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	return d
}
