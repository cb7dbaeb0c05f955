// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
)

// HostObjects are the LXDHosts of one MAAS.
type HostObjects interface {
	// HostObjects lists them, in any order.
	HostObjects(ctx context.Context) ([]HostObject, error)
}

// HostObject is what an LXDHost tells of a host.
type HostObject struct {
	Namespace, Name string
	// VMHost is the VM host of MAAS that it is; "" for a host whose VMs are made through LXD's own API.
	VMHost HostKey
	// Unschedulable keeps new VMs off the host.
	Unschedulable bool
	// Allows reports whether MaasMachines of a namespace may be placed on the host.
	Allows func(namespace string) bool

	// Server is how LXD is reached, unless Problem says why that is not known. This and the rest is for hosts whose VMs
	// are made through LXD's own API.
	Server  lxdhost.Options
	Problem error

	Zone, ResourcePool  string
	Tags                []string
	StoragePool, Bridge string
	// Subnet is that of MAAS on Bridge, or invalid.
	Subnet     netip.Prefix
	Overcommit lxdhost.Overcommit
}

// IsDirect reports whether VMs are made through the LXD's own API.
func (o *HostObject) IsDirect() bool { return o.VMHost == "" }

// serverKey identifies the LXD, by whatever LXDHost: its certificate, and the project.
func (o *HostObject) serverKey() HostKey {
	sum := sha256.Sum256(o.Server.ServerCertificate)
	return HostKey("LXD " + hex.EncodeToString(sum[:]) + " project " + o.Server.Project)
}

// describe gives VM hosts their LXDHosts.
func describe(hosts []Host, objects []HostObject) {
	for i := range hosts {
		key := hosts[i].Key()
		if at := slices.IndexFunc(objects, func(o HostObject) bool { return o.VMHost == key }); at >= 0 {
			hosts[i].Object = &objects[at]
		}
	}
}
