// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	lxdbed "github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
)

// To a client that has its rights by groups LXD shows what it may not view as if it did not exist. That proves nothing,
// unless LXD says that the client may view all of the project, right afterwards.
func TestAVMIsGoneOnlyForAClientThatMayViewAll(t *testing.T) {
	b := bedOf(t, lxdbed.Options{Plays: "6.9"})
	host := b.connect(b.options)
	defer host.Close()
	marks := Marks{Owner: "0a1b2c3d4e5f", Machine: "vm"}
	for _, tc := range []struct {
		name     string
		identity map[string]any
		project  map[string]any // nil: it may not view that either
		want     Kind
	}{
		{"rights by groups, to all", map[string]any{"fine_grained": true}, map[string]any{"access_entitlements": []string{"can_view_instances"}}, KindNotFound},
		{"rights by groups, to some", map[string]any{"fine_grained": true}, map[string]any{}, KindNotTrusted},
		{"rights by groups, not to the project", map[string]any{"fine_grained": true}, nil, KindNotTrusted},
		{"rights by groups, of an LXD that only the type says it of", map[string]any{"type": "Client certificate"}, map[string]any{}, KindNotTrusted},
		{"a restricted certificate", map[string]any{"type": "Client certificate (restricted)", "fine_grained": false}, nil, KindNotFound},
	} {
		b.between.set(func(lxd http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				metadata := tc.identity
				switch {
				case strings.HasSuffix(r.URL.Path, "/auth/identities/current"):
				case r.URL.Query().Has("with-access-entitlements"):
					metadata = tc.project
				default:
					lxd.ServeHTTP(w, r)
					return
				}
				if metadata == nil {
					answer(w, http.StatusNotFound, "Not Found")
					return
				}
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(map[string]any{"type": "sync", "status": "Success", "status_code": 200, "metadata": metadata})
			})
		})
		host.view.coarse = time.Time{} // What was asked when it connected does not count any more.
		if err := host.Find(t.Context(), "vm", marks); KindOf(err) != tc.want {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
		if _, err := host.List(t.Context()); (err == nil) != (tc.want == KindNotFound) {
			t.Errorf("%s: the list of VMs: %v", tc.name, err)
		}
		again, err := connect(t.Context(), b.options, newCircuit())
		if err == nil {
			again.Close()
		}
		if (err == nil) != (tc.want == KindNotFound) {
			t.Errorf("%s: connecting: %v", tc.name, err)
		}
	}
}
