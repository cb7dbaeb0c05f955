// SPDX-License-Identifier: Apache-2.0

package plan

import "github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"

// Calls are how many calls to MAAS a machine takes at most, beside the lists that all machines share and the DNS record
// of the cluster's endpoint. 0 is not known.
type Calls struct{ Create, Delete int }

// On returns those of a VM on a host: they are not known where VMs are made through LXD's own API.
func (c Calls) On(host lxd.Host) Calls {
	if host.IsDirect() {
		return Calls{}
	}
	return c
}

// What a machine takes. A test of the manager counts the calls.
var (
	CallsForVM               = Calls{Create: 5, Delete: 4}
	CallsForVMWithAddress    = Calls{Create: 6, Delete: 4} // with a static address, from the spec or a pool
	CallsForMetal            = Calls{Create: 4, Delete: 2}
	CallsForMetalWithAddress = Calls{Create: 5, Delete: 6} // acquired once more, to take the address off
)
