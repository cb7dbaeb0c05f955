// SPDX-License-Identifier: Apache-2.0

// Package lxdtest gives tests real LXD daemons.
package lxdtest

import (
	"testing"

	lxdclient "github.com/canonical/lxd/client"

	"github.com/capmaas/cluster-api-provider-maas/test/needs"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
)

// RequireVariable is set where tests with LXD must not be skipped.
const RequireVariable = "CAPMAAS_REQUIRE_LXD"

// Require skips a test where real daemons can't run, and fails it where RequireVariable is set.
func Require(t testing.TB) {
	t.Helper()
	if err := lxd.Missing(); err != nil {
		needs.Skip(t, err, RequireVariable)
	}
}

// Possible reports whether real daemons can run, for a test that can do without. It fails the test if they can't where
// RequireVariable is set.
func Possible(t testing.TB) bool {
	t.Helper()
	err := lxd.Missing()
	if err != nil {
		needs.Without(t, err, RequireVariable)
	}
	return err == nil
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

// Connect returns a client of the daemon at a unix socket, whose calls are bounded as those of lxd.Connect. It is
// disconnected when the test ends.
func Connect(t testing.TB, socket string) lxdclient.InstanceServer {
	t.Helper()
	client, err := lxd.Connect(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Disconnect)
	return client
}

// Finish waits until LXD has finished the operation of a call, and fails the test if the call or the operation failed.
func Finish(t testing.TB, operation lxdclient.Operation, err error) {
	t.Helper()
	if err := lxd.Finish(t.Context(), operation, err); err != nil {
		t.Fatal(err)
	}
}
