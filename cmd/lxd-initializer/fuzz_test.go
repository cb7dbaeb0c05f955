// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

// FuzzOptions parses any flags and variables: either they can be used, or each complaint names a setting. None contains
// the key.
func FuzzOptions(f *testing.F) {
	f.Fuzz(func(t *testing.T, args, env, key string) {
		if strings.Contains(args+env, "/dev") || strings.Contains(args+env, "/proc") {
			t.Skip("files that never end")
		}
		variables := valid()
		for line := range strings.SplitSeq(env, "\n") {
			name, value, _ := strings.Cut(line, "=")
			variables[name] = value
		}
		variables["MAAS_API_KEY"], variables["MAAS_CONFIG_DIR"] = key, t.TempDir()
		opts, showVersion, err := parseOptions(strings.Split(args, "\n"), func(name string) (string, bool) {
			value, there := variables[name]
			return value, there
		})
		if err != nil {
			checkComplaint(t, err, key)
			return
		}
		if showVersion {
			return
		}
		node := netip.MustParseAddr("fd00::1")
		for _, address := range []string{opts.listenAddress(node), opts.powerAddress(node), opts.healthAddr, opts.metricsAddr} {
			if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
				t.Errorf("%q is no address: %v", address, err)
			}
		}
		if opts.checkInterval < minInterval || opts.nodeName == "" {
			t.Errorf("interval %s, node %q", opts.checkInterval, opts.nodeName)
		}
	})
}

func checkComplaint(t *testing.T, err error, key string) {
	t.Helper()
	for _, part := range guard.Parts(errors.Unwrap(err)) {
		if one, is := errors.AsType[*settingError](part); is && (one.variable == "" || one.problem == "") {
			t.Errorf("%+v says nothing", one)
		}
	}
	if len(key) > 40 && strings.Contains(err.Error(), key) {
		t.Errorf("the key is in %v", err)
	}
}
