// SPDX-License-Identifier: Apache-2.0

package orphans

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

const adminKey = "admin:token:secret"

// After a restore of Kubernetes there may be many orphans at once. nginx before MAAS accepts 8 KiB for a request line.
func TestManyOrphansWithLongNamesAreProven(t *testing.T) {
	for _, length := range []int{10, 46, 63, 253} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if len(r.Method+" "+r.RequestURI+" "+r.Proto+"\r\n") > 8<<10 {
					w.WriteHeader(http.StatusRequestURITooLong)
					return
				}
				query, found := r.URL.Query(), []map[string]any{}
				for _, id := range query["id"] {
					if slices.Contains(query["agent_name"], "capmaas/owner1/"+strings.Repeat("a", length)+id) {
						found = append(found, map[string]any{"system_id": id})
					}
				}
				_ = json.NewEncoder(w).Encode(found)
			}))
			t.Cleanup(server.Close)
			client := simtest.Client(t, server.URL, adminKey)
			var findings []Finding
			for i := range 100 {
				m := metal("owner1", strings.Repeat("a", length))
				m.SystemID = fmt.Sprintf("ab%04d", i)
				findings = append(findings, Finding{Machine: m, OwnerID: "owner1", Object: Object{Namespace: "ns", Name: strings.Repeat("a", length) + m.SystemID}})
			}
			findings[7].Object.Name = "of-somebody-else"
			stand, err := Recorded(t.Context(), client, findings)
			if err != nil || len(stand) != 99 || slices.ContainsFunc(stand, func(f Finding) bool { return len(f.Proof) == 0 }) {
				t.Errorf("%d of 99 stand, with their proof: %v", len(stand), err)
			}
		})
	}
}

// Of a device, the list has said whose it is: MAAS is not asked again.
func TestADeviceIsProvenByItsMark(t *testing.T) {
	claims := NewClaims(here, "", []Cluster{alive}, nil)
	ours, theirs := device("owner1", "a", "owner1"), device("owner1", "b", "owner1")
	theirs.Description = "somebody's"
	found := claims.Audit([]*maas.Machine{ours, theirs})
	stand, err := Recorded(t.Context(), nil, found)
	if err != nil || len(stand) != 1 || stand[0].Machine != ours {
		t.Fatalf("of %d, these stand: %v, %v", len(found), stand, err)
	}
	if !stand[0].VM() {
		t.Errorf("it is no VM: %+v", stand[0])
	}
}
