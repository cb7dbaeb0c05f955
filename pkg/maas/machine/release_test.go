// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

// serviceWith makes a service of a MAAS that responds to all calls with one machine, or with a status. Its lists are empty.
func serviceWith(t *testing.T, machine maas.Machine, status int) *Service {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/machines/") || strings.HasSuffix(r.URL.Path, "/devices/") {
			_, _ = w.Write([]byte("[]"))
			return
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(machine)
	}))
	t.Cleanup(server.Close)
	client := simtest.Client(t, server.URL+"/MAAS", "consumer:token:secret")
	return NewService(inventory.New(client, inventory.Options{}), nil)
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
	if err := conflicting.Test(t.Context(), maas.Unrecorded("a test"), &machine, maas.TestParams{}); !errors.Is(err, maas.Conflict) {
		t.Errorf("test: %v", err)
	}
	if err := conflicting.MarkBroken(t.Context(), maas.Unrecorded("a test"), &machine); !errors.Is(err, maas.Conflict) {
		t.Errorf("mark broken: %v", err)
	}
	if _, ours, err := missing.IsOursInRelease(t.Context(), ownership.Identity{}, "abc123"); !errors.Is(err, maas.NotFound) || ours {
		t.Errorf("a machine that is gone: %v, %v", ours, err)
	}
}

// MAAS answers 404 also for an address that is reserved for a machine, and that the machine can't have.
func TestADeploymentThatIsNotFoundMayLackAnAddress(t *testing.T) {
	for name, tc := range map[string]struct {
		there bool
		want  maas.Kind
	}{"the machine is there": {true, maas.Unaddressed}, "the machine is gone": {false, maas.NotFound}} {
		t.Run(name, func(t *testing.T) {
			machine := maas.Machine{SystemID: "abc123"}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodGet && !strings.Contains(r.URL.Path, "abc123"):
					_, _ = w.Write([]byte("[]"))
				case r.Method == http.MethodGet && tc.there:
					_ = json.NewEncoder(w).Encode(machine)
				default:
					http.Error(w, "no", http.StatusNotFound)
				}
			}))
			t.Cleanup(server.Close)
			client := simtest.Client(t, server.URL+"/MAAS", "consumer:token:secret")
			service := NewService(inventory.New(client, inventory.Options{}), nil)
			_, err := service.Deploy(t.Context(), maas.Unrecorded("a test"), ownership.Identity{}, &machine, maas.DeployParams{})
			if !errors.Is(err, tc.want) || maas.NeedsPerson(err) != tc.there || !maas.HadNoEffect(err) {
				t.Errorf("the error is %#v", err)
			}
		})
	}
}
