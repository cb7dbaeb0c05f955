// SPDX-License-Identifier: Apache-2.0

// Package bootstrap_test leads clusters of other bootstrap and control-plane providers than kubeadm's through their
// lives, with the real controllers of those providers. A provider that is not built is skipped, unless
// CAPMAAS_REQUIRE_PROVIDERS is 1; `make tools-NAME` builds it.
package bootstrap_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// box is the sandbox of all tests; it is nil where no provider is built.
var box *sandbox.Sandbox

var providers = []sandbox.BootstrapProvider{sandbox.RKE2, sandbox.K3s, sandbox.Dev}

func TestMain(m *testing.M) {
	for _, provider := range providers {
		if provider.Built() == nil {
			os.Exit(life.Main(m, sandbox.Options{
				LXD: sandbox.LXDOff, TimeScale: 300, PollActive: 500 * time.Millisecond, PollIdle: 3 * time.Second,
				Eager: true, Values: map[string]any{"evacuation": map[string]any{"enabled": true}},
			}, &box))
		}
	}
	os.Exit(m.Run())
}

// running are the names of the providers that were started; they run until the sandbox ends.
var running = map[string]bool{}

// require has a provider run, or skips the test where that can't be.
func require(t *testing.T, provider sandbox.BootstrapProvider) {
	t.Helper()
	err := provider.Built()
	if err == nil && !running[provider.Name] {
		err = box.AddBootstrapProvider(t.Context(), provider)
	}
	switch {
	case err == nil:
		running[provider.Name] = true
	case os.Getenv("CAPMAAS_REQUIRE_PROVIDERS") != "1" && (errors.Is(err, sandbox.ErrNotBuilt) || errors.Is(err, os.ErrPermission)):
		t.Skip(err)
	default:
		t.Fatal(err)
	}
}
