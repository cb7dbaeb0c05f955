// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
)

// MAAS takes the agent name off a machine when its release starts; if that fails, only our annotations are left to prove whose it is.
func TestIsOursKnowsAMachineWhoseReleaseFailed(t *testing.T) {
	id := Identity{OwnerID: "owner", AgentName: "capmaas/owner/ns/m", Annotations: map[string]string{AnnotationOwner: "owner", AnnotationMachine: "ns.m"}}
	for name, tc := range map[string]struct {
		machine maas.Machine
		agent   string // what MAAS has
		want    bool
	}{
		"with our agent name":                    {maas.Machine{Status: maas.StatusDeployed}, id.AgentName, true},
		"with another agent name":                {maas.Machine{Status: maas.StatusDeployed, WorkloadAnnotations: id.Annotations}, "somebody", false},
		"release failed, with our annotations":   {maas.Machine{Status: maas.StatusReleasingFailed, WorkloadAnnotations: id.Annotations}, "", true},
		"release failed, without annotations":    {maas.Machine{Status: maas.StatusReleasingFailed}, "", false},
		"release failed, of another cluster":     {maas.Machine{Status: maas.StatusReleasingFailed, WorkloadAnnotations: map[string]string{AnnotationOwner: "other", AnnotationMachine: "ns.m"}}, "", false},
		"release failed, of another MaasMachine": {maas.Machine{Status: maas.StatusReleasingFailed, WorkloadAnnotations: map[string]string{AnnotationOwner: "owner", AnnotationMachine: "ns.n"}}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			tc.machine.SystemID = "abc123"
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				found := []maas.Machine{}
				if query := r.URL.Query(); query.Get("id") == tc.machine.SystemID && query.Get("agent_name") == tc.agent {
					found = append(found, tc.machine)
				}
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(found)
			}))
			defer server.Close()
			client, err := maas.NewClient(maas.Config{Endpoint: server.URL + "/MAAS", APIKey: "consumer:token:secret"})
			if err != nil {
				t.Fatal(err)
			}
			got, err := NewService(inventory.New(client, inventory.Options{}), nil).IsOurs(t.Context(), id, &tc.machine)
			if err != nil || got != tc.want {
				t.Errorf("ours: %v, %v; want %v", got, err, tc.want)
			}
		})
	}
}
