// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"net/http"
	"slices"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// Forbidden returns the calls of a user that MAAS has refused because the user may not make them, but for those that only
// find that out, and for notes in tags, without which everything works.
func Forbidden(calls []simulator.Call, user string) []simulator.Call {
	return slices.DeleteFunc(slices.Clone(calls), func(call simulator.Call) bool {
		return call.User != user || call.Status != http.StatusForbidden || strings.HasPrefix(call.Endpoint, "tags/") || asksWhether(call)
	})
}

// asksWhether reports whether a call only finds out whether the user has an entitlement (pkg/maas/rights.go).
func asksWhether(call simulator.Call) bool {
	probes := []string{"commissioning-scripts/", "domains/{id}/", "resourcepool/{id}/"}
	return slices.Contains(probes, call.Endpoint) || call.Op == "power_parameters" && strings.Contains(call.Query, "id=none")
}
