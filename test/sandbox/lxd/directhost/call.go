// SPDX-License-Identifier: Apache-2.0

package directhost

import (
	"net/http"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// CallPrefix distinguishes LXD's endpoints from those of MAAS.
const CallPrefix = "lxd/"

// CallOf returns a manager's call to LXD as if it were one to MAAS, for what treats both alike: only with its method and
// endpoint, such as "lxd/instances/{id}/state". False: it is one of MAAS.
func CallOf(r *http.Request) (call simulator.Call, ours bool) {
	if r.UserAgent() == simulator.LXDUserAgent {
		return call, false
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/1.0/"), "/")
	if len(parts) > 1 {
		parts[1] = "{id}"
	}
	return simulator.Call{Method: r.Method, Endpoint: CallPrefix + strings.Join(parts, "/")}, true
}
