// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"errors"
	"net"
	"strconv"
	"testing"
)

// FuzzListen parses any address: if Validate accepts it, LXD can listen on it, and it serves itself.
func FuzzListen(f *testing.F) {
	f.Fuzz(func(t *testing.T, wanted, current string) {
		config := goodConfig()
		config.ListenAddress = wanted
		err := config.Validate()
		p := &pass{Config: config}
		reached := p.listensWell(current)
		if wanted == "" {
			if err != nil || reached != (current != "") {
				t.Errorf("without a wanted address: %v, %q serves: %v", err, current, reached)
			}
			return
		}
		parsed, parseErr := parseListen(wanted)
		if (err == nil) != (parseErr == nil) {
			t.Fatalf("%q: Validate returned %v, the parser %v", wanted, err, parseErr)
		}
		if err != nil {
			var wrong *SettingError
			if !errors.As(err, &wrong) || wrong.Setting != SettingListen || reached {
				t.Errorf("%q is served by %q: %v; %v", wanted, current, reached, err)
			}
			return
		}
		if _, port, err := net.SplitHostPort(wanted); err != nil || parsed.Port() == 0 || port == "" {
			t.Errorf("%q is no address", wanted)
		}
		if !p.listensWell(wanted) || !p.listensWell("[::]:"+strconv.Itoa(int(parsed.Port()))) {
			t.Errorf("%q is not served by itself, or by all addresses", wanted)
		}
	})
}

// FuzzConfig tries any setting: each error names a setting.
func FuzzConfig(f *testing.F) {
	f.Fuzz(func(t *testing.T, pool, backend string, size int, bridge, project string) {
		err := Config{
			StoragePool: pool, StorageBackend: backend, StorageSizeGB: size, NetworkBridge: bridge, Project: project,
		}.Validate()
		if err == nil && (len(bridge) > 15 || (size <= 0 && backend != "dir")) {
			t.Errorf("bridge %q or size %d is taken", bridge, size)
		}
		if err != nil && len(wrongSettings(err)) == 0 {
			t.Errorf("%v names no setting", err)
		}
	})
}
