// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
)

// serviceWith makes a service of a MAAS that responds to all calls with one machine, or with a status.
func serviceWith(t *testing.T, machine maas.Machine, status int) *Service {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(machine)
	}))
	t.Cleanup(server.Close)
	client, err := maas.NewClient(maas.Config{Endpoint: server.URL + "/MAAS", APIKey: "consumer:token:secret"})
	if err != nil {
		t.Fatal(err)
	}
	return NewService(inventory.New(client, inventory.Options{}), nil)
}

func TestOnlyAFreeMachineGetsItsNetworkRestored(t *testing.T) {
	const address = "10.0.0.9"
	static := func(ip string) *maas.Interface {
		return &maas.Interface{ID: 3, Links: []maas.Link{{Mode: maas.LinkModeStatic, IPAddress: ip, Subnet: &maas.Subnet{ID: 5}}}}
	}
	for name, tc := range map[string]struct {
		machine maas.Machine
		free    bool
		links   int
	}{
		"Ready, with the address":           {maas.Machine{Status: maas.StatusReady, BootInterface: static(address)}, true, 1},
		"New, with the address":             {maas.Machine{Status: maas.StatusNew, BootInterface: static(address)}, true, 1},
		"Ready, without the address":        {maas.Machine{Status: maas.StatusReady, BootInterface: static("10.0.0.10")}, true, 0},
		"Ready, without a boot NIC":         {maas.Machine{Status: maas.StatusReady}, true, 0},
		"Ready, but already another user's": {maas.Machine{Status: maas.StatusReady, Owner: "x", BootInterface: static(address)}, false, 0},
		"taken by another user":             {maas.Machine{Status: maas.StatusAllocated, Owner: "x", BootInterface: static(address)}, false, 0},
		"commissioned, without an owner":    {maas.Machine{Status: maas.StatusCommissioning, BootInterface: static(address)}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			tc.machine.SystemID = "abc123"
			links := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.Method == http.MethodGet {
					_ = json.NewEncoder(w).Encode(tc.machine)
					return
				}
				links++
				_ = json.NewEncoder(w).Encode(maas.Interface{ID: 3})
			}))
			defer server.Close()
			client, err := maas.NewClient(maas.Config{Endpoint: server.URL + "/MAAS", APIKey: "consumer:token:secret"})
			if err != nil {
				t.Fatal(err)
			}
			free, err := NewService(inventory.New(client, inventory.Options{}), nil).RestoreNetwork(t.Context(), maas.Unrecorded("a test"), "abc123", address)
			if err != nil || free != tc.free || links != tc.links {
				t.Errorf("free: %v, %v, %d links changed; want %v, %d", free, err, links, tc.free, tc.links)
			}
		})
	}
}

func TestARefusedReturnIsReported(t *testing.T) {
	machine := maas.Machine{SystemID: "abc123"}
	conflicting, missing := serviceWith(t, machine, http.StatusConflict), serviceWith(t, machine, http.StatusNotFound)
	if err := conflicting.Abort(t.Context(), maas.Unrecorded("a test"), &machine); !errors.Is(err, maas.Conflict) {
		t.Errorf("abort: %v", err)
	}
	if err := conflicting.ExitRescueMode(t.Context(), maas.Unrecorded("a test"), &machine); !errors.Is(err, maas.Conflict) {
		t.Errorf("exit rescue mode: %v", err)
	}
	if _, ours, err := missing.IsOursInRelease(t.Context(), ownership.Identity{}, "abc123"); !errors.Is(err, maas.NotFound) || ours {
		t.Errorf("a machine that is gone: %v, %v", ours, err)
	}
}
