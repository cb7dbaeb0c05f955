// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"net/http"
	"net/url"
)

// PowerTypeLXD is the power driver of VMs on LXD hosts.
const PowerTypeLXD = "lxd"

// Instance is how MAAS switches a machine, as far as it tells VMs on LXD hosts apart.
type Instance struct {
	// Name is the VM's on its host; "" for a machine that is none.
	Name string `json:"instance_name"`
	// PowerAddress is where MAAS reaches the host: host:port, or a URL.
	PowerAddress string `json:"power_address"`
	// Certificate (PEM) is MAAS's identity towards the host.
	Certificate string `json:"certificate"`
}

// Instances returns how MAAS switches its machines, by system id (GET machines/ op=power_parameters, for
// administrators): all, or those of the ids. Of VMs that MAAS composed on VM hosts it still tells when it has no VM
// hosts any more.
func (c *Client) Instances(ctx context.Context, systemIDs ...string) (map[string]Instance, error) {
	var instances map[string]Instance // The parameters also hold credentials; nothing else is read.
	params := url.Values{"id": systemIDs}
	err := c.do(ctx, call{method: http.MethodGet, endpoint: "machines/", op: "power_parameters", params: params,
		list: true}, &instances)
	return instances, err
}
