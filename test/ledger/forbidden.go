// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"net/http"
	"slices"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// Forbidden returns the calls of a user that MAAS has refused because the user may not make them, but for notes in tags,
// without which everything works.
func Forbidden(calls []simulator.Call, user string) []simulator.Call {
	return slices.DeleteFunc(slices.Clone(calls), func(call simulator.Call) bool {
		return call.User != user || call.Status != http.StatusForbidden || strings.HasPrefix(call.Endpoint, "tags/")
	})
}
